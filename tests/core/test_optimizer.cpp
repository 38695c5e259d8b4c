#include "core/optimizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.h"

using namespace primal;

namespace {

/// Two parameters whose sizes leave gaps in the flat buffers.
struct Model {
  Backend backend = cpu_backend(1);
  ParameterSet parameters;
  Parameter a, b;

  Model() {
    a = parameters.add("a", {3}, init::uniform(-1, 1));
    b = parameters.add("b", {2, 5}, init::uniform(-1, 1));
    parameters.allocate(backend, 7);
  }
  void set_gradient(RandomStream& random, float scale = 1) {
    for (const Parameter p : {a, b}) {
      for (float& g : parameters.gradient(p).floats()) g = scale * random.normal();
    }
  }
};

/// The published definitions, element by element in double precision.
struct Reference {
  std::string kind;
  double lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  std::vector<double> value, first, second;
  int t = 0;

  Reference(std::string k, double rate, std::span<const float> start)
      : kind(std::move(k)),
        lr(rate),
        value(start.begin(), start.end()),
        first(start.size(), 0.0),
        second(start.size(), 0.0) {}

  void step(std::span<const float> gradient) {
    ++t;
    const double c1 = 1 - std::pow(beta1, t), c2 = 1 - std::pow(beta2, t);
    const double longest = 2 / (1 - beta2) - 1;
    const double length = longest - 2 * t * std::pow(beta2, t) / c2;
    for (size_t i = 0; i < value.size(); ++i) {
      double g = gradient[i];
      if (kind == "adam") g += decay * value[i];
      if (kind != "adam") value[i] -= lr * decay * value[i];
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      if (kind != "radam") {
        value[i] -= lr * (first[i] / c1) / (std::sqrt(second[i] / c2) + eps);
      } else if (length < 5) {
        value[i] -= lr * first[i] / c1;
      } else {
        const double r = std::sqrt((length - 4) * (length - 2) * longest /
                                   ((longest - 4) * (longest - 2) * length));
        value[i] -= lr / c1 * r * std::sqrt(c2) * first[i] / (std::sqrt(second[i]) + eps);
      }
    }
  }
};

std::unique_ptr<OptimizerRule> rule(std::string_view kind) {
  for (const auto& k : optimizer_kinds()) {
    if (k.name == kind) return k.make();
  }
  return nullptr;
}

}  // namespace

TEST_CASE("every optimizer follows its published definition, with and without weight decay") {
  for (const std::string kind : {"radam", "adam", "adamw"}) {
    for (const double decay : {0.0, 0.1}) {
      CAPTURE(kind, decay);
      Model model;
      const auto r = rule(kind);
      REQUIRE(r);
      REQUIRE(r->kind() == kind);
      r->lr = 0.01;
      r->weight_decay = decay;
      Optimizer optimizer(*r, model.parameters, model.backend);
      Reference reference(kind, 0.01, model.parameters.values().floats());
      reference.decay = decay;
      RandomStream random(3, 1);
      for (int t = 0; t < 20; ++t) {
        model.set_gradient(random);
        reference.step(model.parameters.gradients().floats());
        optimizer.update(0.01);
        const auto values = model.parameters.values().floats();
        for (size_t i = 0; i < values.size(); ++i) {
          REQUIRE(values[i] == Approx(reference.value[i]).epsilon(1e-5).margin(1e-6));
        }
      }
      REQUIRE(optimizer.steps() == 20);
    }
  }
}

TEST_CASE("RAdam takes five momentum steps before it adapts at the default decays") {
  const auto radam = rule("radam");
  for (int t = 1; t <= 8; ++t) REQUIRE(radam->update(t, 1e-3).adaptive == (t > 5));
  REQUIRE(radam->update(1, 1e-3).step_size == Approx(1e-2));  // lr / (1 - beta1)
}

TEST_CASE("the gradient norm is over all parameters and is that before clipping") {
  Model model;
  const auto r = rule("adam");
  r->clip_norm = 0.5;
  Optimizer optimizer(*r, model.parameters, model.backend);
  for (float& g : model.parameters.gradient(model.a).floats()) g = 2;
  for (float& g : model.parameters.gradient(model.b).floats()) g = 1;
  optimizer.update(1e-3);
  REQUIRE(optimizer.gradient_norm().floats()[0] == Approx(std::sqrt(3 * 4 + 10 * 1.0)));
}

TEST_CASE("a gradient that is not finite changes neither parameters nor moments") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf, -inf}) {
    for (const double clip : {0.0, 4.0}) {
      Model model;
      const auto r = rule("radam");
      r->clip_norm = clip;
      Optimizer optimizer(*r, model.parameters, model.backend);
      RandomStream random(5, 1);
      model.set_gradient(random);
      optimizer.update(0.1);
      const auto copy = [](const Tensor& t) {
        return std::vector<float>(t.floats().begin(), t.floats().end());
      };
      const auto all = [&] {
        return std::tuple(copy(model.parameters.values()), copy(optimizer.first()),
                          copy(optimizer.second()));
      };
      const auto before = all();
      model.parameters.gradients().floats()[1] = bad;
      optimizer.update(0.1);
      CAPTURE(bad, clip);
      CHECK_FALSE(std::isfinite(optimizer.gradient_norm().floats()[0]));
      CHECK(all() == before);
    }
  }
}

TEST_CASE("long gradients are shortened to the clip norm, short ones are left alone") {
  const auto first_update = [](float scale, double clip) {
    Model model;
    const auto r = rule("radam");  // its first step is proportional to the gradient
    r->clip_norm = clip;
    Optimizer optimizer(*r, model.parameters, model.backend);
    RandomStream random(5, 1);
    model.set_gradient(random, scale);
    const std::vector<float> before(model.parameters.values().floats().begin(),
                                    model.parameters.values().floats().end());
    optimizer.update(1.0);
    double sum = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const double change = model.parameters.values().floats()[i] - before[i];
      sum += change * change;
    }
    return std::sqrt(sum);
  };
  REQUIRE(first_update(100, 4) == Approx(4).epsilon(1e-3));
  REQUIRE(first_update(0.01F, 4) == Approx(first_update(0.01F, 0)).epsilon(1e-6));
  REQUIRE(first_update(100, 0) > 100);
}

TEST_CASE("the gaps between parameters stay zero") {
  for (const std::string kind : {"radam", "adam", "adamw"}) {
    Model model;
    const auto r = rule(kind);
    Optimizer optimizer(*r, model.parameters, model.backend);
    RandomStream random(5, 1);
    for (int t = 0; t < 10; ++t) {
      model.set_gradient(random);
      optimizer.update(0.1);
    }
    const auto values = model.parameters.values().floats();
    REQUIRE(values.size() == 32);
    for (size_t i = 3; i < 16; ++i) REQUIRE(values[i] == 0);
    for (size_t i = 26; i < 32; ++i) REQUIRE(values[i] == 0);
  }
}

TEST_CASE("an optimizer restored from its state goes on bit for bit") {
  Model whole, halves;
  const auto r = rule("radam");
  RandomStream random_whole(9, 1), random_halves(9, 1);
  Optimizer all(*r, whole.parameters, whole.backend);
  for (int t = 0; t < 14; ++t) {
    whole.set_gradient(random_whole);
    all.update(0.01);
  }
  std::vector<float> first, second;
  {
    Optimizer half(*r, halves.parameters, halves.backend);
    for (int t = 0; t < 7; ++t) {
      halves.set_gradient(random_halves);
      half.update(0.01);
    }
    first.assign(half.first().floats().begin(), half.first().floats().end());
    second.assign(half.second().floats().begin(), half.second().floats().end());
  }
  Optimizer rest(*r, halves.parameters, halves.backend);
  rest.restore(7, first, second);
  for (int t = 0; t < 7; ++t) {
    halves.set_gradient(random_halves);
    rest.update(0.01);
  }
  const auto a = whole.parameters.values().floats(), b = halves.parameters.values().floats();
  REQUIRE(std::equal(a.begin(), a.end(), b.begin()));

  first.pop_back();
  REQUIRE_THROWS_AS(rest.restore(7, first, second), Error);
}

TEST_CASE("settings that would divide by zero are refused") {
  struct Holder {
    std::unique_ptr<OptimizerRule> optimizer = optimizer_kinds()[0].make();
    void fields(Fields& f) {
      f.variant<OptimizerRule>("optimizer", optimizer, optimizer_kinds(), "");
    }
  };
  for (const std::string bad : {"eps: 0", "beta1: 1", "beta2: 1.0", "lr: -1", "clip_norm: -4"}) {
    Holder holder;
    CAPTURE(bad);
    REQUIRE_THROWS_AS(
        read_config(ConfigSource::from_string("optimizer: {" + bad + "}", "test"), holder), Error);
  }
  Holder holder;
  read_config(ConfigSource::from_string("optimizer: {kind: adamw, weight_decay: 0.05}", "test"),
              holder);
  REQUIRE(holder.optimizer->kind() == "adamw");
  REQUIRE(holder.optimizer->weight_decay == 0.05);
}

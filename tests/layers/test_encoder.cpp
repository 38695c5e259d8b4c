#include "core/error.h"
#include "layers/positions.h"
#include "tests/catch.h"
#include "tests/layers/layer_fixture.h"

using namespace primal;
using namespace primal::testing;

namespace {

Values operator+(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// One block with canonical attention in double precision, by hand.
struct ReferenceBlock {
  const TestEncoder& model;
  int64_t batch, length;
  bool gelu;

  Values parameter(const std::string& name) const { return model.parameter("layers.0." + name); }
  Values linear(const std::string& name, const Values& x, int64_t in, int64_t out) const {
    return reference::linear(x, parameter(name + ".weight"), parameter(name + ".bias"),
                             batch * length, in, out);
  }
  Values norm(const std::string& name, const Values& x) const {
    return reference::layer_norm(x, parameter(name + ".weight"), parameter(name + ".bias"), 1e-5);
  }
  Values attention(const Values& x) const {
    const reference::AttentionShape shape{batch, length, 3, 4, false, {}};
    const Values mixed = reference::attention(
        linear("attention.query", x, 12, 12), linear("attention.key", x, 12, 12),
        linear("attention.value", x, 12, 12), shape, reference::attention_factors(shape, 0));
    return linear("attention.output", mixed, 12, 12);
  }
  Values feed_forward(const Values& x) const {
    Values hidden = linear("feed_forward.first", x, 12, 20);
    for (double& h : hidden) h = gelu ? reference::gelu(h) : std::max(h, 0.0);
    return linear("feed_forward.second", hidden, 20, 12);
  }
  Values post(const Values& x) const {
    const Values middle = norm("norm1", x + attention(x));
    return norm("norm2", middle + feed_forward(middle));
  }
  Values pre(const Values& x) const {
    const Values middle = x + attention(norm("norm1", x));
    return middle + feed_forward(norm("norm2", middle));
  }
};

}  // namespace

TEST_CASE("post-norm and pre-norm blocks agree with a double precision forward pass") {
  for (const std::string norm : {"post", "pre"}) {
    for (const std::string activation : {"gelu", "relu"}) {
      INFO(norm << " " << activation);
      TestEncoder model(one_layer("canonical", ", norm: " + norm + ", activation: " + activation),
                        30);
      for (const char* name : {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}) {
        model.set(std::string("layers.0.") + name, 0.75F);  // no longer the identity
      }
      const Shape shape{2, 13, 12};
      const Values x = normal_values(shape.count(), "x");
      const ReferenceBlock block{model, 2, 13, activation == "gelu"};
      const Values expected = norm == "post" ? block.post(x) : block.pre(x);
      CHECK(error_of(model.run(shape, x).output, expected) <= 1e-6);
    }
  }
}

TEST_CASE("blocks are applied in order, and each primal one adds its KSVD loss") {
  const std::string primal = "{kind: primal, rank: 4, rank_multi: 2}";
  TestEncoder model("{dim: 12, heads: 3, feedforward: 20, layers: [{attention: " + primal +
                        "}, {attention: canonical}, {attention: " + primal + "}]}",
                    30);
  const Shape shape{2, 13, 12};
  const auto result = model.run(shape, normal_values(shape.count(), "x"));
  REQUIRE(result.ksvd.size() == 2);
  CHECK(result.ksvd[0] != result.ksvd[1]);
  TestEncoder first("{dim: 12, heads: 3, feedforward: 20, layers: [{attention: " + primal + "}]}",
                    30);
  CHECK(first.run(shape, normal_values(shape.count(), "x")).ksvd[0] == result.ksvd[0]);
}

TEST_CASE("dropout acts in training and not in evaluation") {
  const std::string yaml =
      "{dim: 12, heads: 3, feedforward: 20, dropout: 0.3, layers: [{attention: canonical}]}";
  TestEncoder model(yaml, 30);
  const Shape shape{2, 13, 12};
  const Values x = normal_values(shape.count(), "x");
  const auto train = [&](uint64_t step) {
    Tape tape(model.be);
    Context ctx(model.be, model.parameters, tape, Rng(1, step));
    return to_host(model.be,
                   model.encoder->forward(ctx, {to_device(model.be, shape, x)}, {}).value);
  };
  CHECK(train(1) == train(1));
  CHECK(train(1) != train(2));
  CHECK(train(1) != model.run(shape, x).output);
  CHECK(model.run(shape, x).output == model.run(shape, x).output);
}

TEST_CASE("sinusoidal positions are sines, then cosines, of falling frequencies") {
  const Backend be = cpu_backend(1);
  ParameterSet parameters;
  const Positions positions(be, parameters, "positions", PositionKind::sinusoidal, 50, 8);
  parameters.allocate(be, 1);
  CHECK(parameters.entries().empty());
  Backend on = be;
  Context ctx(on, parameters);
  const Var x{to_device(be, {1, 50, 8}, Values(400, 1.0))};
  const std::vector<float> y = to_host(be, positions.forward(ctx, x, 2).value);
  for (int64_t t = 0; t < 50; ++t) {
    for (int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i) / 3);
      CHECK(y[t * 8 + i] == Approx(2 + std::sin(angle)).margin(1e-6));
      CHECK(y[t * 8 + 4 + i] == Approx(2 + std::cos(angle)).margin(1e-6));
    }
  }
}

TEST_CASE("learned positions start small, and serve sequences up to their number") {
  Backend be = cpu_backend(1);
  ParameterSet parameters;
  const Positions positions(be, parameters, "positions", PositionKind::learned, 50, 8);
  parameters.allocate(be, 1);
  for (const float value : to_host(be, parameters.values())) CHECK(std::abs(value) <= 0.02F);
  Context ctx(be, parameters);
  CHECK_NOTHROW(positions.forward(ctx, {to_device(be, {1, 7, 8}, Values(56, 0.0))}, 1));
  CHECK_THROWS_WITH(positions.forward(ctx, {to_device(be, {1, 51, 8}, Values(408, 0.0))}, 1),
                    "[add_position] position must be (at least 51, 8), got (50, 8)");
}

TEST_CASE("sinusoidal positions refuse a width that has no two halves") {
  const Backend be = cpu_backend(1);
  ParameterSet parameters;
  for (const int64_t dim : {1, 2, 7}) {
    CHECK_THROWS_WITH(Positions(be, parameters, "p", PositionKind::sinusoidal, 5, dim),
                      ContainsSubstring("[positions] sinusoidal positions need an even"));
  }
}

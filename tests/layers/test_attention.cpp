#include "core/error.h"
#include "tests/catch.h"
#include "tests/layers/layer_fixture.h"

using namespace primal;
using namespace primal::testing;

namespace {

const std::string kBlockwise = "{kind: canonical, implementation: blockwise}";
const std::string kMaterialized = "{kind: canonical, implementation: materialized}";
const std::string kData = "{kind: primal, rank: 4, rank_multi: 2}";
const std::string kStatic = "{kind: primal, rank: 3, projection: static}";

bool finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

std::vector<std::string> names(const ParameterSet& parameters, const std::string& prefix) {
  std::vector<std::string> found;
  for (const ParameterSet::Entry& entry : parameters.entries()) {
    if (entry.name.starts_with(prefix)) found.push_back(entry.name.substr(prefix.size()));
  }
  return found;
}

/// x (B, N, 12) with N = longest + padding, the values at real positions the same for any padding.
struct PaddedInput {
  PaddedInput(const std::vector<int32_t>& lengths, int64_t length, double filler)
      : shape{std::ssize(lengths), length, 12} {
    for (size_t b = 0; b < lengths.size(); ++b) {
      const Values real = normal_values(lengths[b] * 12, "sample " + std::to_string(b));
      Values sample(length * 12, filler);
      std::ranges::copy(real, sample.begin());
      x.insert(x.end(), sample.begin(), sample.end());
    }
  }
  Shape shape;
  Values x;
};

std::vector<float> real_rows(const std::vector<float>& y, const Shape& shape,
                             const std::vector<int32_t>& lengths) {
  std::vector<float> rows;
  for (size_t b = 0; b < lengths.size(); ++b) {
    const auto start = y.begin() + static_cast<int64_t>(b) * shape[1] * shape[2];
    rows.insert(rows.end(), start, start + lengths[b] * shape[2]);
  }
  return rows;
}

}  // namespace

TEST_CASE("each layer has the attention that its configuration names") {
  const TestEncoder model("{dim: 12, heads: 3, layers: [{attention: canonical}, {attention: " +
                              kData + "}, {attention: " + kStatic + "}]}",
                          29);
  CHECK(names(model.parameters, "layers.0.attention.") ==
        std::vector<std::string>{"query.weight", "query.bias", "key.weight", "key.bias",
                                 "value.weight", "value.bias", "output.weight", "output.bias"});
  CHECK(names(model.parameters, "layers.1.attention.") ==
        std::vector<std::string>{"query.weight", "query.bias", "key.weight", "key.bias",
                                 "output.weight", "output.bias", "projection_e", "projection_r",
                                 "lambda", "mix.weight", "mix.bias"});
  const auto shape = [&](const std::string& name) {
    return model.parameters.value(model.parameters.find(name)).shape();
  };
  CHECK(shape("layers.1.attention.projection_e") == Shape{3, 8, 4});
  CHECK(shape("layers.1.attention.mix.weight") == Shape{4, 8});
  CHECK(shape("layers.2.attention.projection_e") == Shape{3, 4, 3});
  CHECK(shape("layers.2.attention.lambda") == Shape{3, 3});
}

TEST_CASE("no more rows are sampled than the longest sequence has") {
  const TestEncoder model(one_layer("{kind: primal, rank: 4, rank_multi: 10}"), 29);
  CHECK(model.parameters.value(model.parameters.find("layers.0.attention.projection_r")).shape() ==
        Shape{3, 29, 4});
}

TEST_CASE("what attention cannot do is refused when the model is built") {
  CHECK_THROWS_WITH(TestEncoder("{dim: 10, heads: 3, layers: [{attention: canonical}]}", 5),
                    ContainsSubstring("model.dim 10 cannot be split into model.heads 3"));
  CHECK_THROWS_WITH(TestEncoder("{dim: 12, heads: 3, layers: []}", 5),
                    ContainsSubstring("model.layers must list at least one layer"));
  CHECK_THROWS_WITH(TestEncoder(one_layer(kData), 5, true),
                    ContainsSubstring("[primal] projection: data samples the whole sequence"));
  CHECK_NOTHROW(TestEncoder(one_layer(kStatic), 5, true));
  CHECK_THROWS_WITH(TestEncoder(one_layer("{kind: primal, rank: 0}"), 5),
                    ContainsSubstring("rank"));
  CHECK_THROWS_WITH(TestEncoder(one_layer("cannonical"), 5), ContainsSubstring("canonical"));
}

TEST_CASE("static Primal-Attention and causal canonical attention do not see the future") {
  for (const std::string& kind : {kBlockwise, kMaterialized, kStatic}) {
    INFO(kind);
    TestEncoder model(one_layer(kind), 150, true);
    const Shape shape{2, 150, 12};
    const Values x = normal_values(shape.count(), "sequence");
    const std::vector<float> before = model.run(shape, x).output;
    for (const int64_t changed : {1, 40, 128, 149}) {
      INFO("changed from position " << changed << " on");
      Values y = x;
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = changed * 12; i < 150 * 12; ++i) y[b * 150 * 12 + i] += 1.5;
      }
      const std::vector<float> after = model.run(shape, y).output;
      const auto past = static_cast<int32_t>(changed);
      CHECK(largest_difference(real_rows(after, shape, {past, past}),
                               real_rows(before, shape, {past, past})) <= 1e-6);
      CHECK(largest_difference(after, before) > 1e-3);
    }
  }
}

TEST_CASE("attention that is not causal sees the future") {
  for (const std::string& kind : {kBlockwise, kMaterialized, kData}) {
    INFO(kind);
    TestEncoder model(one_layer(kind), 20);
    const Shape shape{1, 20, 12};
    Values x = normal_values(shape.count(), "sequence");
    const std::vector<float> before = model.run(shape, x).output;
    for (int64_t i = 10 * 12; i < 20 * 12; ++i) x[i] += 1.5;
    const std::vector<float> after = model.run(shape, x).output;
    CHECK(largest_difference(real_rows(after, shape, {1}), real_rows(before, shape, {1})) > 1e-5);
  }
}

TEST_CASE("with lengths, padding and what stands in it change neither outputs nor KSVD loss") {
  const std::vector<std::vector<int32_t>> batches{{7, 4, 9, 1}, {1}, {131, 12}, {3, 3}};
  for (const std::string& kind : {kBlockwise, kMaterialized, kData, kStatic}) {
    for (const KsvdConfig::Mean mean : {KsvdConfig::Mean::sample, KsvdConfig::Mean::batch}) {
      for (const KsvdConfig::Trace trace :
           {KsvdConfig::Trace::parameter, KsvdConfig::Trace::data}) {
        TestEncoder model(one_layer(kind), 200, false, {0.1, mean, trace});
        for (const std::vector<int32_t>& lengths : batches) {
          const int64_t longest = *std::ranges::max_element(lengths);
          const PaddedInput tight(lengths, longest, 0);
          const auto expected = model.run(tight.shape, tight.x, lengths);
          for (const int64_t padding : {0, 1, 37}) {
            INFO(kind << ", longest " << longest << ", padding " << padding);
            const PaddedInput padded(lengths, longest + padding, 3.25);
            const auto found = model.run(padded.shape, padded.x, lengths);
            CHECK(largest_difference(real_rows(found.output, padded.shape, lengths),
                                     real_rows(expected.output, tight.shape, lengths)) <= 1e-6);
            CHECK(finite(found.output));
            REQUIRE(found.ksvd.size() == expected.ksvd.size());
            CHECK(largest_difference(found.ksvd, expected.ksvd) <= 1e-6);
          }
        }
      }
    }
  }
}

TEST_CASE("without lengths the padded length is part of the model, as published") {
  for (const std::string& kind : {kBlockwise, kData}) {
    INFO(kind);
    TestEncoder model(one_layer(kind), 30);
    const PaddedInput tight({7}, 7, 0);
    const PaddedInput padded({7}, 11, 0);
    const auto a = model.run(tight.shape, tight.x);
    const auto b = model.run(padded.shape, padded.x);
    CHECK(largest_difference(real_rows(b.output, padded.shape, {7}), a.output) > 1e-4);
  }
}

TEST_CASE("a sample's output and KSVD loss do not depend on its batch") {
  for (const std::string& kind : {kBlockwise, kData, kStatic}) {
    INFO(kind);
    TestEncoder model(one_layer(kind), 30);
    const Shape one{1, 17, 12};
    const Values a = normal_values(one.count(), "a");
    const Values b = normal_values(one.count(), "b");
    Values both = a;
    both.insert(both.end(), b.begin(), b.end());
    const auto first = model.run(one, a);
    const auto second = model.run(one, b);
    const auto together = model.run({2, 17, 12}, both);
    std::vector<float> expected = first.output;
    expected.insert(expected.end(), second.output.begin(), second.output.end());
    CHECK(largest_difference(together.output, expected) <= 1e-6);
    if (!together.ksvd.empty()) {
      CHECK(together.ksvd[0] == Approx((first.ksvd[0] + second.ksvd[0]) / 2).epsilon(1e-5));
    }
  }
}

TEST_CASE("means over the sample and over the batch agree for a batch of one only") {
  TestEncoder sample(one_layer(kData), 30, false,
                     {0.1, KsvdConfig::Mean::sample, KsvdConfig::Trace::data});
  TestEncoder batch(one_layer(kData), 30, false,
                    {0.1, KsvdConfig::Mean::batch, KsvdConfig::Trace::data});
  const Values x = normal_values(int64_t{2} * 17 * 12, "x");
  const Values first(x.begin(), x.begin() + 17 * 12);
  CHECK(sample.run({1, 17, 12}, first).ksvd[0] ==
        Approx(batch.run({1, 17, 12}, first).ksvd[0]).epsilon(1e-5));
  CHECK(std::abs(sample.run({2, 17, 12}, x).ksvd[0] - batch.run({2, 17, 12}, x).ksvd[0]) > 1e-6);
}

TEST_CASE("the trace is of the learned projections, or of the data-dependent ones") {
  const Shape shape{1, 17, 12};
  const Values x = normal_values(shape.count(), "x");
  for (const KsvdConfig::Trace trace : {KsvdConfig::Trace::parameter, KsvdConfig::Trace::data}) {
    TestEncoder model(one_layer(kData), 30, false, {0.1, KsvdConfig::Mean::sample, trace});
    model.set("layers.0.attention.lambda", 0);  // leaves J = -trace
    const Values pe = model.parameter("layers.0.attention.projection_e");
    const Values pr = model.parameter("layers.0.attention.projection_r");
    double expected = 0;
    if (trace == KsvdConfig::Trace::parameter) {
      for (size_t i = 0; i < pe.size(); ++i) expected += pe[i] * pr[i] / 3;
    } else {
      const OpCase rows = cases::sample_rows(shape, 8, {});
      const OpCase project = cases::data_projection(1, 8, 3, 4, 4);
      const Values f = rows.reference({x});
      const Values we = project.reference({f, pe});
      const Values wr = project.reference({f, pr});
      for (size_t i = 0; i < we.size(); ++i) expected += we[i] * wr[i] / 3;
    }
    CHECK(model.run(shape, x).ksvd[0] == Approx(expected * expected).epsilon(1e-4));
  }
}

TEST_CASE("with the right scores alone the keys change the KSVD loss but not the output") {
  for (const std::string scores : {"right", "both"}) {
    INFO(scores);
    TestEncoder model(one_layer("{kind: primal, rank: 4, rank_multi: 2, scores: " + scores + "}"),
                      30);
    const int64_t inputs = scores == "right" ? 4 : 8;
    CHECK(model.parameters.value(model.parameters.find("layers.0.attention.mix.weight")).shape() ==
          Shape{4, inputs});
    const Shape shape{2, 17, 12};
    const Values x = normal_values(shape.count(), "x");
    const auto before = model.run(shape, x);
    model.set("layers.0.attention.key.weight", 0.3F);
    const auto after = model.run(shape, x);
    CHECK((after.output == before.output) == (scores == "right"));
    CHECK(after.ksvd != before.ksvd);
  }
}

TEST_CASE("Primal-Attention is finite at length 4096, with constant and zero inputs too") {
  for (const std::string& kind : {kData, kStatic}) {
    INFO(kind);
    TestEncoder model(one_layer(kind), 4096);
    const Shape shape{1, 4096, 12};
    for (const Values& x : {normal_values(shape.count(), "long"), Values(shape.count(), 0.0),
                            Values(shape.count(), 1e4)}) {
      const auto result = model.run(shape, x);
      CHECK(finite(result.output));
      CHECK(finite(result.ksvd));
    }
  }
}

TEST_CASE("gradients through each kind of attention are finite where inputs are zero") {
  for (const std::string& kind : {kBlockwise, kMaterialized, kData, kStatic}) {
    INFO(kind);
    TestEncoder model(one_layer(kind), 30);
    for (const char* bias : {"query", "key"}) {
      model.set(std::string("layers.0.attention.") + bias + ".bias", 0);  // zero-norm queries, keys
    }
    Tape tape(model.be);
    Context ctx(model.be, model.parameters, tape, Rng(1, 1));
    const Shape shape{2, 9, 12};
    const Var y =
        model.encoder->forward(ctx, {to_device(model.be, shape, Values(shape.count(), 0.0))}, {});
    std::vector<Var> seeded{y};
    std::vector<Tensor> seeds{to_device(model.be, shape, normal_values(shape.count(), "upstream"))};
    for (const Var& loss : ctx.aux.of("ksvd")) {
      seeded.push_back(loss);
      seeds.push_back(to_device(model.be, {1}, {1}));
    }
    tape.backward(seed_gradients(ctx, seeded, seeds));
    CHECK(finite(to_host(model.be, model.parameters.gradients())));
  }
}

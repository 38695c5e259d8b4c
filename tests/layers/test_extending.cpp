// The example of docs/extending.md, compiled as it stands there.
#include "docs/examples/average_attention.cpp"

#include "experiments/uea/task.h"
#include "tests/catch.h"

namespace primal {

TEST_CASE("the attention kind that docs/extending.md adds builds, runs and learns") {
  Backend be = cpu_backend(2);
  ParameterSet parameters;
  AttentionSetup setup;
  setup.dim = 8;
  setup.heads = 2;
  setup.max_length = 5;
  const auto config = make_average_attention();
  CHECK(config->kind() == "average");
  const auto attention = config->build(parameters, "a", setup);
  parameters.allocate(be, 1);
  Tensor x = be.empty({2, 5, 8});
  for (int64_t i = 0; i < x.count(); ++i) x.data()[i] = static_cast<float>(i % 7) - 3;
  Tape tape(be);
  Context ctx(be, parameters, tape, Rng(1, 0));
  const Var y = attention->forward(ctx, {x}, {});
  CHECK(y.shape() == Shape{2, 5, 8});
  const Tensor labels = be.empty({10}, DType::i32);
  std::fill_n(labels.data<int32_t>(), 10, 3);
  tape.backward(ops::cross_entropy(ctx, ops::reshape(ctx, y, {10, 8}), labels).loss);
  for (const ParameterSet::Entry& entry : parameters.entries()) {
    INFO(entry.name);
    const auto gradient = parameters.gradient(parameters.find(entry.name)).floats();
    CHECK(std::ranges::any_of(gradient, [](float g) { return g != 0; }));
  }
}

TEST_CASE(
    "a model with an attention kind of one's own has no published names to be exported under") {
  Backend be = cpu_backend(1);
  UeaConfig config;
  config.data.name = "JapaneseVowels";
  config.model.encoder.dim = 8;
  TaskSetup setup;
  setup.random_data = nlohmann::json::object();
  const auto task = config.make(be, setup);
  CHECK_FALSE(config.pytorch_names(*task).empty());
  config.model.encoder.layers.back().attention = make_average_attention();
  CHECK(config.pytorch_names(*task).empty());
}

}  // namespace primal

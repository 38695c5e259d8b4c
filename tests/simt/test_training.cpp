#include "core/trainer.h"
#include "tests/catch.h"
#include "tests/simt/runner.h"

// Whole training steps on the CUDA kernels, run on the host.

using namespace primal;

namespace {

/// Loss, KSVD loss and gradient norm of the first steps.
std::vector<double> first_steps(Backend backend, const std::string& layers) {
  RunConfig config = load_run_config(ConfigSource::from_string(
      "{task: uea, data: {name: Random}, model: {dim: 24, heads: 3, feedforward: 40, dropout: 0.1, "
      "layers: [" +
          layers + "]}, ksvd: {eta: 0.2}, optimizer: {kind: radam, lr: 2e-3, clip_norm: 4.0}}",
      "steps.yaml"));
  TaskSetup setup;
  setup.seed = 3;
  setup.splits = {"train"};
  setup.random_data = {{"length", 19}, {"channels", 5}, {"classes", 3}, {"cases", 8}};
  const std::unique_ptr<Task> task = config.task->make(backend, setup);
  Optimizer optimizer(*config.optimizer, task->parameters(), backend);
  std::vector<double> figures;
  for (int64_t step = 0; step < 4; ++step) {
    const std::vector<int64_t> examples = epoch_order(setup.seed, step, task->train_size());
    const StepFigures f =
        train_step(backend, *task, optimizer, setup.seed, step, config.optimizer->lr, examples);
    figures.insert(figures.end(), {f.loss, f.ksvd_loss.value_or(0), f.gradient_norm});
  }
  return figures;
}

}  // namespace

TEST_CASE("simt: training steps on the CUDA kernels follow the CPU's") {
  for (const std::string layers :
       {"{attention: canonical}, {attention: {kind: primal, rank: 5, rank_multi: 2}}",
        "{attention: {kind: primal, rank: 4, projection: static}}",
        "{attention: {kind: canonical, implementation: materialized}}, {attention: {kind: primal, "
        "rank: 3, scores: right}}"}) {
    CAPTURE(layers);
    const std::vector<double> expected = first_steps(cpu_backend(1), layers);
    std::vector<double> ascending;
    for (const simt::Order order : {simt::Order::ascending, simt::Order::shuffled}) {
      simt::set_order(order);
      const std::vector<double> figures = first_steps(simt::host_backend(host_memory()), layers);
      for (size_t i = 0; i < expected.size(); ++i)
        CHECK(figures[i] == Approx(expected[i]).epsilon(1e-4));
      if (ascending.empty()) ascending = figures;
      CHECK(figures == ascending);
    }
  }
}

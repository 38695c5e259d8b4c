#include "core/trainer.h"
#include "tests/catch.h"
#include "tests/simt/runner.h"

// Whole training steps on the CUDA kernels, run on the host.

using namespace primal;

namespace {

/// A configuration, and the sizes of its random data.
struct Setting {
  std::string yaml;
  nlohmann::json sizes;
  int64_t parts = 1;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const char* layers :
       {"{attention: canonical}, {attention: {kind: primal, rank: 5, rank_multi: 2}}",
        "{attention: {kind: primal, rank: 4, projection: static}}",
        "{attention: {kind: canonical, implementation: materialized}}, {attention: {kind: primal, "
        "rank: 3, scores: right}}"}) {
    all.push_back({fmt::format("{{task: uea, data: {{name: Random}}, model: {{dim: 24, heads: 3, "
                               "feedforward: 40, layers: [{}]}}, ksvd: {{eta: 0.2}}, optimizer: "
                               "{{kind: radam, lr: 2e-3, clip_norm: 4.0}}}}",
                               layers),
                   {{"length", 19}, {"channels", 5}, {"classes", 3}, {"cases", 8}}});
  }
  for (const auto& [name, padding] : {std::pair{"text", "published"}, {"retrieval", "exact"}}) {
    all.push_back(
        {fmt::format("{{task: lra, data: {{name: {}}}, model: {{dim: 16, heads: 2, feedforward: "
                     "24, head: 8, padding: {}, layers: [{{attention: canonical}}, {{attention: "
                     "{{kind: primal, rank: 3, rank_multi: 4}}}}]}}, ksvd: {{eta: 0.2}}, "
                     "optimizer: {{kind: adamw, lr: 2e-3}}}}",
                     name, padding),
         {{"length", 24}, {"vocabulary", 9}, {"examples", 6}},
         2});
  }
  return all;
}

/// Loss, KSVD loss and gradient norm of the first steps.
std::vector<double> first_steps(Backend backend, const Setting& setting) {
  const RunConfig config = load_run_config(ConfigSource::from_string(setting.yaml, "steps.yaml"));
  TaskSetup setup;
  setup.seed = 3;
  setup.splits = {"train"};
  setup.random_data = setting.sizes;
  const std::unique_ptr<Task> task = config.task->make(backend, setup);
  Optimizer optimizer(*config.optimizer, task->parameters(), backend);
  std::vector<double> figures;
  for (int64_t step = 0; step < 4; ++step) {
    const std::vector<int64_t> examples = epoch_order(setup.seed, step, task->train_size());
    const StepFigures f = train_step(backend, *task, optimizer, setup.seed, step,
                                     config.optimizer->lr, examples, setting.parts);
    figures.insert(figures.end(), {f.loss, f.ksvd_loss.value_or(0), f.gradient_norm});
  }
  return figures;
}

}  // namespace

TEST_CASE("simt: training steps on the CUDA kernels follow the CPU's") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.yaml);
    const std::vector<double> expected = first_steps(cpu_backend(1), setting);
    std::vector<double> ascending;
    for (const simt::Order order : {simt::Order::ascending, simt::Order::shuffled}) {
      simt::set_order(order);
      const std::vector<double> figures = first_steps(simt::host_backend(host_memory()), setting);
      for (size_t i = 0; i < expected.size(); ++i)
        CHECK(figures[i] == Approx(expected[i]).epsilon(1e-4));
      if (ascending.empty()) ascending = figures;
      CHECK(figures == ascending);
    }
  }
}

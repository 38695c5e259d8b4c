#include "core/bench.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/trainer.h"

namespace primal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns when the device has done what was asked of it before; `x` is any of its tensors.
void wait_for(const Backend& backend, const Tensor& x) {
  float value = 0;
  backend.op->download(backend.exec, 1, x.data(), &value);
}

/// GFLOP/s of a product of two 2048 x 2048 matrices: the fastest of several, what the machine can
/// do.
double machine_product_gflops(const Backend& backend) {
  constexpr int64_t kSize = 2048;
  constexpr int kTimes = 6;
  const Tensor a = backend.empty({kSize, kSize});
  const Tensor b = backend.empty({kSize, kSize});
  const Tensor c = backend.empty({kSize, kSize});
  backend.op->fill(backend.exec, a.count(), 0.5F, a.data());
  backend.op->fill(backend.exec, b.count(), 0.25F, b.data());
  const GemmArgs args =
      product(kSize, kSize, kSize, {a.data(), kSize}, {b.data(), kSize}, c.data(), kSize);
  double fastest = 0;
  wait_for(backend, b);
  for (int i = 0; i < kTimes; ++i) {
    const auto start = Clock::now();
    backend.op->gemm(backend.exec, args);
    wait_for(backend, c);
    fastest = std::max(fastest, 2.0 * kSize * kSize * kSize / seconds_since(start) / 1e9);
  }
  return fastest;
}

}  // namespace

nlohmann::ordered_json bench_steps(Backend& backend, Task& task, const RunConfig& config,
                                   const BenchOptions& options) {
  if (options.steps < 1) fail("bench: at least one step is needed, got {}", options.steps);
  Optimizer optimizer(*config.optimizer, task.parameters(), backend);
  const auto seed = static_cast<uint64_t>(config.seed);
  const int64_t size = task.train_size();
  const int64_t batch = std::min(config.train.batch, size);
  const auto order = task.train_order(seed, 0, batch);
  std::vector<int64_t> examples(static_cast<size_t>(batch));
  int64_t next = 0;
  const auto step = [&](int64_t number) {
    for (int64_t& example : examples) example = order[static_cast<size_t>(next++ % size)];
    train_step(backend, task, optimizer, seed, number, config.optimizer->lr, examples,
               config.train.accumulate);
    wait_for(backend, task.parameters().values());
  };
  for (int64_t i = 0; i < options.warmup; ++i) step(i);

  ProductMeter meter(backend.exec.threads);
  backend.exec.meter = &meter;
  backend.memory->reset_peak();
  std::vector<double> ms;
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = Clock::now();
    step(options.warmup + i);
    ms.push_back(seconds_since(start) * 1e3);
  }
  backend.exec.meter = nullptr;
  const MemoryFigures memory = backend.memory->figures();
  const int64_t process_peak = process_memory().peak_resident;

  const double total_ms = std::accumulate(ms.begin(), ms.end(), 0.0);
  const double product_seconds = meter.thread_seconds() / backend.exec.threads;
  nlohmann::ordered_json report{
      {"step_ms",
       {{"median", median(ms)},
        {"min", *std::ranges::min_element(ms)},
        {"max", *std::ranges::max_element(ms)},
        {"mean", total_ms / static_cast<double>(ms.size())}}},
      {"samples_per_s", static_cast<double>(batch) / median(ms) * 1e3},
      {"peak_allocated_bytes", memory.peak_allocated},
      {"peak_reserved_bytes", memory.peak_reserved},
      {"peak_process_bytes", process_peak},
      {"product_share", product_seconds * 1e3 / total_ms},
      {"product_gflops", product_seconds > 0 ? meter.operations() / product_seconds / 1e9 : 0.0}};
  backend.memory->release_cached();
  report["machine_product_gflops"] = machine_product_gflops(backend);
  int64_t parameters = 0;
  for (const auto& entry : task.parameters().entries()) parameters += entry.shape.count();
  report["steps"] = options.steps;
  report["warmup"] = options.warmup;
  report["batch"] = batch;
  report["threads"] = backend.exec.threads;
  report["parameters"] = parameters;
  report["timing"] = "steady clock around each whole update, which the host waits for";
  return report;
}

}  // namespace primal

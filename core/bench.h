#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/run_config.h"

namespace primal {

struct BenchOptions {
  int64_t steps = 20;  ///< timed updates
  int64_t warmup = 5;  ///< updates before them, which are not counted
};

/// Times training updates, the same train_step() that the trainer takes, always of whole batches:
///
/// {"step_ms": {"median", "min", "max", "mean"}, "samples_per_s" (of the median),
///  "peak_allocated_bytes", "peak_reserved_bytes" (since the warm-up), "peak_process_bytes" (since
///  the process started), "product_share" (thread-seconds in matrix products / (threads *
///  seconds)), "product_gflops" (over all threads, while in products), "machine_product_gflops" (a
///  product of 2048 x 2048 matrices by the same kernel and threads, timed last), "steps", "warmup",
///  "batch", "threads", "parameters", "timing"}
nlohmann::ordered_json bench_steps(Backend& backend, Task& task, const RunConfig& config,
                                   const BenchOptions& options);

}  // namespace primal

#pragma once

#include "kernels/exec.h"

namespace primal::cpu {

/// Runs one task, always by the same machine code: inlined into a serial and a parallel loop, it
/// might be vectorised in two ways that round differently.
template <class F>
#if defined(__GNUC__) && !defined(__clang__)
[[gnu::noipa]]
#else
[[gnu::noinline]]
#endif
void run_task(F& f, int64_t i) {
  f(i);
}

/// Calls f(i) for i in [0, n), in any order, on up to exec.threads threads. f must not throw.
/// Inside of a parallel region it runs on the calling thread.
template <class F>
void parallel_for(const Exec& exec, int64_t n, F&& f) {
#ifdef _OPENMP
  if (exec.threads > 1 && n > 1 && !omp_in_parallel()) {
#pragma omp parallel for num_threads(exec.threads) schedule(dynamic)
    for (int64_t i = 0; i < n; ++i) run_task(f, i);
    return;
  }
#endif
  (void)exec;
  for (int64_t i = 0; i < n; ++i) run_task(f, i);
}

}  // namespace primal::cpu

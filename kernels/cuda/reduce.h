#pragma once

#include "kernels/simt.h"

// Sums in a fixed order: a butterfly within the warp, then the warps one after the other.

namespace primal::PRIMAL_DEVICE {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of a block, where nothing else is said

/// The sum over `width` neighbouring lanes, in each of them.
template <class T>
__device__ T warp_sum(T value, int width = kWarp) {
  for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__device__ inline float warp_max(float value, int width = kWarp) {
  for (int step = width / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

/// Shared memory that block_total() takes.
constexpr std::size_t kTotalBytes = kThreads / kWarp * sizeof(double);

/// The sum of f(i) over [0, n), shared out among the threads of a block, in each of them. All
/// threads call it.
template <class F>
__device__ double block_total(int64_t n, const F& f) {
  SharedMemory shared;
  double* warps = shared.array<double>(kThreads / kWarp);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += f(i);
  sum = warp_sum(sum);
  __syncthreads();  // an earlier use of `warps` is over
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += warps[w];
  return sum;
}

}  // namespace primal::PRIMAL_DEVICE

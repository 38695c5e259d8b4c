#pragma once

#include "kernels/simt.h"

// Sums in a fixed order: a butterfly within the warp, then the warps one after the other.

namespace primal::PRIMAL_DEVICE {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kWarp = 32;

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

/// The sum over the block, in every thread. All threads call it; `warps` holds a T per warp.
template <class T>
__device__ T block_sum(T value, T* warps) {
  value = warp_sum(value);
  __syncthreads();  // an earlier use of `warps` is over
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) sum += warps[w];
  return sum;
}

}  // namespace primal::PRIMAL_DEVICE

#pragma once

#include <stdexcept>
#include <string>

#include "kernels/cuda/dropout.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

namespace primal::PRIMAL_DEVICE {

__device__ inline int64_t thread_in_grid() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

inline int64_t blocks_of(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

/// A number of blocks as a grid takes it. Throws when there are more than a grid can have.
inline unsigned grid_of(int64_t blocks) {
  if (blocks > 0x7FFFFFFF) {
    throw std::runtime_error("[cuda] " + std::to_string(blocks) +
                             " blocks are more than a grid can have; lower train.batch");
  }
  return static_cast<unsigned>(blocks);
}

template <class F>
__global__ void each_kernel(int64_t n, F f) {
  const int64_t i = thread_in_grid();
  if (i < n) f(i);
}

/// f(i) for i in [0, n), a thread each: neighbours read neighbours.
template <class F>
void each(const Exec& exec, int64_t n, const F& f) {
  launch<each_kernel<F>>(exec, grid_of(blocks_of(n, kThreads)), kThreads, 0, n, f);
}

// One Philox call gives the masks of eight elements, so that a thread takes eight, 16 apart; 16
// threads together take 128 neighbours.
template <class F>
__global__ void each_masked_kernel(int64_t n, Dropout d, F f) {
  const int64_t counter = thread_in_grid();
  const int64_t first = first_element(counter);
  if (first >= n) return;
  float factors[kMaskElements] = {1, 1, 1, 1, 1, 1, 1, 1};
  if (drops(d)) dropout_factors(d, counter, factors);
#pragma unroll
  for (int k = 0; k < kMaskElements; ++k) {
    const int64_t i = first + k * kMaskStride;
    if (i < n) f(i, factors[k]);
  }
}

/// f(i, mask factor of i) for i in [0, n).
template <class F>
void each_masked(const Exec& exec, int64_t n, const Dropout& d, const F& f) {
  launch<each_masked_kernel<F>>(exec, grid_of(blocks_of(n, int64_t{kThreads} * kMaskElements)),
                                kThreads, 0, n, d, f);
}

/// out = value, or out += value.
__device__ inline void put(float* out, float value, bool accumulate) {
  *out = accumulate ? *out + value : value;
}

}  // namespace primal::PRIMAL_DEVICE

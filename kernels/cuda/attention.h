#pragma once

#include "kernels/cuda/each.h"

// What the kernels of canonical attention share.

namespace primal::PRIMAL_DEVICE {

/// One head of one sample.
struct Head {
  int64_t offset;   // of its first element in (batch, length, heads * head_width)
  int64_t row;      // of its first query in (batch, heads, length)
  int64_t keys;     // that are seen
  int64_t queries;  // that see them; the others' outputs are 0
};

__device__ inline Head head_of(const AttentionArgs& a, int64_t item) {
  const int64_t b = item / a.heads;
  const int64_t keys = a.lengths != nullptr ? a.lengths[b] : a.length;
  return {b * a.length * a.heads * a.head_width + item % a.heads * a.head_width, item * a.length,
          keys, a.all_queries && keys > 0 ? a.length : keys};
}

/// The head and first row of the tile that this block works on.
template <class S>
struct Tile {
  Head head;
  int64_t first;
  __device__ explicit Tile(const AttentionArgs& a) {
    const int64_t tiles = (a.length + S::kTile - 1) / S::kTile;
    head = head_of(a, blockIdx.x / tiles);
    first = blockIdx.x % tiles * S::kTile;
  }
};

/// Where the keys end that a tile of queries sees.
template <class S>
__device__ int64_t keys_end(const AttentionArgs& a, const Head& head, int64_t first) {
  if (first >= head.queries) return 0;
  return a.causal && first + S::kTile < head.keys ? first + S::kTile : head.keys;
}

__device__ inline bool sees(const AttentionArgs& a, const Head& head, int64_t query, int64_t key) {
  return query < head.queries && key < head.keys && (!a.causal || key <= query);
}

/// Counter and word of the mask that holds an element of query row `row` (of all heads), key `key`:
/// rows of the mask begin on blocks of 128, in which a counter serves every sixteenth element.
__device__ inline uint64_t mask_counter(const AttentionArgs& a, int64_t row, int64_t key) {
  constexpr int64_t kBlock = kMaskElements * kMaskStride;
  const int64_t blocks = (a.length + kBlock - 1) / kBlock;
  return static_cast<uint64_t>((row * blocks + key / kBlock) * kMaskStride + key % kMaskStride);
}

template <class S>
unsigned tile_count(const AttentionArgs& a) {
  return grid_of(a.batch * a.heads * blocks_of(a.length, S::kTile));
}

// The blockwise form on tensor cores (attention_bf16.cu), for heads up to 128 wide. `products` is
// (batch, heads, length): <dout, out> per query.
void attention_bf16(const Exec& exec, const AttentionArgs& a, const float* q, const float* k,
                    const float* v, float* out, float* log_sum);
void attention_bf16_backward(const Exec& exec, const AttentionArgs& a, const AttentionGradients& g,
                             const float* products);

}  // namespace primal::PRIMAL_DEVICE

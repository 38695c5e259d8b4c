#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.h"

// Blockwise attention in tiles (see attention.cu) on tensor cores: operands and probabilities are
// rounded to bfloat16 on their way in, scores, softmax and sums are float32.
//
// A block is four warps. A warp has 16 rows of the tile, of which lane (g, t) = (lane / 4, lane %
// 4) has rows g and g + 8, and of these columns 8 n + 2 t and 8 n + 2 t + 1 (kernels/cuda/mma.h),
// so that shuffles over four lanes reduce over a row.

namespace primal::PRIMAL_DEVICE {
namespace {

constexpr int kWarps = 4;
constexpr int kBlock = kWarps * kWarp;

/// Sizes for heads up to `Width` wide. Operands are kept as words of two bfloat16.
template <int Width>
struct Sizes {
  static constexpr int kWidth = Width;
  static constexpr int kTile = 16 * kWarps;         // queries, or keys
  static constexpr int kParts = kTile / 8;          // of a row of scores, 8 columns each
  static constexpr int kColumns = Width / 8;        // of a row of the head, likewise
  static constexpr int kStride = Width / 2 + 4;     // four more: rows begin in different banks
  static constexpr int kOperand = kTile * kStride;  // words
  static constexpr int kBackQueries = Width > 32 ? 32 : kTile;  // beside dK and dV in registers
};

__device__ int lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
/// The first row of the tile that the warp has.
__device__ int warp_row() {
  return static_cast<int>(threadIdx.x) / kWarp * 16;
}
/// Row of the tile of element i of a part: g or g + 8.
__device__ int row_of(int i) {
  return warp_row() + lane() / 4 + i / 2 * 8;
}
/// Column of element i of part n: 8 n + 2 t or 8 n + 2 t + 1.
__device__ int column_of(int n, int i) {
  return 8 * n + lane() % 4 * 2 + i % 2;
}

/// tile (rows, stride) = rows [first, first + rows) of the head; zeros beyond its width and beyond
/// `end`.
template <class S>
__device__ void load(const AttentionArgs& a, const Head& head, const float* x, int64_t first,
                     int rows, int64_t end, uint32_t* tile) {
  constexpr int kWords = S::kWidth / 2;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kWords; i += kBlock) {
    const int row = i / kWords;
    const int column = i % kWords * 2;
    const float* from = x + head.offset + (first + row) * a.heads * a.head_width + column;
    const bool real = first + row < end;
    const float low = real && column < a.head_width ? from[0] : 0.0F;
    const float high = real && column + 1 < a.head_width ? from[1] : 0.0F;
    tile[row * S::kStride + column / 2] = pack_bf16(low, high);
  }
}

/// products = <row of a, row of b>: 16 rows from `a` on, 8 Parts from `b` on.
template <class S, int Parts>
__device__ void multiply_rows(const uint32_t* a, const uint32_t* b, float (&products)[Parts][4]) {
#pragma unroll
  for (int n = 0; n < Parts; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) products[n][i] = 0;
  }
#pragma unroll 1  // addresses of all steps at once would not leave enough registers
  for (int k = 0; k < S::kWidth / 2; k += 8) {
    uint32_t left[4];
    load_matrices(left, a + lane() % 16 * S::kStride + k + lane() / 16 * 4);
#pragma unroll
    for (int n = 0; n < Parts; n += 2) {
      uint32_t right[4];
      load_matrices(
          right, b + (8 * n + lane() % 8 + lane() / 16 * 8) * S::kStride + k + lane() / 8 % 2 * 4);
      multiply_add(products[n], left, right[0], right[1]);
      multiply_add(products[n + 1], left, right[2], right[3]);
    }
  }
}

/// sums += weights x: weights (16, 8 Parts), x (8 Parts rows, width).
template <class S, int Parts>
__device__ void add_products(const float (&weights)[Parts][4], const uint32_t* x,
                             float (&sums)[S::kColumns][4]) {
#pragma unroll
  for (int n = 0; n < Parts; n += 2) {
    // What a product left in the lanes is what the next one takes from them.
    const uint32_t left[4] = {pack_bf16(weights[n][0], weights[n][1]),
                              pack_bf16(weights[n][2], weights[n][3]),
                              pack_bf16(weights[n + 1][0], weights[n + 1][1]),
                              pack_bf16(weights[n + 1][2], weights[n + 1][3])};
#pragma unroll
    for (int c = 0; c < S::kColumns; c += 2) {
      uint32_t right[4];
      load_transposed(right, x + (8 * n + lane() % 16) * S::kStride + 4 * c + lane() / 16 * 4);
      multiply_add(sums[c], left, right[0], right[1]);
      multiply_add(sums[c + 1], left, right[2], right[3]);
    }
  }
}

/// Writes the warp's rows of [first, end) of the head: factor * sums.
template <class S>
__device__ void put_rows(const AttentionArgs& a, const Head& head, int64_t first, int64_t end,
                         float factor, const float (&sums)[S::kColumns][4], float* out) {
#pragma unroll
  for (int c = 0; c < S::kColumns; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first + row_of(i);
      if (row < end && column_of(c, i) < a.head_width) {
        out[head.offset + row * a.heads * a.head_width + column_of(c, i)] = factor * sums[c][i];
      }
    }
  }
}

// The mask of a tile of queries against 128 keys: bit k of byte r of a query is that of key
// r + 16 k, so that each byte comes from one Philox call.
constexpr int64_t kMaskKeys = kMaskElements * kMaskStride;
constexpr int kMaskWords = kMaskStride / 4;  // of a query

template <class S>
__device__ void load_mask(const AttentionArgs& a, const Head& head, int64_t query, int queries,
                          int64_t key, uint32_t* mask) {
  for (int i = static_cast<int>(threadIdx.x); i < queries * kMaskWords; i += kBlock) {
    uint32_t word = 0;
    for (int r = 0; r < 4; ++r) {
      uint32_t random[4];
      philox_words(a.dropout,
                   mask_counter(a, head.row + query + i / kMaskWords,
                                key / kMaskKeys * kMaskKeys + i % kMaskWords * 4 + r),
                   random);
#pragma unroll
      for (int k = 0; k < kMaskElements; ++k) {
        const uint32_t half = k % 2 == 0 ? random[k / 2] & 0xFFFF : random[k / 2] >> 16;
        if (half < a.dropout.keep_below) word |= 1U << (8 * r + k);
      }
    }
    mask[i] = word;
  }
}

__device__ float mask_factor(const AttentionArgs& a, const uint32_t* mask, int query, int64_t key) {
  if (!drops(a.dropout)) return 1;
  const int at = static_cast<int>(key % kMaskKeys);
  const uint32_t word = mask[query * kMaskWords + at % kMaskStride / 4];
  return (word >> (at % 4 * 8 + at / kMaskStride) & 1) != 0 ? a.dropout.scale : 0.0F;
}

template <class S>
__global__ void __launch_bounds__(kBlock)
    attention_bf16_kernel(AttentionArgs a, const float* q, const float* k, const float* v,
                          float* out, float* log_sum) {
  SharedMemory shared;
  auto* queries = shared.array<uint32_t>(S::kOperand);
  auto* keys = shared.array<uint32_t>(S::kOperand);
  auto* values = shared.array<uint32_t>(S::kOperand);
  auto* mask = shared.array<uint32_t>(S::kTile * kMaskWords);
  const auto [head, first] = Tile<S>(a);

  float sums[S::kColumns][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};  // of rows g, g + 8
  float total[2] = {};
  load<S>(a, head, q, first, S::kTile, head.queries, queries);
  const int64_t end = keys_end<S>(a, head, first);
  for (int64_t key = 0; key < end; key += S::kTile) {
    __syncthreads();  // the tile before is used up
    load<S>(a, head, k, key, S::kTile, head.keys, keys);
    load<S>(a, head, v, key, S::kTile, head.keys, values);
    if (drops(a.dropout) && key % kMaskKeys == 0) {
      load_mask<S>(a, head, first, S::kTile, key, mask);
    }
    __syncthreads();
    float scores[S::kParts][4];
    multiply_rows<S>(queries + warp_row() * S::kStride, keys, scores);
    float top[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int n = 0; n < S::kParts; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = sees(a, head, first + row_of(i), key + column_of(n, i))
                           ? scores[n][i] * a.scale
                           : -INFINITY;
        top[i / 2] = fmaxf(top[i / 2], scores[n][i]);
      }
    }
    float shift[2];
    float correction[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = warp_max(top[r], 4);
      // A padded query sees nothing; its numbers are never written.
      shift[r] = top[r] == -INFINITY ? 0.0F : top[r];
      correction[r] = expf(maximum[r] - shift[r]);
      maximum[r] = top[r];
    }
    float sum[2] = {};
#pragma unroll
    for (int n = 0; n < S::kParts; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = expf(scores[n][i] - shift[i / 2]);
        sum[i / 2] += p;
        scores[n][i] = p * mask_factor(a, mask, row_of(i), key + column_of(n, i));
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) total[r] = total[r] * correction[r] + warp_sum(sum[r], 4);
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[c][i] *= correction[i / 2];
    }
    add_products<S>(scores, values, sums);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t query = first + row_of(i);
    const bool real = query < head.queries;
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) sums[c][i] = real ? sums[c][i] / total[i / 2] : 0.0F;
    if (i % 2 == 0 && lane() % 4 == 0 && query < a.length) {
      log_sum[head.row + query] = real ? maximum[i / 2] + logf(total[i / 2]) : 0.0F;
    }
  }
  put_rows<S>(a, head, first, a.length, 1, sums, out);
}

/// A query's part in the gradient of its scores.
struct Query {
  bool real;
  float log_sum, product;
  __device__ Query(const Head& head, int64_t query, const float* log_sums, const float* products)
      : real(query < head.queries),
        log_sum(real ? log_sums[head.row + query] : 0.0F),
        product(real ? products[head.row + query] : 0.0F) {}
};

/// Of a score and its dP: P = exp(S - log_sum), mask * P and dS = P * (mask * dP - product).
__device__ void score_gradient(const AttentionArgs& a, const Query& query, bool seen, float factor,
                               float& score, float& gradient) {
  const float p = seen ? expf(score * a.scale - query.log_sum) : 0.0F;
  score = p * factor;
  gradient = p * (factor * gradient - query.product);
}

// dQ = scale dS K of a tile of queries, over the tiles of keys that it sees.
template <class S>
__global__ void __launch_bounds__(kBlock)
    attention_queries_bf16_kernel(AttentionArgs a, AttentionGradients g, const float* products) {
  SharedMemory shared;
  auto* queries = shared.array<uint32_t>(S::kOperand);
  auto* douts = shared.array<uint32_t>(S::kOperand);
  auto* keys = shared.array<uint32_t>(S::kOperand);
  auto* values = shared.array<uint32_t>(S::kOperand);
  auto* mask = shared.array<uint32_t>(S::kTile * kMaskWords);
  const auto [head, first] = Tile<S>(a);
  load<S>(a, head, g.q, first, S::kTile, head.queries, queries);
  load<S>(a, head, g.dout, first, S::kTile, head.queries, douts);
  const Query rows[2] = {Query(head, first + row_of(0), g.log_sum, products),
                         Query(head, first + row_of(2), g.log_sum, products)};
  float dq[S::kColumns][4] = {};
  const int64_t end = keys_end<S>(a, head, first);
  for (int64_t key = 0; key < end; key += S::kTile) {
    __syncthreads();
    load<S>(a, head, g.k, key, S::kTile, head.keys, keys);
    load<S>(a, head, g.v, key, S::kTile, head.keys, values);
    if (drops(a.dropout) && key % kMaskKeys == 0) {
      load_mask<S>(a, head, first, S::kTile, key, mask);
    }
    __syncthreads();
    float scores[S::kParts][4];
    float gradients[S::kParts][4];
    multiply_rows<S>(queries + warp_row() * S::kStride, keys, scores);
    multiply_rows<S>(douts + warp_row() * S::kStride, values, gradients);
#pragma unroll
    for (int n = 0; n < S::kParts; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t column = key + column_of(n, i);
        score_gradient(a, rows[i / 2], sees(a, head, first + row_of(i), column),
                       mask_factor(a, mask, row_of(i), column), scores[n][i], gradients[n][i]);
      }
    }
    add_products<S>(gradients, keys, dq);
  }
  put_rows<S>(a, head, first, a.length, a.scale, dq, g.dq);
}

// dV = (mask P)^T dO and dK = scale dS^T Q of a tile of keys, over the tiles of queries that see
// it. Scores are transposed: a row is a key.
template <class S>
__global__ void __launch_bounds__(kBlock)
    attention_keys_bf16_kernel(AttentionArgs a, AttentionGradients g, const float* products) {
  constexpr int kQueries = S::kBackQueries;
  SharedMemory shared;
  auto* keys = shared.array<uint32_t>(S::kOperand);
  auto* values = shared.array<uint32_t>(S::kOperand);
  auto* queries = shared.array<uint32_t>(kQueries * S::kStride);
  auto* douts = shared.array<uint32_t>(kQueries * S::kStride);
  auto* mask = shared.array<uint32_t>(kQueries * kMaskWords);
  const auto [head, first] = Tile<S>(a);
  load<S>(a, head, g.k, first, S::kTile, head.keys, keys);
  load<S>(a, head, g.v, first, S::kTile, head.keys, values);
  float dk[S::kColumns][4] = {};
  float dv[S::kColumns][4] = {};
  const int64_t end = first < head.keys ? head.queries : 0;
  for (int64_t query = a.causal ? first : 0; query < end; query += kQueries) {
    __syncthreads();
    load<S>(a, head, g.q, query, kQueries, head.queries, queries);
    load<S>(a, head, g.dout, query, kQueries, head.queries, douts);
    if (drops(a.dropout)) load_mask<S>(a, head, query, kQueries, first, mask);
    __syncthreads();
    float scores[kQueries / 8][4];
    float gradients[kQueries / 8][4];
    multiply_rows<S>(keys + warp_row() * S::kStride, queries, scores);
    multiply_rows<S>(values + warp_row() * S::kStride, douts, gradients);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = column_of(n, i);
        const int64_t key = first + row_of(i);
        score_gradient(a, Query(head, query + column, g.log_sum, products),
                       sees(a, head, query + column, key), mask_factor(a, mask, column, key),
                       scores[n][i], gradients[n][i]);
      }
    }
    add_products<S>(scores, douts, dv);
    add_products<S>(gradients, queries, dk);
  }
  put_rows<S>(a, head, first, a.length, a.scale, dk, g.dk);
  put_rows<S>(a, head, first, a.length, 1, dv, g.dv);
}

/// Calls f with the sizes that fit the heads.
template <class F>
void with_sizes(const AttentionArgs& a, F&& f) {
  if (a.head_width <= 32) return f(Sizes<32>{});
  if (a.head_width <= 64) return f(Sizes<64>{});
  return f(Sizes<128>{});
}

/// Bytes of `operands` tiles and a mask.
template <class S>
constexpr std::size_t shared_bytes_of(int operands) {
  return static_cast<std::size_t>(operands * S::kOperand + S::kTile * kMaskWords) *
         sizeof(uint32_t);
}

}  // namespace

void attention_bf16(const Exec& exec, const AttentionArgs& a, const float* q, const float* k,
                    const float* v, float* out, float* log_sum) {
  with_sizes(a, [&]<class S>(S) {
    launch<attention_bf16_kernel<S>>(exec, tile_count<S>(a), kBlock, shared_bytes_of<S>(3), a, q, k,
                                     v, out, log_sum);
  });
}

void attention_bf16_backward(const Exec& exec, const AttentionArgs& a, const AttentionGradients& g,
                             const float* products) {
  with_sizes(a, [&]<class S>(S) {
    launch<attention_keys_bf16_kernel<S>>(exec, tile_count<S>(a), kBlock, shared_bytes_of<S>(4), a,
                                          g, products);
    launch<attention_queries_bf16_kernel<S>>(exec, tile_count<S>(a), kBlock, shared_bytes_of<S>(4),
                                             a, g, products);
  });
}

}  // namespace primal::PRIMAL_DEVICE

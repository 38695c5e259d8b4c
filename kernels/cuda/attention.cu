#include "kernels/cuda/attention.h"

// Canonical softmax attention in tiles: the scores of a tile of queries against a tile of keys live
// in registers and shared memory, never in device memory. The softmax is carried from key tile to
// key tile by a running maximum and sum (Milakov and Gimelshein, 2018; Dao et al., 2022). Forward
// keeps log(sum exp) per query, from which backward computes the probabilities again. Backward runs
// once over tiles of keys, for dK and dV, and once over tiles of queries, for dQ: no two blocks add
// to one number.
//
// A block is 16 x 16 threads. Thread (x, y) has the tile's rows y R .. y R + R - 1 and its columns
// x, x + 16, ...: the 16 threads of a row are half a warp, so that shuffles reduce over a row.

namespace primal::PRIMAL_DEVICE {
namespace {

constexpr int kSide = 16;

/// Sizes for heads up to `Width` wide, in tiles of `Tile` queries or keys.
template <int Width, int Tile>
struct Sizes {
  static constexpr int kWidth = Width;
  static constexpr int kTile = Tile;
  static constexpr int kRows = Tile / kSide;      // of the tile, per thread; as many columns
  static constexpr int kColumns = Width / kSide;  // of the head, per thread
  // Four more than a power of two: rows begin in different banks, and stay aligned for float4.
  static constexpr int kStride = Width + 4;
  static constexpr int kScoreStride = Tile + 4;
  static constexpr int kOperand = Tile * kStride;
  static constexpr int kScores = Tile * kScoreStride;
};

__device__ int tx() {
  return static_cast<int>(threadIdx.x) % kSide;
}
__device__ int ty() {
  return static_cast<int>(threadIdx.x) / kSide;
}

/// tile (Tile, stride) = rows [first, first + Tile) of the head; zeros beyond its width and beyond
/// `end`.
template <class S>
__device__ void load(const AttentionArgs& a, const Head& head, const float* x, int64_t first,
                     int64_t end, float* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < S::kTile * S::kWidth; i += kThreads) {
    const int row = i / S::kWidth;
    const int column = i % S::kWidth;
    const bool real = first + row < end && column < a.head_width;
    tile[row * S::kStride + column] =
        real ? x[head.offset + (first + row) * a.heads * a.head_width + column] : 0.0F;
  }
}

/// products[i][j] = <row y R + i of a, row x + 16 j of b>.
template <class S>
__device__ void multiply_rows(const float* a, const float* b,
                              float (&products)[S::kRows][S::kRows]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < S::kRows; ++j) products[i][j] = 0;
  }
  for (int k = 0; k < S::kWidth; k += 4) {
    float4 left[S::kRows];
    float4 right[S::kRows];
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      left[i] = *reinterpret_cast<const float4*>(a + (ty() * S::kRows + i) * S::kStride + k);
      right[i] = *reinterpret_cast<const float4*>(b + (tx() + kSide * i) * S::kStride + k);
    }
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < S::kRows; ++j) {
        products[i][j] += left[i].x * right[j].x + left[i].y * right[j].y + left[i].z * right[j].z +
                          left[i].w * right[j].w;
      }
    }
  }
}

/// sums[i][c] += sum over k of weights(y R + i, k) * x(k, column x + 16 c), where weights (Tile,
/// Tile) may be read transposed.
template <class S, bool transposed>
__device__ void add_products(const float* weights, const float* x,
                             float (&sums)[S::kRows][S::kColumns]) {
  for (int k = 0; k < S::kTile; ++k) {
    float values[S::kColumns];
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) values[c] = x[k * S::kStride + tx() + kSide * c];
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      const int row = ty() * S::kRows + i;
      const float weight =
          weights[transposed ? k * S::kScoreStride + row : row * S::kScoreStride + k];
#pragma unroll
      for (int c = 0; c < S::kColumns; ++c) sums[i][c] += weight * values[c];
    }
  }
}

/// Writes a thread's part of a tile of scores to shared memory.
template <class S>
__device__ void put_scores(const float (&scores)[S::kRows][S::kRows], float* tile) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < S::kRows; ++j)
      tile[(ty() * S::kRows + i) * S::kScoreStride + tx() + kSide * j] = scores[i][j];
  }
}

/// Writes rows [first, end) of the head: factor * sums.
template <class S>
__device__ void put_rows(const AttentionArgs& a, const Head& head, int64_t first, int64_t end,
                         float factor, const float (&sums)[S::kRows][S::kColumns], float* out) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int64_t row = first + ty() * S::kRows + i;
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) {
      const int column = tx() + kSide * c;
      if (row < end && column < a.head_width) {
        out[head.offset + row * a.heads * a.head_width + column] = factor * sums[i][c];
      }
    }
  }
}

/// Mask factors of query row `row` (of all heads) for keys first + x + 16 j, j < Rows. One Philox
/// call serves them: rows of the mask begin on blocks of 128, in which it serves every sixteenth
/// element. `first` is a multiple of 16 Rows, which divides 128.
template <int Rows>
__device__ void mask_row(const AttentionArgs& a, int64_t row, int64_t first,
                         float (&factors)[Rows]) {
  uint32_t words[4];
  philox_words(a.dropout, mask_counter(a, row, first + tx()), words);
  const int begin =
      static_cast<int>(first % (kMaskElements * kMaskStride)) / kMaskStride;  // even, as Rows is
#pragma unroll
  for (int j = 0; j < Rows; ++j) {  // selected: an indexed array would leave the registers
    const int k = begin + j;
    const uint32_t low = k < 4 ? (k < 2 ? words[0] : words[1]) : (k < 6 ? words[2] : words[3]);
    factors[j] =
        (j % 2 == 0 ? low & 0xFFFF : low >> 16) < a.dropout.keep_below ? a.dropout.scale : 0.0F;
  }
}

// Reads q, and k and v once per tile of queries; writes out and log_sum. 4 N^2 d operations per
// head.
template <class S>
__global__ void __launch_bounds__(kThreads, 2)
    attention_kernel(AttentionArgs a, const float* q, const float* k, const float* v, float* out,
                     float* log_sum) {
  SharedMemory shared;
  float* queries = shared.array<float>(S::kOperand);
  float* keys = shared.array<float>(S::kOperand);  // then the values of the same positions
  float* weights = shared.array<float>(S::kScores);
  const auto [head, first] = Tile<S>(a);

  float sums[S::kRows][S::kColumns] = {};
  float maximum[S::kRows];
  float total[S::kRows];
  for (int i = 0; i < S::kRows; ++i) {
    maximum[i] = -INFINITY;
    total[i] = 0;
  }
  load<S>(a, head, q, first, head.queries, queries);
  const int64_t end = keys_end<S>(a, head, first);
  for (int64_t key = 0; key < end; key += S::kTile) {
    __syncthreads();  // the tile before is used up
    load<S>(a, head, k, key, head.keys, keys);
    __syncthreads();
    float scores[S::kRows][S::kRows];
    multiply_rows<S>(queries, keys, scores);
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      const int64_t query = first + ty() * S::kRows + i;
      float top = maximum[i];
#pragma unroll
      for (int j = 0; j < S::kRows; ++j) {
        scores[i][j] =
            sees(a, head, query, key + tx() + kSide * j) ? scores[i][j] * a.scale : -INFINITY;
        top = fmaxf(top, scores[i][j]);
      }
      top = warp_max(top, kSide);
      // A padded query sees nothing; its numbers are never written.
      const float shift = top == -INFINITY ? 0.0F : top;
      const float correction = expf(maximum[i] - shift);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < S::kRows; ++j) {
        scores[i][j] = expf(scores[i][j] - shift);
        sum += scores[i][j];
      }
      total[i] = total[i] * correction + warp_sum(sum, kSide);
      maximum[i] = top;
#pragma unroll
      for (int c = 0; c < S::kColumns; ++c) sums[i][c] *= correction;
      if (drops(a.dropout)) {
        float factors[S::kRows];
        mask_row(a, head.row + query, key, factors);
#pragma unroll
        for (int j = 0; j < S::kRows; ++j) scores[i][j] *= factors[j];
      }
    }
    put_scores<S>(scores, weights);
    __syncthreads();  // the scores are written, the keys used up
    load<S>(a, head, v, key, head.keys, keys);
    __syncthreads();
    add_products<S, false>(weights, keys, sums);
  }
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int64_t query = first + ty() * S::kRows + i;
    const bool real = query < head.queries;
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) sums[i][c] = real ? sums[i][c] / total[i] : 0.0F;
    if (tx() == 0 && query < a.length)
      log_sum[head.row + query] = real ? maximum[i] + logf(total[i]) : 0.0F;
  }
  put_rows<S>(a, head, first, a.length, 1, sums, out);
}

/// products (batch, heads, length) = <dout, out> per query: what the softmax's gradient subtracts.
/// A warp per query.
__global__ void output_products_kernel(AttentionArgs a, const float* out, const float* dout,
                                       float* products) {
  const int64_t row = thread_in_grid() / kWarp;
  if (row >= a.batch * a.heads * a.length) return;
  const int64_t at = head_of(a, row / a.length).offset + row % a.length * a.heads * a.head_width;
  float sum = 0;
  for (int64_t c = threadIdx.x % kWarp; c < a.head_width; c += kWarp)
    sum += out[at + c] * dout[at + c];
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) products[row] = sum;
}

/// The four operands of a tile of queries against a tile of keys, and room for its scores.
template <class S>
struct Tiles {
  float* q;
  float* dout;
  float* k;
  float* v;
  float* weights;
  __device__ explicit Tiles(SharedMemory& shared)
      : q(shared.array<float>(S::kOperand)),
        dout(shared.array<float>(S::kOperand)),
        k(shared.array<float>(S::kOperand)),
        v(shared.array<float>(S::kOperand)),
        weights(shared.array<float>(S::kScores)) {}
};

/// P = exp(S - log_sum); `dropped` is mask * P and `gradient` is dS = P * (mask * dout v^T - <dout,
/// out>), of the tile in `t`.
template <class S>
__device__ void score_gradients(const AttentionArgs& a, const Head& head, const Tiles<S>& t,
                                int64_t query, int64_t key, const float* log_sum,
                                const float* products, float (&dropped)[S::kRows][S::kRows],
                                float (&gradient)[S::kRows][S::kRows]) {
  multiply_rows<S>(t.q, t.k, dropped);
  multiply_rows<S>(t.dout, t.v, gradient);
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int64_t row = query + ty() * S::kRows + i;
    const bool real = row < head.queries;
    const float shift = real ? log_sum[head.row + row] : 0.0F;
    const float product = real ? products[head.row + row] : 0.0F;
    float factors[S::kRows];
#pragma unroll
    for (int j = 0; j < S::kRows; ++j) factors[j] = 1;
    if (drops(a.dropout)) mask_row(a, head.row + row, key, factors);
#pragma unroll
    for (int j = 0; j < S::kRows; ++j) {
      const float p =
          sees(a, head, row, key + tx() + kSide * j) ? expf(dropped[i][j] * a.scale - shift) : 0.0F;
      gradient[i][j] = p * (factors[j] * gradient[i][j] - product);
      dropped[i][j] = p * factors[j];
    }
  }
}

// dV = (mask P)^T dO and dK = scale dS^T Q of a tile of keys, over the tiles of queries that see
// it.
template <class S>
__global__ void __launch_bounds__(kThreads)
    attention_keys_kernel(AttentionArgs a, AttentionGradients g, const float* products) {
  SharedMemory shared;
  const Tiles<S> t(shared);
  const auto [head, key] = Tile<S>(a);
  load<S>(a, head, g.k, key, head.keys, t.k);
  load<S>(a, head, g.v, key, head.keys, t.v);
  float dk[S::kRows][S::kColumns] = {};
  float dv[S::kRows][S::kColumns] = {};
  const int64_t end = key < head.keys ? head.queries : 0;
  for (int64_t query = a.causal ? key : 0; query < end; query += S::kTile) {
    __syncthreads();
    load<S>(a, head, g.q, query, head.queries, t.q);
    load<S>(a, head, g.dout, query, head.queries, t.dout);
    __syncthreads();
    float dropped[S::kRows][S::kRows];
    float gradient[S::kRows][S::kRows];
    score_gradients<S>(a, head, t, query, key, g.log_sum, products, dropped, gradient);
    put_scores<S>(dropped, t.weights);
    __syncthreads();
    add_products<S, true>(t.weights, t.dout, dv);
    __syncthreads();
    put_scores<S>(gradient, t.weights);
    __syncthreads();
    add_products<S, true>(t.weights, t.q, dk);
  }
  put_rows<S>(a, head, key, a.length, a.scale, dk, g.dk);
  put_rows<S>(a, head, key, a.length, 1, dv, g.dv);
}

// dQ = scale dS K of a tile of queries, over the tiles of keys that it sees.
template <class S>
__global__ void __launch_bounds__(kThreads, 2)
    attention_queries_kernel(AttentionArgs a, AttentionGradients g, const float* products) {
  SharedMemory shared;
  const Tiles<S> t(shared);
  const auto [head, query] = Tile<S>(a);
  load<S>(a, head, g.q, query, head.queries, t.q);
  load<S>(a, head, g.dout, query, head.queries, t.dout);
  float dq[S::kRows][S::kColumns] = {};
  const int64_t end = keys_end<S>(a, head, query);
  for (int64_t key = 0; key < end; key += S::kTile) {
    __syncthreads();
    load<S>(a, head, g.k, key, head.keys, t.k);
    load<S>(a, head, g.v, key, head.keys, t.v);
    __syncthreads();
    float dropped[S::kRows][S::kRows];
    float gradient[S::kRows][S::kRows];
    score_gradients<S>(a, head, t, query, key, g.log_sum, products, dropped, gradient);
    put_scores<S>(gradient, t.weights);
    __syncthreads();
    add_products<S, false>(t.weights, t.k, dq);
  }
  put_rows<S>(a, head, query, a.length, a.scale, dq, g.dq);
}

/// Calls f with the sizes that fit the heads. Backward holds four operands at a time, hence smaller
/// tiles for wide heads.
template <int WideTile, class F>
void with_sizes(const AttentionArgs& a, F&& f) {
  if (a.head_width <= 32) return f(Sizes<32, 64>{});
  if (a.head_width <= 64) return f(Sizes<64, 64>{});
  if (a.head_width <= 128) return f(Sizes<128, WideTile>{});
  throw std::runtime_error(
      "[attention] heads " + std::to_string(a.head_width) +
      " wide: at most 128 on a GPU; use more heads or implementation: materialized");
}

bool on_tensor_cores(const Exec& exec, const AttentionArgs& a) {
  return exec.precision == Precision::bf16 && a.head_width <= 128;
}

// ---- the materialised form: a warp per row of scores (batch, heads, length, length)

/// Mask factor of key `c`, one Philox call each: rows are read and written in neighbouring
/// elements.
__device__ float mask_factor(const AttentionArgs& a, int64_t row, int64_t c) {
  if (!drops(a.dropout)) return 1;
  constexpr int64_t kBlock = kMaskElements * kMaskStride;
  const int64_t element = row * ((a.length + kBlock - 1) / kBlock * kBlock) + c;
  return dropout_factor(a.dropout, element);
}

__global__ void softmax_kernel(AttentionArgs a, float* scores, float* dropped) {
  const int64_t at = thread_in_grid() / kWarp;
  if (at >= a.batch * a.heads * a.length) return;
  const int64_t lane = threadIdx.x % kWarp;
  const Head head = head_of(a, at / a.length);
  const int64_t query = at % a.length;
  float* row = scores + at * a.length;
  float top = -INFINITY;
  for (int64_t c = lane; c < a.length; c += kWarp) {
    if (sees(a, head, query, c)) top = fmaxf(top, row[c]);
  }
  top = warp_max(top);
  float sum = 0;
  for (int64_t c = lane; c < a.length; c += kWarp) {
    row[c] = sees(a, head, query, c) ? expf(row[c] - top) : 0.0F;
    sum += row[c];
  }
  sum = warp_sum(sum);
  for (int64_t c = lane; c < a.length; c += kWarp) {
    // By what is seen, not by the sum: a row with a NaN or an infinite score stays NaN.
    row[c] = sees(a, head, query, c) ? row[c] / sum : 0.0F;
    if (drops(a.dropout)) dropped[at * a.length + c] = row[c] * mask_factor(a, at, c);
  }
}

__global__ void softmax_backward_kernel(AttentionArgs a, const float* probabilities,
                                        float* gradient) {
  const int64_t at = thread_in_grid() / kWarp;
  if (at >= a.batch * a.heads * a.length) return;
  const int64_t lane = threadIdx.x % kWarp;
  const float* p = probabilities + at * a.length;
  float* row = gradient + at * a.length;
  float dot = 0;
  for (int64_t c = lane; c < a.length; c += kWarp) {
    row[c] *= mask_factor(a, at, c);
    dot += p[c] * row[c];
  }
  dot = warp_sum(dot);
  for (int64_t c = lane; c < a.length; c += kWarp) row[c] = p[c] * (row[c] - dot);
}

}  // namespace

void attention(const Exec& exec, const AttentionArgs& a, const float* q, const float* k,
               const float* v, float* out, float* log_sum) {
  if (on_tensor_cores(exec, a)) return attention_bf16(exec, a, q, k, v, out, log_sum);
  with_sizes<64>(a, [&]<class S>(S) {
    launch<attention_kernel<S>>(exec, tile_count<S>(a), kThreads,
                                (2 * S::kOperand + S::kScores) * sizeof(float), a, q, k, v, out,
                                log_sum);
  });
}

void attention_backward(const Exec& exec, const AttentionArgs& a, const AttentionGradients& g) {
  const int64_t rows = a.batch * a.heads * a.length;
  const Scratch<float> products(exec, rows);
  launch<output_products_kernel>(exec, grid_of(blocks_of(rows, kThreads / kWarp)), kThreads, 0, a,
                                 g.out, g.dout, products.data());
  if (on_tensor_cores(exec, a)) return attention_bf16_backward(exec, a, g, products.data());
  with_sizes<32>(a, [&]<class S>(S) {
    const std::size_t shared = (4 * S::kOperand + S::kScores) * sizeof(float);
    launch<attention_keys_kernel<S>>(exec, tile_count<S>(a), kThreads, shared, a, g,
                                     products.data());
    launch<attention_queries_kernel<S>>(exec, tile_count<S>(a), kThreads, shared, a, g,
                                        products.data());
  });
}

void attention_softmax(const Exec& exec, const AttentionArgs& a, float* scores, float* dropped) {
  launch<softmax_kernel>(exec, grid_of(blocks_of(a.batch * a.heads * a.length, kThreads / kWarp)),
                         kThreads, 0, a, scores, dropped);
}

void attention_softmax_backward(const Exec& exec, const AttentionArgs& a,
                                const float* probabilities, float* gradient) {
  launch<softmax_backward_kernel>(
      exec, grid_of(blocks_of(a.batch * a.heads * a.length, kThreads / kWarp)), kThreads, 0, a,
      probabilities, gradient);
}

}  // namespace primal::PRIMAL_DEVICE

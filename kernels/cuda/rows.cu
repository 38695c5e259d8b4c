#include "kernels/cuda/each.h"

// Kernels over the rows of a matrix. A warp takes a row: its lanes read neighbours, and what it
// reads twice comes from the L1 cache the second time. Sums over many rows are cut into chunks
// whose number depends on the shape only.

namespace primal::PRIMAL_DEVICE {
namespace {

constexpr int kRowsPerBlock = kThreads / kWarp;

/// The row of this warp; lanes of a warp agree, so that a warp without a row may return.
__device__ int64_t row_of_warp() {
  return thread_in_grid() / kWarp;
}
__device__ int lane() {
  return static_cast<int>(threadIdx.x % kWarp);
}

__global__ void layer_norm_kernel(int64_t rows, int64_t width, float eps, const float* x,
                                  const float* weight, const float* bias, float* out, float* mean,
                                  float* inverse_std) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float* xs = x + row * width;
  float sum = 0;
  for (int64_t i = lane(); i < width; i += kWarp) sum += xs[i];
  const float m = warp_sum(sum) / static_cast<float>(width);
  float squares = 0;
  for (int64_t i = lane(); i < width; i += kWarp) squares += (xs[i] - m) * (xs[i] - m);
  const float inverse = 1 / sqrtf(warp_sum(squares) / static_cast<float>(width) + eps);
  for (int64_t i = lane(); i < width; i += kWarp)
    out[row * width + i] = (xs[i] - m) * inverse * weight[i] + bias[i];
  if (lane() == 0) {
    mean[row] = m;
    inverse_std[row] = inverse;
  }
}

// With xhat = (x - mean) / std and g = dy * weight:  dx = (g - mean(g) - xhat * mean(g * xhat)) /
// std.
__global__ void layer_norm_dx_kernel(int64_t rows, int64_t width, const float* x,
                                     const float* weight, const float* mean,
                                     const float* inverse_std, const float* dy, float* dx,
                                     bool accumulate) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float m = mean[row];
  const float inverse = inverse_std[row];
  float sum = 0;
  float dot = 0;
  for (int64_t i = lane(); i < width; i += kWarp) {
    const float g = dy[row * width + i] * weight[i];
    sum += g;
    dot += g * (x[row * width + i] - m) * inverse;
  }
  sum = warp_sum(sum) / static_cast<float>(width);
  dot = warp_sum(dot) / static_cast<float>(width);
  for (int64_t i = lane(); i < width; i += kWarp) {
    const float xhat = (x[row * width + i] - m) * inverse;
    put(dx + row * width + i, (dy[row * width + i] * weight[i] - sum - xhat * dot) * inverse,
        accumulate);
  }
}

__global__ void l2_normalize_kernel(int64_t rows, int64_t width, float eps, const float* x,
                                    float* out, float* inverse_norm) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float* xs = x + row * width;
  float squares = 0;
  for (int64_t i = lane(); i < width; i += kWarp) squares += xs[i] * xs[i];
  const float inverse = 1 / fmaxf(sqrtf(warp_sum(squares)), eps);
  for (int64_t i = lane(); i < width; i += kWarp) out[row * width + i] = xs[i] * inverse;
  if (lane() == 0) inverse_norm[row] = inverse;
}

__global__ void l2_normalize_backward_kernel(int64_t rows, int64_t width, float eps,
                                             const float* out, const float* inverse_norm,
                                             const float* dy, float* dx, bool accumulate) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float inverse = inverse_norm[row];
  float dot = 0;
  if (inverse * eps < 1) {  // below eps the divisor is a constant
    for (int64_t i = lane(); i < width; i += kWarp)
      dot += out[row * width + i] * dy[row * width + i];
  }
  dot = warp_sum(dot);
  for (int64_t i = lane(); i < width; i += kWarp) {
    put(dx + row * width + i, (dy[row * width + i] - out[row * width + i] * dot) * inverse,
        accumulate);
  }
}

template <auto kernel, class... Arguments>
void for_rows(const Exec& exec, int64_t rows, int64_t width, Arguments... arguments) {
  launch<kernel>(exec, grid_of(blocks_of(rows, kRowsPerBlock)), kThreads, 0, rows, width,
                 arguments...);
}

// ---- sums over rows

/// One column's terms of a row: x itself.
struct RowTerms {
  static constexpr int kSums = 1;
  const float* x;
  int64_t columns;
  __device__ void operator()(int64_t row, int64_t c, float (&sums)[kSums]) const {
    sums[0] += x[row * columns + c];
  }
};

/// Those of a layer norm's weight and bias.
struct LayerNormTerms {
  static constexpr int kSums = 2;
  const float* x;
  const float* mean;
  const float* inverse_std;
  const float* dy;
  int64_t columns;
  __device__ void operator()(int64_t row, int64_t c, float (&sums)[kSums]) const {
    const float d = dy[row * columns + c];
    sums[0] += d * (x[row * columns + c] - mean[row]) * inverse_std[row];
    sums[1] += d;
  }
};

int64_t chunk_rows(int64_t rows) {
  const int64_t share = (rows + 63) / 64;
  return share > 32 ? share : 32;
}

// A block sums a chunk of rows in 32 neighbouring columns: 8 threads to a column, whose sums meet
// in shared memory. partial (chunks, kSums, columns).
template <class Terms>
__global__ void column_sums_kernel(int64_t rows, int64_t columns, int64_t height, Terms terms,
                                   float* partial) {
  SharedMemory shared;
  float* meeting = shared.array<float>(Terms::kSums * kThreads);
  const int64_t tiles = (columns + kWarp - 1) / kWarp;
  const int64_t chunk = blockIdx.x / tiles;
  const int64_t column = blockIdx.x % tiles * kWarp + lane();
  const int part = static_cast<int>(threadIdx.x) / kWarp;
  float sums[Terms::kSums] = {};
  if (column < columns) {
    for (int64_t row = chunk * height + part; row < rows && row < (chunk + 1) * height;
         row += kRowsPerBlock) {
      terms(row, column, sums);
    }
  }
  for (int s = 0; s < Terms::kSums; ++s)
    meeting[s * kThreads + static_cast<int>(threadIdx.x)] = sums[s];
  __syncthreads();
  if (part >= Terms::kSums || column >= columns) return;
  float total = 0;
  for (int p = 0; p < kRowsPerBlock; ++p) total += meeting[part * kThreads + p * kWarp + lane()];
  partial[(chunk * Terms::kSums + part) * columns + column] = total;
}

/// out[c] (+)= sum over chunks of partial[chunk * stride + c].
struct Combine {
  int64_t chunks, stride;
  const float* partial;
  float* out;
  bool accumulate;
  __device__ void operator()(int64_t c) const {
    float sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * stride + c];
    put(out + c, sum, accumulate);
  }
};

/// Adds up `terms` over rows; out[s] (columns) gets sum s.
template <class Terms>
void column_sums(const Exec& exec, int64_t rows, int64_t columns, const Terms& terms,
                 float* const (&out)[Terms::kSums], const bool (&accumulate)[Terms::kSums]) {
  const int64_t height = chunk_rows(rows);
  const int64_t chunks = (rows + height - 1) / height;
  const int64_t stride = Terms::kSums * columns;
  const Scratch<float> partial(exec, chunks * stride);
  launch<column_sums_kernel<Terms>>(exec, grid_of(blocks_of(columns, kWarp) * chunks), kThreads,
                                    Terms::kSums * kThreads * sizeof(float), rows, columns, height,
                                    terms, partial.data());
  for (int s = 0; s < Terms::kSums; ++s) {
    each(exec, columns,
         Combine{chunks, stride, partial.data() + s * columns, out[s], accumulate[s]});
  }
}

// ---- norm of all gradients

constexpr int64_t kSquares = 16384;  // elements a block sums

__global__ void square_sums_kernel(int64_t n, const float* x, double* partial) {
  const int64_t begin = int64_t{blockIdx.x} * kSquares;
  const int64_t count = n - begin < kSquares ? n - begin : kSquares;
  const double sum = block_total(count, [&](int64_t i) {
    const double value = x[begin + i];
    return value * value;
  });
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void clip_kernel(int64_t n, float max_norm, const double* partial, float* out) {
  const double sum = block_total(n, [&](int64_t i) { return partial[i]; });
  if (threadIdx.x > 0) return;
  out[0] = static_cast<float>(sqrt(sum));
  out[1] = clip_factor(sum, max_norm);
}

}  // namespace

void sum_rows(const Exec& exec, int64_t rows, int64_t columns, const float* x, float* out,
              bool accumulate) {
  column_sums(exec, rows, columns, RowTerms{x, columns}, {out}, {accumulate});
}

void layer_norm(const Exec& exec, int64_t rows, int64_t width, float eps, const float* x,
                const float* weight, const float* bias, float* out, float* mean,
                float* inverse_std) {
  for_rows<layer_norm_kernel>(exec, rows, width, eps, x, weight, bias, out, mean, inverse_std);
}

void layer_norm_backward(const Exec& exec, int64_t rows, int64_t width, const float* x,
                         const float* weight, const float* mean, const float* inverse_std,
                         const float* dy, float* dx, bool accumulate_dx, float* dweight,
                         bool accumulate_dweight, float* dbias, bool accumulate_dbias) {
  for_rows<layer_norm_dx_kernel>(exec, rows, width, x, weight, mean, inverse_std, dy, dx,
                                 accumulate_dx);
  column_sums(exec, rows, width, LayerNormTerms{x, mean, inverse_std, dy, width}, {dweight, dbias},
              {accumulate_dweight, accumulate_dbias});
}

void l2_normalize(const Exec& exec, int64_t rows, int64_t width, float eps, const float* x,
                  float* out, float* inverse_norm) {
  for_rows<l2_normalize_kernel>(exec, rows, width, eps, x, out, inverse_norm);
}

void l2_normalize_backward(const Exec& exec, int64_t rows, int64_t width, float eps,
                           const float* out, const float* inverse_norm, const float* dy, float* dx,
                           bool accumulate) {
  for_rows<l2_normalize_backward_kernel>(exec, rows, width, eps, out, inverse_norm, dy, dx,
                                         accumulate);
}

void clip(const Exec& exec, int64_t n, float max_norm, const float* x, float* out) {
  const int64_t chunks = (n + kSquares - 1) / kSquares;
  const Scratch<double> partial(exec, chunks);
  launch<square_sums_kernel>(exec, grid_of(chunks), kThreads, kTotalBytes, n, x, partial.data());
  launch<clip_kernel>(exec, 1, kThreads, kTotalBytes, chunks, max_norm, partial.data(), out);
}

}  // namespace primal::PRIMAL_DEVICE

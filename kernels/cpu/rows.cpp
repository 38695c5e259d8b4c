#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/kernels.h"

// Kernels over the rows of a matrix: norms and column sums. Sums over many rows are cut into chunks
// whose number depends on the shape only; the chunks' sums are then added in order.

namespace primal::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

int64_t chunk_rows(int64_t rows) {
  return std::max<int64_t>(32, (rows + 63) / 64);
}
int64_t chunk_count(int64_t rows) {
  return (rows + chunk_rows(rows) - 1) / chunk_rows(rows);
}

/// out (+)= sum over chunks of partial (chunks, columns), the chunks `stride` elements apart.
void combine(int64_t chunks, int64_t columns, int64_t stride, const float* partial, float* out,
             bool accumulate) {
  if (!accumulate) std::fill_n(out, columns, 0.0F);
  for (int64_t c = 0; c < chunks; ++c) {
    const float* part = partial + c * stride;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) out[i] += part[i];
  }
}

template <class F>
void for_rows(const Exec& exec, int64_t rows, F&& f) {
  parallel_for(exec, (rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) f(row);
  });
}

}  // namespace

void sum_rows(const Exec& exec, int64_t rows, int64_t columns, const float* x, float* out,
              bool accumulate) {
  const int64_t height = chunk_rows(rows);
  const int64_t chunks = chunk_count(rows);
  std::vector<float> partial(chunks * columns, 0.0F);
  parallel_for(exec, chunks, [&](int64_t c) {
    float* sum = partial.data() + c * columns;
    for (int64_t row = c * height; row < std::min(rows, (c + 1) * height); ++row) {
      const float* xs = x + row * columns;
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) sum[i] += xs[i];
    }
  });
  combine(chunks, columns, columns, partial.data(), out, accumulate);
}

void layer_norm(const Exec& exec, int64_t rows, int64_t width, float eps, const float* x,
                const float* weight, const float* bias, float* out, float* mean,
                float* inverse_std) {
  for_rows(exec, rows, [=](int64_t row) {
    const float* xs = x + row * width;
    float* outs = out + row * width;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += xs[i];
    const float m = sum / static_cast<float>(width);
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += (xs[i] - m) * (xs[i] - m);
    const float inverse = 1 / std::sqrt(squares / static_cast<float>(width) + eps);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) outs[i] = (xs[i] - m) * inverse * weight[i] + bias[i];
    mean[row] = m;
    inverse_std[row] = inverse;
  });
}

// With xhat = (x - mean) / std and g = dy * weight:
//   dx = (g - mean(g) - xhat * mean(g * xhat)) / std,  dweight = sum dy * xhat,  dbias = sum dy.
void layer_norm_backward(const Exec& exec, int64_t rows, int64_t width, const float* x,
                         const float* weight, const float* mean, const float* inverse_std,
                         const float* dy, float* dx, bool accumulate_dx, float* dweight,
                         bool accumulate_dweight, float* dbias, bool accumulate_dbias) {
  const int64_t height = chunk_rows(rows);
  const int64_t chunks = chunk_count(rows);
  std::vector<float> partial(chunks * 2 * width, 0.0F);
  parallel_for(exec, chunks, [&](int64_t c) {
    float* dw = partial.data() + c * 2 * width;
    float* db = dw + width;
    for (int64_t row = c * height; row < std::min(rows, (c + 1) * height); ++row) {
      const float* xs = x + row * width;
      const float* dys = dy + row * width;
      float* dxs = dx + row * width;
      const float m = mean[row];
      const float inverse = inverse_std[row];
      float sum = 0;
      float dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (int64_t i = 0; i < width; ++i) {
        const float xhat = (xs[i] - m) * inverse;
        const float g = dys[i] * weight[i];
        sum += g;
        dot += g * xhat;
        dw[i] += dys[i] * xhat;
        db[i] += dys[i];
      }
      sum /= static_cast<float>(width);
      dot /= static_cast<float>(width);
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        const float xhat = (xs[i] - m) * inverse;
        const float g = (dys[i] * weight[i] - sum - xhat * dot) * inverse;
        dxs[i] = accumulate_dx ? dxs[i] + g : g;
      }
    }
  });
  combine(chunks, width, 2 * width, partial.data(), dweight, accumulate_dweight);
  combine(chunks, width, 2 * width, partial.data() + width, dbias, accumulate_dbias);
}

void l2_normalize(const Exec& exec, int64_t rows, int64_t width, float eps, const float* x,
                  float* out, float* inverse_norm) {
  for_rows(exec, rows, [=](int64_t row) {
    const float* xs = x + row * width;
    float* outs = out + row * width;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += xs[i] * xs[i];
    const float inverse = 1 / std::max(std::sqrt(squares), eps);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) outs[i] = xs[i] * inverse;
    inverse_norm[row] = inverse;
  });
}

void l2_normalize_backward(const Exec& exec, int64_t rows, int64_t width, float eps,
                           const float* out, const float* inverse_norm, const float* dy, float* dx,
                           bool accumulate) {
  for_rows(exec, rows, [=](int64_t row) {
    const float* outs = out + row * width;
    const float* dys = dy + row * width;
    float* dxs = dx + row * width;
    const float inverse = inverse_norm[row];
    float dot = 0;
    if (inverse * eps < 1) {  // below eps the divisor is a constant
#pragma omp simd reduction(+ : dot)
      for (int64_t i = 0; i < width; ++i) dot += outs[i] * dys[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float g = (dys[i] - outs[i] * dot) * inverse;
      dxs[i] = accumulate ? dxs[i] + g : g;
    }
  });
}

void clip(const Exec& exec, int64_t n, float max_norm, const float* x, float* out) {
  constexpr int64_t kChunk = 16384;
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<double> partial(chunks);
  parallel_for(exec, chunks, [&](int64_t c) {
    const int64_t end = std::min(n, (c + 1) * kChunk);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = c * kChunk; i < end; ++i) sum += static_cast<double>(x[i]) * x[i];
    partial[c] = sum;
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  out[0] = static_cast<float>(std::sqrt(total));
  out[1] = clip_factor(total, max_norm);
}

}  // namespace primal::cpu

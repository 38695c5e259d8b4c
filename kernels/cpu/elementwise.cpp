#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

namespace primal::cpu {
namespace {

constexpr int64_t kChunk = 8192;  // elements one task works on; a multiple of kMaskBlock

/// Calls f(begin, end) on chunks of [0, n).
template <class F>
void chunked(const Exec& exec, int64_t n, F&& f) {
  parallel_for(exec, (n + kChunk - 1) / kChunk,
               [&](int64_t i) { f(i * kChunk, std::min(n, (i + 1) * kChunk)); });
}

/// Calls f(begin, count, factors) on mask blocks of [0, n), with the factors of each element.
template <class F>
void masked(const Exec& exec, int64_t n, const Dropout& d, F&& f) {
  chunked(exec, n, [&](int64_t begin, int64_t end) {
    alignas(64) float factors[kMaskBlock];
    std::fill_n(factors, kMaskBlock, 1.0F);
    for (int64_t at = begin; at < end; at += kMaskBlock) {
      if (d.active()) dropout_factors(d, at / kMaskBlock, factors);
      f(at, std::min(kMaskBlock, end - at), factors);
    }
  });
}

/// d/dx of the activation.
template <Activation kind>
float slope(float x) {
  if constexpr (kind == Activation::relu) return x > 0 ? 1.0F : 0.0F;
  const NormalSimd normal = normal_simd(x);
  return normal.distribution + x * normal.density;
}

template <Activation kind>
float activate(float x) {
  if constexpr (kind == Activation::relu) return x > 0 ? x : 0.0F;
  return x * normal_simd(x).distribution;
}

template <Activation kind>
void activate_all(const Exec& exec, int64_t n, const Dropout& d, const float* x, float* out) {
  masked(exec, n, d, [=](int64_t at, int64_t count, const float* factors) {
    const float* xs = x + at;
    float* outs = out + at;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) outs[i] = activate<kind>(xs[i]) * factors[i];
  });
}

template <Activation kind, bool accumulate>
void slopes(const Exec& exec, int64_t n, const Dropout& d, const float* x, const float* dy,
            float* dx) {
  masked(exec, n, d, [=](int64_t at, int64_t count, const float* factors) {
    const float* xs = x + at;
    const float* dys = dy + at;
    float* dxs = dx + at;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float g = slope<kind>(xs[i]) * dys[i] * factors[i];
      dxs[i] = accumulate ? dxs[i] + g : g;
    }
  });
}

}  // namespace

void upload(const Exec& exec, int64_t n, const float* host, float* out) {
  copy(exec, n, host, out);
}

void download(const Exec& exec, int64_t n, const float* x, float* host) {
  copy(exec, n, x, host);
}

void upload_integers(const Exec&, int64_t n, const int32_t* host, int32_t* out) {
  std::copy_n(host, n, out);
}

void fill(const Exec& exec, int64_t n, float value, float* out) {
  chunked(exec, n, [=](int64_t begin, int64_t end) { std::fill(out + begin, out + end, value); });
}

void copy(const Exec& exec, int64_t n, const float* x, float* out) {
  chunked(exec, n, [=](int64_t begin, int64_t end) { std::copy(x + begin, x + end, out + begin); });
}

void add(const Exec& exec, int64_t n, const float* x, float* out) {
  chunked(exec, n, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] += x[i];
  });
}

void scale(const Exec& exec, int64_t n, float factor, const float* x, float* out, bool accumulate) {
  chunked(exec, n, [=](int64_t begin, int64_t end) {
    if (accumulate) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) out[i] += factor * x[i];
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) out[i] = factor * x[i];
    }
  });
}

void add_position(const Exec& exec, int64_t batch, int64_t count, float scale, const float* x,
                  const float* position, float* out) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  parallel_for(exec, batch * chunks, [=](int64_t task) {
    const int64_t begin = task % chunks * kChunk;
    const int64_t end = std::min(count, begin + kChunk);
    const float* xs = x + task / chunks * count;
    float* outs = out + task / chunks * count;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) outs[i] = scale * xs[i] + position[i];
  });
}

void dropout(const Exec& exec, int64_t n, Dropout d, const float* x, float* out, bool accumulate) {
  masked(exec, n, d, [=](int64_t at, int64_t count, const float* factors) {
    const float* xs = x + at;
    float* outs = out + at;
    if (accumulate) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) outs[i] += xs[i] * factors[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) outs[i] = xs[i] * factors[i];
    }
  });
}

void activation(const Exec& exec, int64_t n, Activation kind, Dropout d, const float* x,
                float* out) {
  if (kind == Activation::gelu) {
    activate_all<Activation::gelu>(exec, n, d, x, out);
  } else {
    activate_all<Activation::relu>(exec, n, d, x, out);
  }
}

void activation_backward(const Exec& exec, int64_t n, Activation kind, Dropout d, const float* x,
                         const float* dy, float* dx, bool accumulate) {
  const bool gelu = kind == Activation::gelu;
  const auto run =
      gelu ? (accumulate ? slopes<Activation::gelu, true> : slopes<Activation::gelu, false>)
           : (accumulate ? slopes<Activation::relu, true> : slopes<Activation::relu, false>);
  run(exec, n, d, x, dy, dx);
}

void add_dropout(const Exec& exec, int64_t n, Dropout d, const float* x, const float* y,
                 float* out) {
  masked(exec, n, d, [=](int64_t at, int64_t count, const float* factors) {
    const float* xs = x + at;
    const float* ys = y + at;
    float* outs = out + at;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) outs[i] = xs[i] + ys[i] * factors[i];
  });
}

void mask_positions(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                    const int32_t* lengths, const float* x, const float* bias, float* out,
                    bool accumulate) {
  parallel_for(exec, batch * length, [=](int64_t row) {
    const bool real = row % length < lengths[row / length];
    const float* xs = x + row * width;
    float* outs = out + row * width;
    if (!accumulate) std::fill_n(outs, width, 0.0F);
    for (int64_t i = 0; real && i < width; ++i) outs[i] += xs[i];
    for (int64_t i = 0; bias != nullptr && i < width; ++i) outs[i] += bias[i];
  });
}

void adam(const Exec& exec, int64_t n, const AdamStep& s, const float* factor,
          const float* gradient, float* first, float* second, float* value) {
  const float scale = *factor;
  if (std::isnan(scale)) return;
  chunked(exec, n, [=, &s](int64_t begin, int64_t end) {
    const AdamStep step = s;
    const float rest1 = 1 - step.beta1;
    const float rest2 = 1 - step.beta2;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = scale * gradient[i] + step.l2 * value[i];
      const float m = step.beta1 * first[i] + rest1 * g;
      const float v = step.beta2 * second[i] + rest2 * g * g;
      first[i] = m;
      second[i] = v;
      const float direction =
          step.adaptive ? m / (step.second_scale * __builtin_sqrtf(v) + step.eps) : m;
      value[i] = step.decay * value[i] - step.step_size * direction;
    }
  });
}

}  // namespace primal::cpu

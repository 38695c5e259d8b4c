#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

// Canonical softmax attention, one task per sample, head and block of queries. Scores exist for one
// block of queries against one block of keys at a time; the softmax is carried from key block to
// key block by a running maximum and sum (Milakov and Gimelshein, 2018; Dao et al., 2022). Forward
// keeps log(sum exp) per query, from which backward computes the probabilities again.

namespace primal::cpu {
namespace {

constexpr int64_t kQueries = 128;
constexpr int64_t kKeys = 512;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// One head of one sample.
struct Head {
  int64_t offset;   // of the head's first element in (batch, length, heads * head_width)
  int64_t row;      // of its first query in (batch, heads, length)
  int64_t keys;     // that are seen
  int64_t queries;  // that see them; the others' outputs are 0
};

Head head_of(const AttentionArgs& a, int64_t item) {
  const int64_t b = item / a.heads;
  const int64_t h = item % a.heads;
  const int64_t keys = a.lengths != nullptr ? a.lengths[b] : a.length;
  return {b * a.length * a.heads * a.head_width + h * a.head_width, item * a.length, keys,
          a.all_queries && keys > 0 ? a.length : keys};
}

/// Mask factors of keys [first, first + count) of one query row, in `factors` (count rounded up to
/// blocks). `first` is a multiple of kMaskBlock.
void row_factors(const AttentionArgs& a, int64_t row, int64_t first, int64_t count,
                 float* factors) {
  const int64_t base = row * mask_row_blocks(a.length) + first / kMaskBlock;
  for (int64_t block = 0; block * kMaskBlock < count; ++block) {
    dropout_factors(a.dropout, base + block, factors + block * kMaskBlock);
  }
}

/// Keys that query `i` sees among [first, first + count).
int64_t seen(const AttentionArgs& a, int64_t i, int64_t first, int64_t count) {
  return a.causal ? std::clamp<int64_t>(i + 1 - first, 0, count) : count;
}

/// Scores of `rows` queries from `i` on against `keys` keys from `j` on, into s (rows, keys).
void scores(const Exec& exec, const AttentionArgs& a, int64_t offset, int64_t i, int64_t rows,
            int64_t j, int64_t keys, const float* q, const float* k, float* s) {
  const int64_t width = a.heads * a.head_width;
  GemmArgs p = product(rows, keys, a.head_width, {q + offset + i * width, width},
                       transposed(k + offset + j * width, width), s, keys);
  p.alpha = a.scale;
  gemm_serial(exec, p);
}

/// Buffers of one thread.
class Scratch {
 public:
  Scratch(const Exec& exec, int64_t floats)
      : stride_((floats + 15) / 16 * 16), data_(static_cast<size_t>(exec.threads * stride_)) {}
  float* mine() { return data_.data() + thread_index() * stride_; }

 private:
  int64_t stride_;
  std::vector<float> data_;
};

int64_t score_floats(const AttentionArgs& a) {
  return std::min(kQueries, a.length) * std::min(kKeys, a.length);
}

void attend_block(const Exec& exec, const AttentionArgs& a, const Head& head, int64_t i,
                  int64_t rows, const float* q, const float* k, const float* v, float* out,
                  float* log_sum, float* scratch) {
  const int64_t width = a.heads * a.head_width;
  float* s = scratch;
  float* maximum = s + score_floats(a);
  float* sum = maximum + kQueries;
  float* factors = sum + kQueries;
  float* outs = out + head.offset + i * width;
  std::fill_n(maximum, rows, kMinusInfinity);
  std::fill_n(sum, rows, 0.0F);
  const int64_t end = a.causal ? std::min(head.keys, i + rows) : head.keys;
  for (int64_t j = 0; j < end; j += kKeys) {
    const int64_t keys = std::min(kKeys, end - j);
    scores(exec, a, head.offset, i, rows, j, keys, q, k, s);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = s + r * keys;
      const int64_t count = seen(a, i + r, j, keys);
      float top = maximum[r];
#pragma omp simd reduction(max : top)
      for (int64_t c = 0; c < count; ++c) top = std::max(top, row[c]);
      float total = 0;
#pragma omp simd reduction(+ : total)
      for (int64_t c = 0; c < count; ++c) {
        const float p = exp_simd(row[c] - top);
        row[c] = p;
        total += p;
      }
      std::fill(row + count, row + keys, 0.0F);
      const float correction = j == 0 ? 0.0F : std::exp(maximum[r] - top);
      if (j > 0 && correction != 1.0F) {
        for (int64_t c = 0; c < a.head_width; ++c) outs[r * width + c] *= correction;
      }
      sum[r] = sum[r] * correction + total;
      maximum[r] = top;
      if (a.dropout.active()) {
        row_factors(a, head.row + i + r, j, count, factors);
#pragma omp simd
        for (int64_t c = 0; c < count; ++c) row[c] *= factors[c];
      }
    }
    gemm_serial(exec, product(rows, a.head_width, keys, {s, keys},
                              {v + head.offset + j * width, width}, outs, width, j > 0));
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float share = 1 / sum[r];
    for (int64_t c = 0; c < a.head_width; ++c) outs[r * width + c] *= share;
    log_sum[head.row + i + r] = maximum[r] + std::log(sum[r]);
  }
}

}  // namespace

void attention(const Exec& exec, const AttentionArgs& a, const float* q, const float* k,
               const float* v, float* out, float* log_sum) {
  const int64_t width = a.heads * a.head_width;
  const int64_t blocks = (a.length + kQueries - 1) / kQueries;
  Scratch scratch(exec, score_floats(a) + 2 * kQueries + kKeys + kMaskBlock);
  parallel_for(exec, a.batch * a.heads * blocks, [&](int64_t task) {
    const Head head = head_of(a, task / blocks);
    const int64_t i = task % blocks * kQueries;
    const int64_t rows = std::min(kQueries, a.length - i);
    const int64_t real = std::clamp<int64_t>(head.queries - i, 0, rows);
    if (real > 0) attend_block(exec, a, head, i, real, q, k, v, out, log_sum, scratch.mine());
    for (int64_t r = i + real; r < i + rows; ++r) {  // padded queries attend to nothing
      std::fill_n(out + head.offset + r * width, a.head_width, 0.0F);
      log_sum[head.row + r] = 0;
    }
  });
}

// With P = exp(S - log_sum), mask factors M and dP = M * (dO V^T):
//   dV = (M P)^T dO,  dS = P * (dP - <dO, O>),  dQ = scale dS K,  dK = scale dS^T Q.
void attention_backward(const Exec& exec, const AttentionArgs& a, const AttentionGradients& g) {
  const int64_t width = a.heads * a.head_width;
  Scratch scratch(exec, 2 * score_floats(a) + kKeys + kMaskBlock);
  parallel_for(exec, a.batch * a.heads, [&](int64_t item) {
    const Head head = head_of(a, item);
    float* s = scratch.mine();
    float* ds = s + score_floats(a);
    float* factors = ds + score_floats(a);
    for (float* gradient : {g.dq, g.dk, g.dv}) {
      for (int64_t t = 0; t < a.length; ++t) {
        std::fill_n(gradient + head.offset + t * width, a.head_width, 0.0F);
      }
    }
    for (int64_t i = 0; i < head.queries; i += kQueries) {
      const int64_t rows = std::min(kQueries, head.queries - i);
      const float* dout = g.dout + head.offset + i * width;
      const float* out = g.out + head.offset + i * width;
      const int64_t end = a.causal ? std::min(head.keys, i + rows) : head.keys;
      for (int64_t j = 0; j < end; j += kKeys) {
        const int64_t keys = std::min(kKeys, end - j);
        scores(exec, a, head.offset, i, rows, j, keys, g.q, g.k, s);
        gemm_serial(exec, product(rows, keys, a.head_width, {dout, width},
                                  transposed(g.v + head.offset + j * width, width), ds, keys));
        for (int64_t r = 0; r < rows; ++r) {
          float* row = s + r * keys;
          float* drow = ds + r * keys;
          const int64_t count = seen(a, i + r, j, keys);
          const float log_sum = g.log_sum[head.row + i + r];
          float delta = 0;
#pragma omp simd reduction(+ : delta)
          for (int64_t c = 0; c < a.head_width; ++c) {
            delta += dout[r * width + c] * out[r * width + c];
          }
          if (a.dropout.active()) {
            row_factors(a, head.row + i + r, j, count, factors);
#pragma omp simd
            for (int64_t c = 0; c < count; ++c) {
              const float p = exp_simd(row[c] - log_sum);
              row[c] = p * factors[c];
              drow[c] = p * (drow[c] * factors[c] - delta);
            }
          } else {
#pragma omp simd
            for (int64_t c = 0; c < count; ++c) {
              const float p = exp_simd(row[c] - log_sum);
              row[c] = p;
              drow[c] = p * (drow[c] - delta);
            }
          }
          std::fill(row + count, row + keys, 0.0F);
          std::fill(drow + count, drow + keys, 0.0F);
        }
        gemm_serial(exec, product(keys, a.head_width, rows, transposed(s, keys), {dout, width},
                                  g.dv + head.offset + j * width, width, true));
        GemmArgs dk = product(keys, a.head_width, rows, transposed(ds, keys),
                              {g.q + head.offset + i * width, width},
                              g.dk + head.offset + j * width, width, true);
        dk.alpha = a.scale;
        gemm_serial(exec, dk);
        GemmArgs dq =
            product(rows, a.head_width, keys, {ds, keys}, {g.k + head.offset + j * width, width},
                    g.dq + head.offset + i * width, width, true);
        dq.alpha = a.scale;
        gemm_serial(exec, dq);
      }
    }
  });
}

void attention_softmax(const Exec& exec, const AttentionArgs& a, float* scores, float* dropped) {
  Scratch scratch(exec, mask_row_blocks(a.length) * kMaskBlock);
  parallel_for(exec, a.batch * a.heads * a.length, [&](int64_t at) {
    const Head head = head_of(a, at / a.length);
    const int64_t i = at % a.length;
    float* row = scores + at * a.length;
    const int64_t count = i < head.queries ? seen(a, i, 0, head.keys) : 0;
    float top = kMinusInfinity;
#pragma omp simd reduction(max : top)
    for (int64_t c = 0; c < count; ++c) top = std::max(top, row[c]);
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t c = 0; c < count; ++c) {
      row[c] = exp_simd(row[c] - top);
      total += row[c];
    }
    for (int64_t c = 0; c < count; ++c) row[c] /= total;
    std::fill(row + count, row + a.length, 0.0F);
    if (a.dropout.active()) {
      float* factors = scratch.mine();
      row_factors(a, at, 0, a.length, factors);
      for (int64_t c = 0; c < a.length; ++c) dropped[at * a.length + c] = row[c] * factors[c];
    }
  });
}

void attention_softmax_backward(const Exec& exec, const AttentionArgs& a,
                                const float* probabilities, float* gradient) {
  Scratch scratch(exec, mask_row_blocks(a.length) * kMaskBlock);
  parallel_for(exec, a.batch * a.heads * a.length, [&](int64_t at) {
    const float* p = probabilities + at * a.length;
    float* row = gradient + at * a.length;
    if (a.dropout.active()) {
      float* factors = scratch.mine();
      row_factors(a, at, 0, a.length, factors);
      for (int64_t c = 0; c < a.length; ++c) row[c] *= factors[c];
    }
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < a.length; ++c) dot += p[c] * row[c];
#pragma omp simd
    for (int64_t c = 0; c < a.length; ++c) row[c] = p[c] * (row[c] - dot);
  });
}

}  // namespace primal::cpu

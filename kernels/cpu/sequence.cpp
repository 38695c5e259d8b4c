#include <algorithm>

#include "kernels/cpu/kernels.h"

// Kernels along the positions of sequences (batch, length, width).

namespace primal::cpu {
namespace {

constexpr int64_t kColumns = 64;  // columns one task scans

/// Calls f(b, first column, columns) over blocks of columns of every sample.
template <class F>
void for_columns(const Exec& exec, int64_t batch, int64_t width, F&& f) {
  const int64_t blocks = (width + kColumns - 1) / kColumns;
  parallel_for(exec, batch * blocks, [&](int64_t task) {
    const int64_t begin = task % blocks * kColumns;
    f(task / blocks, begin, std::min(kColumns, width - begin));
  });
}

/// Of each position in a mean over `count`.
double mean_share(int64_t count) {
  return count > 0 ? 1 / static_cast<double>(count) : 0;
}

}  // namespace

void running_mean(const Exec& exec, int64_t batch, int64_t length, int64_t width, const float* x,
                  float* out) {
  for_columns(exec, batch, width, [=](int64_t b, int64_t begin, int64_t columns) {
    float sum[kColumns] = {};
    for (int64_t t = 0; t < length; ++t) {
      const int64_t at = (b * length + t) * width + begin;
      const float share = 1 / static_cast<float>(t + 1);
      for (int64_t i = 0; i < columns; ++i) {
        sum[i] += x[at + i];
        out[at + i] = sum[i] * share;
      }
    }
  });
}

// dx[t] = sum over s >= t of dy[s] / (s + 1).
void running_mean_backward(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                           const float* dy, float* dx, bool accumulate) {
  for_columns(exec, batch, width, [=](int64_t b, int64_t begin, int64_t columns) {
    float sum[kColumns] = {};
    for (int64_t t = length - 1; t >= 0; --t) {
      const int64_t at = (b * length + t) * width + begin;
      const float share = 1 / static_cast<float>(t + 1);
      for (int64_t i = 0; i < columns; ++i) {
        sum[i] += dy[at + i] * share;
        dx[at + i] = accumulate ? dx[at + i] + sum[i] : sum[i];
      }
    }
  });
}

void gather_rows(const Exec& exec, int64_t batch, int64_t length, int64_t width, int64_t rows,
                 const int32_t* index, const float* x, float* out) {
  parallel_for(exec, batch * rows, [=](int64_t row) {
    const float* source = x + (row / rows * length + index[row]) * width;
    std::copy_n(source, width, out + row * width);
  });
}

// Several rows may come from one position, so that a task owns whole columns of a sample.
void gather_rows_backward(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                          int64_t rows, const int32_t* index, const float* dy, float* dx) {
  for_columns(exec, batch, width, [=](int64_t b, int64_t begin, int64_t columns) {
    for (int64_t row = b * rows; row < (b + 1) * rows; ++row) {
      const float* source = dy + row * width + begin;
      float* target = dx + (b * length + index[row]) * width + begin;
      for (int64_t i = 0; i < columns; ++i) target[i] += source[i];
    }
  });
}

void embedding_backward(const Exec& exec, const TokenGroups& g, int64_t width, const float* dy,
                        float* dtable) {
  parallel_for(exec, g.groups, [=, &g](int64_t group) {
    const int32_t begin = g.piece_starts[g.group_pieces[group]];
    const int32_t end = g.piece_starts[g.group_pieces[group + 1]];
    float* row = dtable + g.ids[group] * width;
    for (int32_t at = begin; at < end; ++at) {
      const float* source = dy + g.order[at] * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) row[i] += source[i];
    }
  });
}

void mean_positions(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                    const int32_t* lengths, bool own_length, const float* x, float* out) {
  for_columns(exec, batch, width, [=](int64_t b, int64_t begin, int64_t columns) {
    const int64_t real = lengths != nullptr ? lengths[b] : length;
    double sum[kColumns] = {};
    for (int64_t t = 0; t < real; ++t) {
      const float* row = x + (b * length + t) * width + begin;
      for (int64_t i = 0; i < columns; ++i) sum[i] += row[i];
    }
    const double share = mean_share(own_length ? real : length);
    for (int64_t i = 0; i < columns; ++i) {
      out[b * width + begin + i] = static_cast<float>(sum[i] * share);
    }
  });
}

void mean_positions_backward(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                             const int32_t* lengths, bool own_length, const float* dy, float* dx,
                             bool accumulate) {
  parallel_for(exec, batch * length, [=](int64_t row) {
    const int64_t b = row / length;
    const int64_t real = lengths != nullptr ? lengths[b] : length;
    const bool counts = row % length < real;
    const auto share = static_cast<float>(counts ? mean_share(own_length ? real : length) : 0);
    const float* source = dy + b * width;
    float* target = dx + row * width;
    if (accumulate) {
      for (int64_t i = 0; i < width; ++i) target[i] += share * source[i];
    } else {
      for (int64_t i = 0; i < width; ++i) target[i] = share * source[i];
    }
  });
}

void pair_features(const Exec& exec, int64_t pairs, int64_t width, const float* x, float* out) {
  parallel_for(exec, pairs, [=](int64_t pair) {
    const float* a = x + 2 * pair * width;
    const float* b = a + width;
    float* outs = out + 4 * pair * width;
    for (int64_t i = 0; i < width; ++i) {
      outs[i] = a[i];
      outs[width + i] = b[i];
      outs[2 * width + i] = a[i] * b[i];
      outs[3 * width + i] = a[i] - b[i];
    }
  });
}

void pair_features_backward(const Exec& exec, int64_t pairs, int64_t width, const float* x,
                            const float* dy, float* dx, bool accumulate) {
  parallel_for(exec, pairs, [=](int64_t pair) {
    const float* a = x + 2 * pair * width;
    const float* b = a + width;
    const float* d = dy + 4 * pair * width;
    float* da = dx + 2 * pair * width;
    float* db = da + width;
    for (int64_t i = 0; i < width; ++i) {
      const float ga = d[i] + d[2 * width + i] * b[i] + d[3 * width + i];
      const float gb = d[width + i] + d[2 * width + i] * a[i] - d[3 * width + i];
      da[i] = accumulate ? da[i] + ga : ga;
      db[i] = accumulate ? db[i] + gb : gb;
    }
  });
}

}  // namespace primal::cpu

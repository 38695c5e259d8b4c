#include "kernels/cuda/each.h"

// Kernels along the positions of sequences (batch, length, width).

namespace primal::PRIMAL_DEVICE {
namespace {

constexpr int kChunks = 16;  // parts of a sequence that are scanned side by side

/// The terms of a running mean: x[t], to be divided by the positions so far.
struct Mean {
  const float* x;
  float* out;
  static constexpr bool kBackward = false;
  __device__ float term(int64_t at, float) const { return x[at]; }
  __device__ void give(int64_t at, float sum, float share) const { out[at] = sum * share; }
};

/// Those of its gradient: dx[t] = sum over s >= t of dy[s] / (s + 1), from the end.
struct MeanGradient {
  const float* dy;
  float* dx;
  bool accumulate;
  static constexpr bool kBackward = true;
  __device__ float term(int64_t at, float share) const { return dy[at] * share; }
  __device__ void give(int64_t at, float sum, float) const { put(dx + at, sum, accumulate); }
};

// A block scans 32 neighbouring columns of a sample in 16 chunks: each thread sums its chunk, the
// chunks' sums meet in shared memory, and each thread goes through its chunk again from the sum of
// those before. The second reading comes from the cache.
template <class Scan>
__global__ void scan_kernel(int64_t length, int64_t width, Scan scan) {
  SharedMemory shared;
  float* sums = shared.array<float>(kChunks * kWarp);
  const int64_t tiles = (width + kWarp - 1) / kWarp;
  const int64_t sample = blockIdx.x / tiles;
  const int64_t column = blockIdx.x % tiles * kWarp + threadIdx.x;
  const int chunk = static_cast<int>(threadIdx.y);
  const int64_t height = (length + kChunks - 1) / kChunks;
  const int64_t begin = chunk * height;
  const int64_t end = begin + height < length ? begin + height : length;
  const auto visit = [&](int64_t step, auto&& f) {
    const int64_t t = Scan::kBackward ? length - 1 - step : step;
    f((sample * length + t) * width + column, 1 / static_cast<float>(t + 1));
  };
  float sum = 0;
  if (column < width) {
    for (int64_t s = begin; s < end; ++s)
      visit(s, [&](int64_t at, float share) { sum += scan.term(at, share); });
  }
  sums[chunk * kWarp + static_cast<int>(threadIdx.x)] = sum;
  __syncthreads();
  if (column >= width) return;
  sum = 0;
  for (int c = 0; c < chunk; ++c) sum += sums[c * kWarp + static_cast<int>(threadIdx.x)];
  for (int64_t s = begin; s < end; ++s) {
    visit(s, [&](int64_t at, float share) {
      sum += scan.term(at, share);
      scan.give(at, sum, share);
    });
  }
}

template <class Scan>
void scan(const Exec& exec, int64_t batch, int64_t length, int64_t width, const Scan& scan) {
  launch<scan_kernel<Scan>>(exec, grid_of(batch * blocks_of(width, kWarp)), dim3(kWarp, kChunks),
                            kChunks * kWarp * sizeof(float), length, width, scan);
}

/// Of each position in a mean over `count`.
__device__ float mean_share(int64_t count) {
  return count > 0 ? 1 / static_cast<float>(count) : 0.0F;
}

// A block adds up 32 neighbouring columns of a sample: a sixteenth of the positions per thread, the
// sixteen in shared memory.
__global__ void mean_kernel(int64_t length, int64_t width, const int32_t* lengths, bool own_length,
                            const float* x, float* out) {
  SharedMemory shared;
  float* sums = shared.array<float>(kChunks * kWarp);
  const int64_t tiles = (width + kWarp - 1) / kWarp;
  const int64_t sample = blockIdx.x / tiles;
  const int64_t column = blockIdx.x % tiles * kWarp + threadIdx.x;
  const int64_t real = lengths != nullptr ? lengths[sample] : length;
  float sum = 0;
  if (column < width) {
    for (int64_t t = threadIdx.y; t < real; t += kChunks) {
      sum += x[(sample * length + t) * width + column];
    }
  }
  sums[threadIdx.y * kWarp + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
  for (int chunk = 1; chunk < kChunks; ++chunk) sum += sums[chunk * kWarp + threadIdx.x];
  out[sample * width + column] = sum * mean_share(own_length ? real : length);
}

struct MeanPositionsBackward {
  int64_t length, width;
  const int32_t* lengths;
  bool own_length;
  const float* dy;
  float* dx;
  bool accumulate;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / width;
    const int64_t b = row / length;
    const int64_t real = lengths != nullptr ? lengths[b] : length;
    const float share = row % length < real ? mean_share(own_length ? real : length) : 0.0F;
    put(dx + i, share * dy[b * width + i % width], accumulate);
  }
};

struct PairFeatures {
  int64_t width;
  const float* x;
  float* out;
  __device__ void operator()(int64_t i) const {
    const float* a = x + i / width * 2 * width + i % width;
    float* outs = out + i / width * 4 * width + i % width;
    outs[0] = a[0];
    outs[width] = a[width];
    outs[2 * width] = a[0] * a[width];
    outs[3 * width] = a[0] - a[width];
  }
};

struct PairFeaturesBackward {
  int64_t width;
  const float* x;
  const float* dy;
  float* dx;
  bool accumulate;
  __device__ void operator()(int64_t i) const {
    const int64_t at = i / width * 2 * width + i % width;
    const float* d = dy + i / width * 4 * width + i % width;
    put(dx + at, d[0] + d[2 * width] * x[at + width] + d[3 * width], accumulate);
    put(dx + at + width, d[width] + d[2 * width] * x[at] - d[3 * width], accumulate);
  }
};

struct GatherRows {
  int64_t length, width, rows;
  const int32_t* index;  // (batch, rows)
  const float* x;
  float* out;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / width;
    out[i] = x[(row / rows * length + index[row]) * width + i % width];
  }
};

// Several rows may come from one position: a thread owns a column of a sample and adds its rows in
// order.
struct GatherRowsBackward {
  int64_t length, width, rows;
  const int32_t* index;
  const float* dy;
  float* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t b = i / width;
    for (int64_t row = b * rows; row < (b + 1) * rows; ++row) {
      dx[(b * length + index[row]) * width + i % width] += dy[row * width + i % width];
    }
  }
};

/// The sum of a column over the positions of a piece.
struct PieceSums {
  TokenGroups g;
  int64_t width;
  const float* dy;
  float* sums;  // (pieces, width)
  __device__ void operator()(int64_t i) const {
    const int64_t piece = i / width;
    float sum = 0;
    for (int32_t at = g.piece_starts[piece]; at < g.piece_starts[piece + 1]; ++at) {
      sum += dy[g.order[at] * width + i % width];
    }
    sums[i] = sum;
  }
};

struct GroupSums {
  TokenGroups g;
  int64_t width;
  const float* sums;
  float* dtable;
  __device__ void operator()(int64_t i) const {
    const int64_t group = i / width;
    float sum = 0;
    for (int32_t piece = g.group_pieces[group]; piece < g.group_pieces[group + 1]; ++piece) {
      sum += sums[piece * width + i % width];
    }
    dtable[g.ids[group] * width + i % width] += sum;
  }
};

}  // namespace

void running_mean(const Exec& exec, int64_t batch, int64_t length, int64_t width, const float* x,
                  float* out) {
  scan(exec, batch, length, width, Mean{x, out});
}

void running_mean_backward(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                           const float* dy, float* dx, bool accumulate) {
  scan(exec, batch, length, width, MeanGradient{dy, dx, accumulate});
}

void gather_rows(const Exec& exec, int64_t batch, int64_t length, int64_t width, int64_t rows,
                 const int32_t* index, const float* x, float* out) {
  each(exec, batch * rows * width, GatherRows{length, width, rows, index, x, out});
}

void gather_rows_backward(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                          int64_t rows, const int32_t* index, const float* dy, float* dx) {
  each(exec, batch * width, GatherRowsBackward{length, width, rows, index, dy, dx});
}

void embedding_backward(const Exec& exec, const TokenGroups& g, int64_t width, const float* dy,
                        float* dtable) {
  const Scratch<float> sums(exec, g.pieces * width);
  each(exec, g.pieces * width, PieceSums{g, width, dy, sums.data()});
  each(exec, g.groups * width, GroupSums{g, width, sums.data(), dtable});
}

void mean_positions(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                    const int32_t* lengths, bool own_length, const float* x, float* out) {
  launch<mean_kernel>(exec, grid_of(batch * blocks_of(width, kWarp)), dim3(kWarp, kChunks),
                      kChunks * kWarp * sizeof(float), length, width, lengths, own_length, x, out);
}

void mean_positions_backward(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                             const int32_t* lengths, bool own_length, const float* dy, float* dx,
                             bool accumulate) {
  each(exec, batch * length * width,
       MeanPositionsBackward{length, width, lengths, own_length, dy, dx, accumulate});
}

void pair_features(const Exec& exec, int64_t pairs, int64_t width, const float* x, float* out) {
  each(exec, pairs * width, PairFeatures{width, x, out});
}

void pair_features_backward(const Exec& exec, int64_t pairs, int64_t width, const float* x,
                            const float* dy, float* dx, bool accumulate) {
  each(exec, pairs * width, PairFeaturesBackward{width, x, dy, dx, accumulate});
}

}  // namespace primal::PRIMAL_DEVICE

#include "kernels/cuda/each.h"

// The KSVD loss and the cross entropy. Nothing here waits for the host: every factor is read where
// it lies.

namespace primal::PRIMAL_DEVICE {
namespace {

constexpr int kWarps = kThreads / kWarp;

__device__ int64_t real_positions(const KsvdArgs& a, int64_t b) {
  return a.lengths != nullptr ? a.lengths[b] : a.length;
}

/// The weight 1 / (heads * positions) of sample b's squares in its mean.
__device__ double moment_weight(const KsvdArgs& a, int64_t b) {
  int64_t positions = 0;
  if (a.per_sample) {
    positions = real_positions(a, b);
  } else {
    for (int64_t i = 0; i < a.batch; ++i) positions += real_positions(a, i);
  }
  return 1.0 / static_cast<double>(a.heads * (positions > 1 ? positions : 1));
}

/// What one unit of dJ_b is worth: d(J^2)/dJ, over the samples whose losses are averaged.
__device__ double sample_weight(const KsvdArgs& a, const float* j, const float* dloss, int64_t b) {
  return 2.0 * j[b] * *dloss / (a.per_sample ? static_cast<double>(a.batch) : 1.0);
}

__host__ __device__ inline int64_t trace_size(const KsvdArgs& a) {
  return a.heads * a.trace_rows * a.rank;
}

// moments (batch, heads, rank) = sum over positions of e^2 + r^2, both read in one pass: a block
// takes a head of a sample and 32 components, 8 threads to a component, whose sums meet in shared
// memory.
__global__ void moments_kernel(KsvdArgs a, double* moments) {
  SharedMemory shared;
  double* meeting = shared.array<double>(kThreads);
  const int64_t tiles = (a.rank + kWarp - 1) / kWarp;
  const int64_t head = blockIdx.x / tiles;  // of all samples
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int part = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t s = blockIdx.x % tiles * kWarp + lane;
  double sum = 0;
  if (s < a.rank) {
    const int64_t real = real_positions(a, head / a.heads);
    for (int64_t t = part; t < real; t += kWarps) {
      const int64_t at =
          ((head / a.heads * a.length + t) * a.heads + head % a.heads) * a.stride + s;
      sum += static_cast<double>(a.e[at]) * a.e[at] + static_cast<double>(a.r[at]) * a.r[at];
    }
  }
  meeting[threadIdx.x] = sum;
  __syncthreads();
  if (part > 0 || s >= a.rank) return;
  for (int p = 1; p < kWarps; ++p) sum += meeting[p * kWarp + lane];
  moments[head * a.rank + s] = sum;
}

/// parts (batch): 1/2 weight * sum of lambda^2 * moments; a block per sample.
__global__ void squares_kernel(KsvdArgs a, const double* moments, double* parts) {
  const int64_t b = blockIdx.x;
  const double sum = block_total(a.heads * a.rank, [&](int64_t i) {
    return static_cast<double>(a.lambda[i]) * a.lambda[i] * moments[b * a.heads * a.rank + i];
  });
  if (threadIdx.x == 0) parts[b] = 0.5 * sum * moment_weight(a, b);
}

/// traces (trace_batch): sum of trace_e * trace_r / heads; a block per trace.
__global__ void traces_kernel(KsvdArgs a, double* traces) {
  const int64_t size = trace_size(a);
  const double sum = block_total(size, [&](int64_t i) {
    const int64_t at = blockIdx.x * size + i;
    return static_cast<double>(a.trace_e[at]) * a.trace_r[at];
  });
  if (threadIdx.x == 0) traces[blockIdx.x] = sum / static_cast<double>(a.heads);
}

/// J and the loss from what the kernels above left; one block.
__global__ void objective_kernel(KsvdArgs a, const double* parts, const double* traces, float* j,
                                 float* loss) {
  double result = 0;
  if (a.per_sample) {
    result = block_total(a.batch, [&](int64_t b) {
      const double objective = parts[b] - traces[a.trace_batch == 1 ? 0 : b];
      j[b] = static_cast<float>(objective);
      return objective * objective / static_cast<double>(a.batch);
    });
  } else {
    const double squares = block_total(a.batch, [&](int64_t b) { return parts[b]; });
    const double trace = block_total(a.trace_batch, [&](int64_t b) { return traces[b]; });
    const double whole = squares - trace / static_cast<double>(a.trace_batch);
    for (int64_t b = threadIdx.x; b < a.batch; b += kThreads) j[b] = static_cast<float>(whole);
    result = whole * whole;
  }
  if (threadIdx.x == 0) *loss = static_cast<float>(result);
}

void launch_moments(const Exec& exec, const KsvdArgs& a, double* moments) {
  launch<moments_kernel>(exec, grid_of(a.batch * a.heads * blocks_of(a.rank, kWarp)), kThreads,
                         kThreads * sizeof(double), a, moments);
}

/// factors (batch): what multiplies lambda^2 e in de.
struct ScoreFactors {
  KsvdArgs a;
  const float* j;
  const float* dloss;
  float* factors;
  __device__ void operator()(int64_t b) const {
    factors[b] = static_cast<float>(sample_weight(a, j, dloss, b) * moment_weight(a, b));
  }
};

/// de (+)= factor lambda^2 e at real positions, 0 at the others; dr likewise.
struct ScoreGradient {
  KsvdArgs a;
  const float* factors;
  const float* score;
  float* gradient;
  bool accumulate;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / a.rank;  // a head of a position
    const int64_t position = row / a.heads;
    const int64_t b = position / a.length;
    const int64_t at = row * a.stride + i % a.rank;
    const float lambda = a.lambda[row % a.heads * a.rank + i % a.rank];
    const bool real = position % a.length < real_positions(a, b);
    put(gradient + at, real ? factors[b] * lambda * lambda * score[at] : 0.0F, accumulate);
  }
};

struct LambdaGradient {
  KsvdArgs a;
  const float* j;
  const float* dloss;
  const double* moments;
  float* dlambda;
  __device__ void operator()(int64_t i) const {
    double sum = 0;
    for (int64_t b = 0; b < a.batch; ++b) {
      sum +=
          sample_weight(a, j, dloss, b) * moment_weight(a, b) * moments[b * a.heads * a.rank + i];
    }
    dlambda[i] += static_cast<float>(sum * a.lambda[i]);
  }
};

/// factors (trace_batch): what multiplies trace_r in dtrace_e. In the per-sample form each J_b has
/// the whole trace; in the batch form J has their mean.
struct TraceFactors {
  KsvdArgs a;
  const float* j;
  const float* dloss;
  float* factors;
  __device__ void operator()(int64_t b) const {
    double weight = 0;
    if (!a.per_sample) {
      weight = sample_weight(a, j, dloss, 0) / static_cast<double>(a.trace_batch);
    } else if (a.trace_batch == 1) {
      for (int64_t i = 0; i < a.batch; ++i) weight += sample_weight(a, j, dloss, i);
    } else {
      weight = sample_weight(a, j, dloss, b);
    }
    factors[b] = static_cast<float>(-weight / static_cast<double>(a.heads));
  }
};

struct TraceGradient {
  int64_t size;
  const float* factors;
  const float* other;
  float* gradient;
  __device__ void operator()(int64_t i) const { gradient[i] += factors[i / size] * other[i]; }
};

// A warp per row: probabilities in place of exp(logit - max), the row's loss, and whether its first
// largest logit is the label's.
__global__ void cross_entropy_kernel(int64_t rows, int64_t classes, const float* logits,
                                     const int32_t* labels, float* probabilities, double* losses,
                                     float* right) {
  const int64_t row = thread_in_grid() / kWarp;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* x = logits + row * classes;
  float* p = probabilities + row * classes;
  float top = x[0];
  for (int64_t i = lane; i < classes; i += kWarp) top = fmaxf(top, x[i]);
  top = warp_max(top);
  double sum = 0;
  int64_t first = classes;
  for (int64_t i = lane; i < classes; i += kWarp) {
    if (x[i] == top && i < first) first = i;
    p[i] = expf(x[i] - top);
    sum += p[i];
  }
  sum = warp_sum(sum);
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const int64_t other = __shfl_xor_sync(kAllLanes, first, step);
    if (other < first) first = other;
  }
  for (int64_t i = lane; i < classes; i += kWarp) p[i] = static_cast<float>(p[i] / sum);
  if (lane == 0) {
    losses[row] = log(sum) - (static_cast<double>(x[labels[row]]) - top);
    right[row] = first == labels[row] ? 1.0F : 0.0F;
  }
}

/// Mean loss and number of right rows; one block.
__global__ void mean_loss_kernel(int64_t rows, const double* losses, const float* right,
                                 float* loss, float* correct) {
  const double total = block_total(rows, [&](int64_t row) { return losses[row]; });
  const double hits = block_total(rows, [&](int64_t row) { return right[row]; });
  if (threadIdx.x == 0) {
    *loss = static_cast<float>(total / static_cast<double>(rows));
    *correct = static_cast<float>(hits);
  }
}

struct CrossEntropyGradient {
  int64_t rows, classes;
  const float* probabilities;
  const int32_t* labels;
  const float* dloss;
  float* dlogits;
  bool accumulate;
  __device__ void operator()(int64_t i) const {
    const float target = i % classes == labels[i / classes] ? 1.0F : 0.0F;
    put(dlogits + i, (probabilities[i] - target) * (*dloss / static_cast<float>(rows)), accumulate);
  }
};

}  // namespace

void ksvd(const Exec& exec, const KsvdArgs& a, float* j, float* loss) {
  const Scratch<double> moments(exec, a.batch * a.heads * a.rank);
  const Scratch<double> parts(exec, a.batch);
  const Scratch<double> traces(exec, a.trace_batch);
  launch_moments(exec, a, moments.data());
  launch<squares_kernel>(exec, grid_of(a.batch), kThreads, kTotalBytes, a, moments.data(),
                         parts.data());
  launch<traces_kernel>(exec, grid_of(a.trace_batch), kThreads, kTotalBytes, a, traces.data());
  launch<objective_kernel>(exec, 1, kThreads, kTotalBytes, a, parts.data(), traces.data(), j, loss);
}

// dJ^2 = 2 J dJ;  dJ/de = Lambda^2 e / (heads positions);  dJ/dLambda = Lambda sum(e^2 + r^2) /
// (heads positions); dJ/dP_e = -P_r / heads.
void ksvd_backward(const Exec& exec, const KsvdArgs& a, const float* j, const float* dloss,
                   const KsvdGradients& g) {
  if (a.batch == 0) return;  // nothing has a share in the loss
  const Scratch<float> factors(exec, a.batch);
  each(exec, a.batch, ScoreFactors{a, j, dloss, factors.data()});
  const int64_t scores = a.batch * a.heads * a.length * a.rank;
  if (g.de != nullptr)
    each(exec, scores, ScoreGradient{a, factors.data(), a.e, g.de, g.accumulate_de});
  if (g.dr != nullptr)
    each(exec, scores, ScoreGradient{a, factors.data(), a.r, g.dr, g.accumulate_dr});
  if (g.dlambda != nullptr) {
    const Scratch<double> moments(exec, a.batch * a.heads * a.rank);
    launch_moments(exec, a, moments.data());
    each(exec, a.heads * a.rank, LambdaGradient{a, j, dloss, moments.data(), g.dlambda});
  }
  const Scratch<float> trace_factors(exec, a.trace_batch);
  each(exec, a.trace_batch, TraceFactors{a, j, dloss, trace_factors.data()});
  const int64_t size = trace_size(a);
  const int64_t all = a.trace_batch * size;
  if (g.dtrace_e != nullptr)
    each(exec, all, TraceGradient{size, trace_factors.data(), a.trace_r, g.dtrace_e});
  if (g.dtrace_r != nullptr)
    each(exec, all, TraceGradient{size, trace_factors.data(), a.trace_e, g.dtrace_r});
}

void cross_entropy(const Exec& exec, int64_t rows, int64_t classes, const float* logits,
                   const int32_t* labels, float* loss, float* probabilities, float* correct) {
  const Scratch<double> losses(exec, rows);
  const Scratch<float> right(exec, rows);
  launch<cross_entropy_kernel>(exec, grid_of(blocks_of(rows, kWarps)), kThreads, 0, rows, classes,
                               logits, labels, probabilities, losses.data(), right.data());
  launch<mean_loss_kernel>(exec, 1, kThreads, kTotalBytes, rows, losses.data(), right.data(), loss,
                           correct);
}

void cross_entropy_backward(const Exec& exec, int64_t rows, int64_t classes,
                            const float* probabilities, const int32_t* labels, const float* dloss,
                            float* dlogits, bool accumulate) {
  each(exec, rows * classes,
       CrossEntropyGradient{rows, classes, probabilities, labels, dloss, dlogits, accumulate});
}

}  // namespace primal::PRIMAL_DEVICE

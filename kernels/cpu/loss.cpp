#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/kernels.h"

namespace primal::cpu {
namespace {

/// Where the scores of position t begin; `item` counts the heads of all samples.
int64_t score_row(const KsvdArgs& a, int64_t item, int64_t t) {
  return ((item / a.heads * a.length + t) * a.heads + item % a.heads) * a.stride;
}

/// Sums over positions of squared scores, per sample, head and component: (batch, heads, rank).
std::vector<double> second_moments(const Exec& exec, const KsvdArgs& a, const float* score) {
  std::vector<double> sums(static_cast<size_t>(a.batch * a.heads * a.rank), 0.0);
  parallel_for(exec, a.batch * a.heads, [&](int64_t item) {
    const int64_t real = a.lengths != nullptr ? a.lengths[item / a.heads] : a.length;
    double* sum = sums.data() + item * a.rank;
    for (int64_t t = 0; t < real; ++t) {
      const float* row = score + score_row(a, item, t);
      for (int64_t i = 0; i < a.rank; ++i) sum[i] += static_cast<double>(row[i]) * row[i];
    }
  });
  return sums;
}

/// The weight 1 / (heads * positions) of sample b's squares in its mean.
double moment_weight(const KsvdArgs& a, int64_t b) {
  int64_t positions = 0;
  if (a.per_sample) {
    positions = a.lengths != nullptr ? a.lengths[b] : a.length;
  } else {
    for (int64_t i = 0; i < a.batch; ++i) {
      positions += a.lengths != nullptr ? a.lengths[i] : a.length;
    }
  }
  return 1.0 / static_cast<double>(a.heads * std::max<int64_t>(positions, 1));
}

int64_t trace_size(const KsvdArgs& a) {
  return a.heads * a.trace_rows * a.rank;
}

}  // namespace

void ksvd(const Exec& exec, const KsvdArgs& a, float* j, float* loss) {
  std::vector<double> traces(static_cast<size_t>(a.trace_batch), 0.0);
  parallel_for(exec, a.trace_batch, [&](int64_t b) {
    const float* pe = a.trace_e + b * trace_size(a);
    const float* pr = a.trace_r + b * trace_size(a);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < trace_size(a); ++i) sum += static_cast<double>(pe[i]) * pr[i];
    traces[b] = sum / static_cast<double>(a.heads);
  });
  const std::vector<double> moments_e = second_moments(exec, a, a.e);
  const std::vector<double> moments_r = second_moments(exec, a, a.r);
  std::vector<double> objective(static_cast<size_t>(a.batch), 0.0);
  for (int64_t b = 0; b < a.batch; ++b) {
    double squares = 0;
    for (int64_t i = 0; i < a.heads * a.rank; ++i) {
      const double lambda = a.lambda[i];
      const int64_t at = b * a.heads * a.rank + i;
      squares += lambda * lambda * (moments_e[at] + moments_r[at]);
    }
    objective[b] = 0.5 * squares * moment_weight(a, b);
  }
  double total = 0;
  if (a.per_sample) {
    for (int64_t b = 0; b < a.batch; ++b) {
      objective[b] -= traces[a.trace_batch == 1 ? 0 : b];
      total += objective[b] * objective[b] / static_cast<double>(a.batch);
      j[b] = static_cast<float>(objective[b]);
    }
  } else {
    double whole = 0;
    for (const double part : objective) whole += part;
    for (const double trace : traces) whole -= trace / static_cast<double>(a.trace_batch);
    total = whole * whole;
    std::fill_n(j, a.batch, static_cast<float>(whole));
  }
  *loss = static_cast<float>(total);
}

// dJ^2 = 2 J dJ;  dJ/de = Lambda^2 e / (heads positions);  dJ/dLambda = Lambda sum(e^2 + r^2) /
// (heads positions); dJ/dP_e = -P_r / heads.
void ksvd_backward(const Exec& exec, const KsvdArgs& a, const float* j, const float* dloss,
                   const KsvdGradients& g) {
  if (a.batch == 0) return;  // nothing has a share in the loss
  // What one unit of dJ_b is worth.
  std::vector<double> weight(static_cast<size_t>(a.batch));
  for (int64_t b = 0; b < a.batch; ++b) {
    weight[b] = 2.0 * j[b] * *dloss / (a.per_sample ? static_cast<double>(a.batch) : 1.0);
  }
  const auto score_gradient = [&](const float* score, float* gradient, bool accumulate) {
    if (gradient == nullptr) return;
    parallel_for(exec, a.batch * a.heads, [&](int64_t item) {
      const int64_t b = item / a.heads;
      const int64_t real = a.lengths != nullptr ? a.lengths[b] : a.length;
      const auto factor = static_cast<float>(weight[b] * moment_weight(a, b));
      const float* lambda = a.lambda + item % a.heads * a.rank;
      for (int64_t t = 0; t < (accumulate ? real : a.length); ++t) {
        const float* row = score + score_row(a, item, t);
        float* out = gradient + score_row(a, item, t);
        for (int64_t i = 0; i < a.rank; ++i) {
          const float slope = t < real ? factor * lambda[i] * lambda[i] * row[i] : 0.0F;
          out[i] = accumulate ? out[i] + slope : slope;
        }
      }
    });
  };
  score_gradient(a.e, g.de, g.accumulate_de);
  score_gradient(a.r, g.dr, g.accumulate_dr);
  if (g.dlambda != nullptr) {
    const std::vector<double> moments_e = second_moments(exec, a, a.e);
    const std::vector<double> moments_r = second_moments(exec, a, a.r);
    for (int64_t i = 0; i < a.heads * a.rank; ++i) {
      double sum = 0;
      for (int64_t b = 0; b < a.batch; ++b) {
        const int64_t at = b * a.heads * a.rank + i;
        sum += weight[b] * moment_weight(a, b) * (moments_e[at] + moments_r[at]);
      }
      g.dlambda[i] += static_cast<float>(sum * a.lambda[i]);
    }
  }
  if (g.dtrace_e == nullptr && g.dtrace_r == nullptr) return;
  // In the per-sample form each J_b has the whole trace; in the batch form J has their mean.
  std::vector<double> trace_weight(static_cast<size_t>(a.trace_batch), 0.0);
  if (a.per_sample) {
    for (int64_t b = 0; b < a.batch; ++b) trace_weight[a.trace_batch == 1 ? 0 : b] += weight[b];
  } else {
    for (double& w : trace_weight) w = weight[0] / static_cast<double>(a.trace_batch);
  }
  for (int64_t b = 0; b < a.trace_batch; ++b) {
    const auto factor = static_cast<float>(-trace_weight[b] / static_cast<double>(a.heads));
    const int64_t at = b * trace_size(a);
    if (g.dtrace_e != nullptr) {
      scale(exec, trace_size(a), factor, a.trace_r + at, g.dtrace_e + at, true);
    }
    if (g.dtrace_r != nullptr) {
      scale(exec, trace_size(a), factor, a.trace_e + at, g.dtrace_r + at, true);
    }
  }
}

void cross_entropy(const Exec&, int64_t rows, int64_t classes, const float* logits,
                   const int32_t* labels, float* loss, float* probabilities, float* correct) {
  double total = 0;
  int64_t right = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = logits + row * classes;
    float* p = probabilities + row * classes;
    const float* top = std::max_element(x, x + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(static_cast<double>(x[i]) - *top);
    for (int64_t i = 0; i < classes; ++i) {
      p[i] = static_cast<float>(std::exp(static_cast<double>(x[i]) - *top) / sum);
    }
    total += std::log(sum) - (static_cast<double>(x[labels[row]]) - *top);
    right += top - x == labels[row] ? 1 : 0;
  }
  *loss = static_cast<float>(total / static_cast<double>(rows));
  *correct = static_cast<float>(right);
}

void cross_entropy_backward(const Exec&, int64_t rows, int64_t classes, const float* probabilities,
                            const int32_t* labels, const float* dloss, float* dlogits,
                            bool accumulate) {
  const float factor = *dloss / static_cast<float>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < classes; ++i) {
      const int64_t at = row * classes + i;
      const float target = i == labels[row] ? 1.0F : 0.0F;
      const float g = (probabilities[at] - target) * factor;
      dlogits[at] = accumulate ? dlogits[at] + g : g;
    }
  }
}

}  // namespace primal::cpu

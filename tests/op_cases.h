#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "core/ops.h"

// The cases of every differentiable op. One OpCase serves the value test, the gradient check, the
// thread-invariance test, and comparisons of backends: it knows inputs, the op, and a reference in
// double precision that is written with plain loops and shares nothing with the kernels.

namespace primal::testing {

using Values = std::vector<double>;

struct OpInput {
  Shape shape;
  Values values;  ///< exactly representable in single precision
};

/// An op's inputs on a backend, in the order of OpCase.
struct OpOperands {
  std::vector<Var> inputs;
  std::vector<Tensor> integers;
};

struct OpCase {
  std::string name;  ///< "op: what is special"
  std::vector<OpInput> inputs;
  std::vector<std::vector<int32_t>> integers;  ///< labels or lengths
  std::function<Var(Context&, const OpOperands&)> op;
  std::function<Values(const std::vector<Values>&)> reference;
  double tolerance = 1e-6;           ///< of the values, see error_of
  double gradient_tolerance = 1e-5;  ///< of each input's gradient
  bool differentiable = true;
  /// The gradients' error counts relative to the largest element, or to this size of the terms that
  /// cancel in them where that is larger.
  double gradient_terms = 1e-4;
  int64_t gradient_samples =
      200;             ///< elements of each input checked by finite differences; 0: no check
  double step = 1e-4;  ///< of the finite differences
};

/// max|a - reference| / max|reference|; infinite or NaN where anything is.
inline double error_of(const std::vector<float>& a, const Values& reference) {
  if (a.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(a[i] - reference[i]));
    largest = std::max(largest, std::abs(reference[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

/// The key of the first mask that a case's op draws.
inline constexpr MaskKey kCaseKey{0xFEDCBA9876543210, 0x300000007, 0};

/// Mask factor of `element` under kCaseKey: the layout that kernels/cpu/dropout.h documents, by one
/// scalar Philox call per element.
inline double mask_factor(int64_t element, double p, MaskKey key = kCaseKey) {
  const int64_t at = element % 128;
  const auto counter = static_cast<uint64_t>(element / 128 * 16 + at % 16);
  const PhiloxWords words =
      philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), key.op,
              static_cast<uint32_t>(key.step)},
             static_cast<uint32_t>(key.seed),
             static_cast<uint32_t>(key.seed >> 32) ^ static_cast<uint32_t>(key.step >> 32));
  const uint32_t word = words[at / 32];
  const uint32_t half = at / 16 % 2 == 0 ? word & 0xFFFF : word >> 16;
  const auto keep_below = static_cast<uint32_t>(std::lround((1 - p) * 65536));
  return half < keep_below ? static_cast<double>(static_cast<float>(1 / (1 - p))) : 0.0;
}

/// Factors of a whole tensor of `count` elements.
inline Values mask_factors(int64_t count, double p) {
  Values factors(count, 1.0);
  if (p > 0) {
    for (int64_t i = 0; i < count; ++i) factors[i] = mask_factor(i, p);
  }
  return factors;
}

// ---- running a case --------------------------------------------------------------------------

struct OpResult {
  Shape shape;
  std::vector<float> output;
  std::vector<std::vector<float>> gradients;  ///< of each input
};

inline std::vector<float> to_host(const Backend& be, const Tensor& tensor) {
  std::vector<float> host(tensor.count());
  be.op->download(be.exec, tensor.count(), tensor.data(), host.data());
  return host;
}

inline Tensor to_device(const Backend& be, const Shape& shape, const Values& values) {
  const std::vector<float> host(values.begin(), values.end());
  Tensor tensor = be.empty(shape);
  be.op->upload(be.exec, tensor.count(), host.data(), tensor.data());
  return tensor;
}

inline Tensor to_device(const Backend& be, const std::vector<int32_t>& values) {
  Tensor tensor = be.empty({std::ssize(values)}, DType::i32);
  be.op->upload_integers(be.exec, tensor.count(), values.data(), tensor.data<int32_t>());
  return tensor;
}

/// Standard normal numbers of the stream `name`, rounded to single precision.
inline Values normal_values(int64_t count, std::string_view name, double std = 1) {
  RandomStream random(2023, hash_name(name));
  Values values(count);
  for (double& value : values) value = static_cast<float>(std * random.normal());
  return values;
}

/// The fixed weights w of the scalar <w, output> whose gradient is checked.
inline Values output_weights(const OpCase& c, int64_t count) {
  return normal_values(count, c.name + " weights");
}

/// A scalar that depends on `vars`, with d(scalar)/d(vars[i]) = gradients[i].
inline Var seed_gradients(Context& ctx, const std::vector<Var>& vars,
                          const std::vector<Tensor>& gradients) {
  return ctx.tape->record(ctx.backend.empty({1}), [vars, gradients](Tape& tape, const Tensor&) {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (vars[i].needs_gradient()) tape.give(vars[i], gradients[i]);
    }
  });
}

/// The op's output and the gradients of <weights, output> with respect to every input.
/// With `added`, the inputs have these gradients already when the op adds its own.
inline OpResult run_op(const OpCase& c, Backend& be, const std::vector<Values>* added = nullptr) {
  ParameterSet none;
  Tape tape(be);
  Context ctx(be, none, tape, Rng(kCaseKey.seed, kCaseKey.step));
  OpOperands operands;
  std::vector<Tensor> gradients;
  for (const OpInput& input : c.inputs) {
    Var var{to_device(be, input.shape, input.values)};
    if (c.differentiable) {
      // What the tape has to overwrite.
      gradients.push_back(to_device(
          be, input.shape, Values(input.values.size(), std::numeric_limits<double>::quiet_NaN())));
      var.node = tape.leaf(gradients.back());
    }
    operands.inputs.push_back(var);
  }
  for (const std::vector<int32_t>& integers : c.integers) {
    operands.integers.push_back(to_device(be, integers));
  }
  OpResult result;
  Var out = c.op(ctx, operands);
  result.shape = out.shape();
  result.output = to_host(be, out.value);
  if (!c.differentiable) return result;
  std::vector<Var> seeded{out};
  std::vector<Tensor> seeds{to_device(be, out.shape(), output_weights(c, out.value.count()))};
  if (added != nullptr) {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      seeded.push_back(operands.inputs[i]);
      seeds.push_back(to_device(be, c.inputs[i].shape, (*added)[i]));
    }
  }
  tape.backward(seed_gradients(ctx, seeded, seeds));
  for (const Tensor& gradient : gradients) result.gradients.push_back(to_host(be, gradient));
  return result;
}

// ---- references ------------------------------------------------------------------------------

namespace reference {

/// x (rows, in), weight (out, in), bias (out) or empty -> (rows, out).
inline Values linear(const Values& x, const Values& weight, const Values& bias, int64_t rows,
                     int64_t in, int64_t out) {
  Values y(rows * out);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * weight[o * in + i];
      y[r * out + o] = sum;
    }
  }
  return y;
}

inline Values layer_norm(const Values& x, const Values& weight, const Values& bias, double eps) {
  const auto width = static_cast<int64_t>(weight.size());
  Values y(x.size());
  for (int64_t at = 0; at < std::ssize(x); at += width) {
    double mean = 0;
    for (int64_t i = 0; i < width; ++i) mean += x[at + i] / static_cast<double>(width);
    double variance = 0;
    for (int64_t i = 0; i < width; ++i) {
      variance += (x[at + i] - mean) * (x[at + i] - mean) / static_cast<double>(width);
    }
    for (int64_t i = 0; i < width; ++i) {
      y[at + i] = (x[at + i] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i];
    }
  }
  return y;
}

inline double gelu(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

inline double gelu_slope(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
         x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
}

struct AttentionShape {
  int64_t batch, length, heads, head_width;
  bool causal = false;
  std::vector<int32_t> lengths = {};  ///< empty: all positions
  bool all_queries = false;
};

/// softmax(q k^T / sqrt(d)) * factors v; factors (batch, heads, length, length).
inline Values attention(const Values& q, const Values& k, const Values& v, const AttentionShape& a,
                        const Values& factors) {
  const int64_t width = a.heads * a.head_width;
  Values out(q.size(), 0.0);
  Values p(a.length);
  for (int64_t b = 0; b < a.batch; ++b) {
    const int64_t keys = a.lengths.empty() ? a.length : a.lengths[b];
    for (int64_t h = 0; h < a.heads; ++h) {
      const auto at = [&](int64_t t) { return (b * a.length + t) * width + h * a.head_width; };
      for (int64_t i = 0; i < (a.all_queries && keys > 0 ? a.length : keys); ++i) {
        const int64_t seen = a.causal ? std::min(i + 1, keys) : keys;
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t c = 0; c < a.head_width; ++c) score += q[at(i) + c] * k[at(j) + c];
          p[j] = score / std::sqrt(static_cast<double>(a.head_width));
          top = std::max(top, p[j]);
        }
        double sum = 0;
        for (int64_t j = 0; j < seen; ++j) sum += p[j] = std::exp(p[j] - top);
        const double* mask = factors.data() + ((b * a.heads + h) * a.length + i) * a.length;
        for (int64_t j = 0; j < seen; ++j) {
          for (int64_t c = 0; c < a.head_width; ++c) {
            out[at(i) + c] += p[j] / sum * mask[j] * v[at(j) + c];
          }
        }
      }
    }
  }
  return out;
}

/// Factors of attention probabilities, whose rows are padded to a multiple of 128 in the mask.
inline Values attention_factors(const AttentionShape& a, double p) {
  Values factors(a.batch * a.heads * a.length * a.length, 1.0);
  if (p == 0) return factors;
  const int64_t stride = (a.length + 127) / 128 * 128;
  for (int64_t row = 0; row < a.batch * a.heads * a.length; ++row) {
    for (int64_t j = 0; j < a.length; ++j) {
      factors[row * a.length + j] = mask_factor(row * stride + j, p);
    }
  }
  return factors;
}

inline Values normalize_heads(const Values& x, int64_t head_width) {
  Values g(x.size());
  for (int64_t at = 0; at < std::ssize(x); at += head_width) {
    double squares = 0;
    for (int64_t i = 0; i < head_width; ++i) squares += x[at + i] * x[at + i];
    for (int64_t i = 0; i < head_width; ++i) {
      g[at + i] = x[at + i] / std::max(std::sqrt(squares), 1e-12);
    }
  }
  return g;
}

struct KsvdShape {
  int64_t batch, heads, length, rank, trace_rows;
  bool shared_trace = true;
  bool per_sample = true;
  std::vector<int32_t> lengths = {};  ///< empty: all positions
  bool together = true;               ///< a head's e and r side by side, else two arrays
};

/// The loss by its definition: every mean and trace is summed element by element. `scores` is one
/// array or two, as the shape says.
inline double ksvd_loss(const std::vector<Values>& scores, const Values& lambda,
                        const Values& trace_e, const Values& trace_r, const KsvdShape& k) {
  const auto trace_of = [&](int64_t b) {
    double trace = 0;
    for (int64_t h = 0; h < k.heads; ++h) {
      for (int64_t s = 0; s < k.rank; ++s) {
        for (int64_t i = 0; i < k.trace_rows; ++i) {
          const int64_t at =
              (((k.shared_trace ? 0 : b) * k.heads + h) * k.trace_rows + i) * k.rank + s;
          trace += trace_e[at] * trace_r[at] / static_cast<double>(k.heads);
        }
      }
    }
    return trace;
  };
  double loss = 0;
  double all_squares = 0;
  double all_positions = 0;
  double all_traces = 0;
  for (int64_t b = 0; b < k.batch; ++b) {
    const int64_t real = k.lengths.empty() ? k.length : k.lengths[b];
    double squares = 0;
    for (int64_t h = 0; h < k.heads; ++h) {
      for (int64_t t = 0; t < real; ++t) {
        for (int64_t s = 0; s < k.rank; ++s) {
          const int64_t row = (b * k.length + t) * k.heads + h;
          const int64_t at = row * (k.together ? 2 : 1) * k.rank + s;
          const double l = lambda[h * k.rank + s];
          squares += std::pow(scores.front()[at] * l, 2) +
                     std::pow(scores.back()[at + (k.together ? k.rank : 0)] * l, 2);
        }
      }
    }
    const auto positions = static_cast<double>(k.heads * real);
    const double j = 0.5 * squares / positions - trace_of(b);
    loss += j * j / static_cast<double>(k.batch);
    all_squares += squares;
    all_positions += positions;
    all_traces += trace_of(b) / static_cast<double>(k.batch);
  }
  return k.per_sample ? loss : std::pow(0.5 * all_squares / all_positions - all_traces, 2);
}

inline Values softmax(const Values& logits, int64_t classes) {
  Values p(logits.size());
  for (int64_t at = 0; at < std::ssize(logits); at += classes) {
    const double top = *std::max_element(logits.begin() + at, logits.begin() + at + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += p[at + i] = std::exp(logits[at + i] - top);
    for (int64_t i = 0; i < classes; ++i) p[at + i] /= sum;
  }
  return p;
}

inline double cross_entropy(const Values& logits, const std::vector<int32_t>& labels,
                            int64_t classes) {
  double loss = 0;
  for (int64_t row = 0; row < std::ssize(labels); ++row) {
    const double* x = logits.data() + row * classes;
    const double top = *std::max_element(x, x + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(x[i] - top);
    loss += top + std::log(sum) - x[labels[row]];
  }
  return loss / static_cast<double>(labels.size());
}

}  // namespace reference

// ---- cases -----------------------------------------------------------------------------------

namespace cases {

inline std::string text(const Shape& shape) {
  return shape.text();
}

/// A case whose input i has shape shapes[i] and values of a stream of the case's own.
inline OpCase make(std::string name, std::vector<Shape> shapes, double std = 1) {
  OpCase c;
  c.name = std::move(name);
  for (size_t i = 0; i < shapes.size(); ++i) {
    c.inputs.push_back(
        {shapes[i], normal_values(shapes[i].count(), c.name + " input " + std::to_string(i), std)});
  }
  return c;
}

inline OpCase linear(Shape x, int64_t out, bool with_bias) {
  const int64_t in = x[-1];
  std::vector<Shape> shapes{x, {out, in}};
  if (with_bias) shapes.push_back({out});
  OpCase c =
      make("linear: " + text(x) + " to " + std::to_string(out) + (with_bias ? "" : " without bias"),
           shapes);
  c.op = [](Context& ctx, const OpOperands& o) {
    return ops::linear(ctx, o.inputs[0], o.inputs[1], o.inputs.size() > 2 ? o.inputs[2] : Var());
  };
  c.reference = [=](const std::vector<Values>& v) {
    return reference::linear(v[0], v[1], v.size() > 2 ? v[2] : Values(), x.count() / in, in, out);
  };
  return c;
}

inline OpCase matmul(int64_t m, int64_t k, int64_t n) {
  OpCase c = make("matmul: " + text({m, k}) + " by " + text({k, n}), {{m, k}, {k, n}});
  c.op = [](Context& ctx, const OpOperands& o) {
    return ops::matmul(ctx, o.inputs[0], o.inputs[1]);
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y(m * n, 0.0);
    for (int64_t at = 0; at < m * n; ++at) {
      for (int64_t i = 0; i < k; ++i) y[at] += v[0][at / n * k + i] * v[1][i * n + at % n];
    }
    return y;
  };
  return c;
}

inline OpCase repeat(int64_t width, int64_t times) {
  OpCase c = make("repeat: " + text({width}) + " by " + std::to_string(times), {{width}});
  c.op = [=](Context& ctx, const OpOperands& o) { return ops::repeat(ctx, o.inputs[0], times); };
  c.reference = [=](const std::vector<Values>& v) {
    Values y;
    for (int64_t i = 0; i < times; ++i) y.insert(y.end(), v[0].begin(), v[0].end());
    return y;
  };
  return c;
}

inline OpCase add_position(Shape x, int64_t positions, double scale) {
  OpCase c =
      make("add_position: " + text(x) + " of " + std::to_string(positions), {x, {positions, x[2]}});
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::add_position(ctx, o.inputs[0], o.inputs[1], static_cast<float>(scale));
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y = v[0];
    const int64_t count = x[1] * x[2];
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      y[i] = static_cast<float>(scale) * v[0][i] + v[1][i % count];
    }
    return y;
  };
  return c;
}

inline OpCase dropout(Shape x, double p) {
  OpCase c = make("dropout: " + text(x) + " p " + std::to_string(p), {x});
  c.op = [=](Context& ctx, const OpOperands& o) { return ops::dropout(ctx, o.inputs[0], p); };
  const Values factors = mask_factors(x.count(), p);
  c.reference = [=](const std::vector<Values>& v) {
    Values y = v[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] *= factors[i];
    return y;
  };
  return c;
}

inline OpCase activation(Shape x, Activation kind, double p, double std = 1) {
  const bool gelu = kind == Activation::gelu;
  OpCase c = make(std::string("activation: ") + (gelu ? "gelu " : "relu ") + text(x) + " p " +
                      std::to_string(p) + " std " + std::to_string(std),
                  {x}, std);
  if (!gelu) {  // finite differences must not straddle the kink
    for (double& value : c.inputs[0].values) {
      if (std::abs(value) < 2 * c.step) value = 0.5;
    }
  }
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::activation(ctx, o.inputs[0], kind, p);
  };
  const Values factors = mask_factors(x.count(), p);
  c.reference = [=](const std::vector<Values>& v) {
    Values y = v[0];
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = (gelu ? reference::gelu(y[i]) : std::max(y[i], 0.0)) * factors[i];
    }
    return y;
  };
  return c;
}

inline OpCase add_dropout(Shape x, double p) {
  OpCase c = make("add_dropout: " + text(x) + " p " + std::to_string(p), {x, x});
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::add_dropout(ctx, o.inputs[0], o.inputs[1], p);
  };
  const Values factors = mask_factors(x.count(), p);
  c.reference = [=](const std::vector<Values>& v) {
    Values y = v[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] += v[1][i] * factors[i];
    return y;
  };
  return c;
}

inline OpCase layer_norm(Shape x, double eps, double offset = 0) {
  const int64_t width = x[-1];
  OpCase c = make("layer_norm: " + text(x) + " eps " + std::to_string(eps) + " offset " +
                      std::to_string(offset),
                  {x, {width}, {width}});
  for (double& value : c.inputs[0].values) value = static_cast<float>(value + offset);
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::layer_norm(ctx, o.inputs[0], o.inputs[1], o.inputs[2], eps);
  };
  c.reference = [=](const std::vector<Values>& v) {
    return reference::layer_norm(v[0], v[1], v[2], static_cast<float>(eps));
  };
  // Rows of one or two elements normalise to (nearly) constants: dy / std cancels.
  if (width <= 2) c.gradient_terms = 1 / std::sqrt(eps);
  return c;
}

inline OpCase reshape(Shape from, Shape to) {
  OpCase c = make("reshape: " + text(from) + " to " + text(to), {from});
  c.op = [=](Context& ctx, const OpOperands& o) { return ops::reshape(ctx, o.inputs[0], to); };
  c.reference = [](const std::vector<Values>& v) { return v[0]; };
  return c;
}

inline OpCase mask_positions(Shape x, std::vector<int32_t> lengths, bool with_bias) {
  OpCase c = with_bias ? make("mask_positions: " + text(x) + " with bias", {x, {x[2]}})
                       : make("mask_positions: " + text(x), {x});
  c.integers = {lengths};
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::mask_positions(ctx, o.inputs[0], o.integers[0], with_bias ? o.inputs[1] : Var());
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y = v[0];
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      if (i / x[2] % x[1] >= lengths[i / (x[1] * x[2])]) y[i] = 0;
      if (with_bias) y[i] += v[1][i % x[2]];
    }
    return y;
  };
  return c;
}

inline OpCase mean_positions(Shape x, std::vector<int32_t> lengths, bool own_length) {
  OpCase c = make("mean_positions: " + text(x) + (lengths.empty() ? "" : " lengths") +
                      (own_length ? " own" : ""),
                  {x});
  if (!lengths.empty()) c.integers = {lengths};
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::mean_positions(ctx, o.inputs[0], lengths.empty() ? nullptr : &o.integers[0],
                               own_length);
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y(x[0] * x[2], 0.0);
    for (int64_t b = 0; b < x[0]; ++b) {
      const int64_t real = lengths.empty() ? x[1] : lengths[b];
      const int64_t divisor = own_length ? real : x[1];
      for (int64_t t = 0; t < real; ++t) {
        for (int64_t i = 0; i < x[2]; ++i) {
          y[b * x[2] + i] += v[0][(b * x[1] + t) * x[2] + i] / static_cast<double>(divisor);
        }
      }
    }
    return y;
  };
  return c;
}

inline OpCase pair_features(Shape x) {
  OpCase c = make("pair_features: " + text(x), {x});
  c.op = [](Context& ctx, const OpOperands& o) { return ops::pair_features(ctx, o.inputs[0]); };
  c.reference = [=](const std::vector<Values>& v) {
    const int64_t width = x[1];
    Values y(2 * v[0].size());
    for (int64_t pair = 0; pair < x[0] / 2; ++pair) {
      for (int64_t i = 0; i < width; ++i) {
        const double a = v[0][2 * pair * width + i];
        const double b = v[0][(2 * pair + 1) * width + i];
        const double features[] = {a, b, a * b, a - b};
        for (int64_t k = 0; k < 4; ++k) y[(4 * pair + k) * width + i] = features[k];
      }
    }
    return y;
  };
  return c;
}

inline OpCase attention(reference::AttentionShape a, double p, ops::AttentionForm form) {
  const Shape shape{a.batch, a.length, a.heads * a.head_width};
  const bool blockwise = form == ops::AttentionForm::blockwise;
  OpCase c = make(std::string("attention: ") + (blockwise ? "blockwise " : "materialized ") +
                      text(shape) + " heads " + std::to_string(a.heads) +
                      (a.causal ? " causal" : "") + (a.lengths.empty() ? "" : " lengths") +
                      (a.all_queries ? " all queries" : "") + (p > 0 ? " dropout" : ""),
                  {shape, shape, shape});
  if (!a.lengths.empty()) c.integers = {a.lengths};
  c.op = [=](Context& ctx, const OpOperands& o) {
    ops::AttentionOptions options;
    options.heads = a.heads;
    options.causal = a.causal;
    options.dropout = p;
    options.lengths = a.lengths.empty() ? nullptr : &o.integers[0];
    options.all_queries = a.all_queries;
    options.form = form;
    return ops::attention(ctx, o.inputs[0], o.inputs[1], o.inputs[2], options);
  };
  const Values factors = reference::attention_factors(a, p);
  c.reference = [=](const std::vector<Values>& v) {
    return reference::attention(v[0], v[1], v[2], a, factors);
  };
  c.gradient_terms = 1;  // dP - <dO, O> cancels where one key is seen
  if (a.length > 500) c.gradient_samples = 2;
  return c;
}

inline OpCase normalize_heads(Shape x, int64_t heads) {
  OpCase c = make("normalize_heads: " + text(x) + " heads " + std::to_string(heads), {x});
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::normalize_heads(ctx, o.inputs[0], heads);
  };
  c.reference = [=](const std::vector<Values>& v) {
    return reference::normalize_heads(v[0], x[-1] / heads);
  };
  return c;
}

inline OpCase running_mean(Shape x) {
  OpCase c = make("running_mean: " + text(x), {x});
  c.op = [](Context& ctx, const OpOperands& o) { return ops::running_mean(ctx, o.inputs[0]); };
  c.reference = [=](const std::vector<Values>& v) {
    Values y(v[0].size());
    for (int64_t b = 0; b < x[0]; ++b) {
      for (int64_t i = 0; i < x[2]; ++i) {
        double sum = 0;
        for (int64_t t = 0; t < x[1]; ++t) {
          sum += v[0][(b * x[1] + t) * x[2] + i];
          y[(b * x[1] + t) * x[2] + i] = sum / static_cast<double>(t + 1);
        }
      }
    }
    return y;
  };
  return c;
}

/// ops::sample_index in exact integer arithmetic. Double precision may differ from it by one where
/// i (length - 1) / (m - 1) is a whole number, which the cases' sizes avoid.
inline int64_t exact_row(int64_t i, int64_t m, int64_t length) {
  if (m == 1) return 0;
  const auto plain = [&](int64_t at) { return at * (length - 1) / (m - 1); };
  return i < m - m % 8 ? plain(i - i % 4) + plain(i % 4) : plain(i);
}

/// Tokens draw from the first `used` of the vocabulary.
inline OpCase embedding(Shape tokens, int64_t vocabulary, int64_t width, int64_t used) {
  OpCase c = make("embedding: " + text(tokens) + " of " + std::to_string(vocabulary) + " by " +
                      std::to_string(width) + ", " + std::to_string(used) + " used",
                  {{vocabulary, width}});
  std::vector<int32_t> ids;
  RandomStream random(7, hash_name("embedding"));
  for (int64_t i = 0; i < tokens.count(); ++i) {
    ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(used))));
  }
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::embedding(ctx, o.inputs[0], ops::Tokens(ctx.backend, ids, tokens, vocabulary));
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y;
    for (const int32_t id : ids) {
      y.insert(y.end(), v[0].begin() + id * width, v[0].begin() + (id + 1) * width);
    }
    return y;
  };
  return c;
}

inline OpCase sample_rows(Shape x, int64_t m, std::vector<int32_t> lengths) {
  OpCase c = make(
      "sample_rows: " + std::to_string(m) + " of " + text(x) + (lengths.empty() ? "" : " lengths"),
      {x});
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::sample_rows(ctx, o.inputs[0], m, lengths);
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y;
    for (int64_t b = 0; b < x[0]; ++b) {
      const int64_t length = lengths.empty() ? x[1] : lengths[b];
      for (int64_t i = 0; i < m; ++i) {
        const int64_t row = exact_row(i, m, length);
        for (int64_t d = 0; d < x[2]; ++d) y.push_back(v[0][(b * x[1] + row) * x[2] + d]);
      }
    }
    return y;
  };
  return c;
}

inline OpCase data_projection(int64_t batch, int64_t m, int64_t heads, int64_t head_width,
                              int64_t rank) {
  const Shape rows{batch, m, heads * head_width};
  const Shape projection{heads, m, rank};
  OpCase c = make("data_projection: " + text(rows) + " by " + text(projection), {rows, projection});
  c.op = [](Context& ctx, const OpOperands& o) {
    return ops::data_projection(ctx, o.inputs[0], o.inputs[1]);
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values w(batch * heads * head_width * rank, 0.0);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t d = 0; d < head_width; ++d) {
            for (int64_t s = 0; s < rank; ++s) {
              w[((b * heads + h) * head_width + d) * rank + s] +=
                  v[0][(b * m + i) * heads * head_width + h * head_width + d] *
                  v[1][(h * m + i) * rank + s];
            }
          }
        }
      }
    }
    return w;
  };
  return c;
}

inline OpCase project_scores(int64_t batch, int64_t length, int64_t heads, int64_t head_width,
                             int64_t rank, bool shared, int64_t sides) {
  const Shape g{batch, length, heads * head_width};
  const Shape projection =
      shared ? Shape{heads, head_width, rank} : Shape{batch, heads, head_width, rank};
  std::vector<Shape> shapes;
  for (int64_t i = 0; i < sides; ++i) shapes.insert(shapes.end(), {g, projection});
  OpCase c = make(
      "project_scores: " + text(g) + " by " + text(projection) + (sides > 1 ? ", both sides" : ""),
      shapes);
  c.op = [](Context& ctx, const OpOperands& o) {
    std::vector<ops::Projected> all;
    for (size_t i = 0; i < o.inputs.size(); i += 2) {
      all.push_back({o.inputs[i], o.inputs[i + 1]});
    }
    return ops::project_scores(ctx, all);
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values e(batch * length * heads * sides * rank, 0.0);
    for (int64_t at = 0; at < std::ssize(e); ++at) {
      const int64_t s = at % rank;
      const int64_t side = at / rank % sides;
      const int64_t h = at / (rank * sides) % heads;
      const int64_t row = at / (rank * sides * heads);
      const int64_t b = shared ? 0 : row / length;
      for (int64_t d = 0; d < head_width; ++d) {
        e[at] += v[2 * side][(row * heads + h) * head_width + d] *
                 v[2 * side + 1][((b * heads + h) * head_width + d) * rank + s];
      }
    }
    return e;
  };
  return c;
}

inline OpCase ksvd_loss(reference::KsvdShape k) {
  const Shape scores{k.batch, k.length, k.heads * (k.together ? 2 : 1) * k.rank};
  const Shape trace = k.shared_trace ? Shape{k.heads, k.trace_rows, k.rank}
                                     : Shape{k.batch, k.heads, k.trace_rows, k.rank};
  std::vector<Shape> shapes{{k.heads, k.rank}, trace, trace, scores};
  if (!k.together) shapes.push_back(scores);
  OpCase c = make(std::string("ksvd_loss: ") + text(scores) +
                      (k.per_sample ? " per sample" : " per batch") + " trace " + text(trace) +
                      (k.lengths.empty() ? "" : " lengths"),
                  shapes);
  if (!k.lengths.empty()) c.integers = {k.lengths};
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::ksvd_loss(ctx, {o.inputs.begin() + 3, o.inputs.end()}, o.inputs[0], o.inputs[1],
                          o.inputs[2],
                          {k.per_sample, k.lengths.empty() ? nullptr : &o.integers[0]});
  };
  c.reference = [=](const std::vector<Values>& v) {
    return Values{reference::ksvd_loss({v.begin() + 3, v.end()}, v[0], v[1], v[2], k)};
  };
  return c;
}

inline OpCase cross_entropy(int64_t rows, int64_t classes, double std) {
  OpCase c = make("cross_entropy: " + text({rows, classes}) + " std " + std::to_string(std),
                  {{rows, classes}}, std);
  std::vector<int32_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = static_cast<int32_t>(i * 7 % classes);
  c.integers = {labels};
  c.op = [](Context& ctx, const OpOperands& o) {
    return ops::cross_entropy(ctx, o.inputs[0], o.integers[0]).loss;
  };
  c.reference = [=](const std::vector<Values>& v) {
    return Values{reference::cross_entropy(v[0], labels, classes)};
  };
  return c;
}

inline OpCase probabilities(OpCase c, int64_t classes) {
  c.name += ", its probabilities";
  c.differentiable = false;
  c.op = [](Context& ctx, const OpOperands& o) {
    return Var{ops::cross_entropy(ctx, o.inputs[0], o.integers[0]).probabilities};
  };
  c.reference = [=](const std::vector<Values>& v) { return reference::softmax(v[0], classes); };
  return c;
}

inline OpCase add_scaled(Shape x, double factor) {
  OpCase c = make("add_scaled: " + text(x), {x, x});
  c.op = [=](Context& ctx, const OpOperands& o) {
    return ops::add_scaled(ctx, o.inputs[0], o.inputs[1], factor);
  };
  c.reference = [=](const std::vector<Values>& v) {
    Values y = v[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] += static_cast<float>(factor) * v[1][i];
    return y;
  };
  return c;
}

/// Scores of some 1e4, exact in single precision: the softmax is (nearly) one-hot.
inline OpCase large_scores(ops::AttentionForm form) {
  OpCase c = attention({2, 19, 1, 4, false, {}}, 0, form);
  c.name += " scores of 1e4";
  for (size_t i = 0; i < 2; ++i) {
    for (double& value : c.inputs[i].values) value = 32 * std::round(2 * value);
  }
  c.step = 1e-6;
  c.gradient_terms = 64;
  // log(sum exp), of the size of the scores, is kept in single precision for backward.
  if (form == ops::AttentionForm::blockwise) c.gradient_tolerance = 3e-4;
  return c;
}

/// GELU from deep in its tails to far beyond where x^2 overflows.
inline OpCase extreme_gelu() {
  OpCase c = activation({24}, Activation::gelu, 0);
  c.name = "activation: gelu of huge values";
  // One value per magnitude, so that the error of each counts: the reference is scaled by hand.
  c.inputs[0].values = {0,   -0.0, 1e-30, -1e-30, 1e-4, -1e-4, 1,    -1,
                        3,   -3,   6,     -6,     13.5, -13.5, 14,   -14,
                        100, -100, 1e5,   -1e5,   1e18, -1e18, 1e20, -1e20};
  for (double& value : c.inputs[0].values) value = static_cast<float>(value);
  c.gradient_samples = 0;  // no step serves all magnitudes
  return c;
}

inline OpCase infinite_logits() {
  OpCase c = cross_entropy(3, 5, 1);
  c.name = "cross_entropy: logits of minus infinity";
  for (const int i : {1, 2, 8, 10})
    c.inputs[0].values[i] = -std::numeric_limits<double>::infinity();
  return c;
}

}  // namespace cases

/// Every op at sizes of one, primes, non-multiples of vector and block widths, and empty batches.
inline std::vector<OpCase> op_cases() {
  using namespace cases;
  std::vector<OpCase> all;
  const auto add = [&](OpCase c) { all.push_back(std::move(c)); };

  add(linear({1, 1}, 1, true));
  add(linear({13}, 7, true));
  add(linear({7, 13}, 5, true));
  add(linear({3, 5, 17}, 19, false));
  add(linear({2, 67, 131}, 129, true));
  add(linear({1031, 3}, 2, true));
  add(linear({0, 4}, 3, true));

  add(matmul(1, 1, 1));
  add(matmul(7, 13, 5));
  add(matmul(131, 67, 129));
  add(matmul(0, 3, 2));

  add(repeat(1, 1));
  add(repeat(67, 5));
  add(repeat(3, 131));

  add(add_position({1, 1, 1}, 1, 1));
  add(add_position({3, 7, 5}, 11, 22.6));
  add(add_position({2, 131, 67}, 131, 0.5));
  add(add_position({67, 3, 2}, 4, 1));
  add(add_position({0, 3, 2}, 4, 1));

  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    add(dropout({1}, p));
    add(dropout({3, 43}, p));
    add(dropout({20011}, p));
    add(dropout({0, 5}, p));
    add(add_dropout({1, 1}, p));
    add(add_dropout({5, 7, 11}, p));
    add(add_dropout({9, 1021}, p));
    add(add_dropout({0, 5}, p));
  }
  for (const Activation kind : {Activation::gelu, Activation::relu}) {
    for (const double p : {0.0, 0.1}) {
      add(activation({1}, kind, p));
      add(activation({7, 19}, kind, p));
      add(activation({2, 8209}, kind, p));
      add(activation({0, 3}, kind, p));
    }
    add(activation({977}, kind, 0, 4));
  }
  add(extreme_gelu());

  add(layer_norm({1, 2}, 1e-5));
  add(layer_norm({5, 1}, 1e-5));
  add(layer_norm({3, 7, 13}, 1e-6));
  add(layer_norm({2, 131, 127}, 1e-5));
  add(layer_norm({2111, 17}, 1e-5));
  add(layer_norm({37}, 1e-5));
  add(layer_norm({0, 5}, 1e-5));

  add(reshape({2, 3, 5}, {6, 5}));
  add(reshape({7}, {7, 1}));
  add(reshape({0, 3}, {3, 0, 2}));

  for (const bool with_bias : {false, true}) {
    add(mask_positions({1, 1, 1}, {1}, with_bias));
    add(mask_positions({4, 7, 5}, {0, 1, 6, 7}, with_bias));
    add(mask_positions({2, 131, 67}, {130, 17}, with_bias));
    add(mask_positions({0, 3, 2}, {}, with_bias));
  }

  for (const bool own : {false, true}) {
    add(mean_positions({1, 1, 1}, {}, own));
    add(mean_positions({3, 7, 5}, {0, 1, 7}, own));
    add(mean_positions({2, 131, 67}, {130, 17}, own));
    add(mean_positions({2, 37, 33}, {}, own));
    add(mean_positions({0, 3, 2}, {}, own));
  }

  add(pair_features({2, 1}));
  add(pair_features({6, 67}));
  add(pair_features({0, 3}));

  for (const ops::AttentionForm form :
       {ops::AttentionForm::blockwise, ops::AttentionForm::materialized}) {
    for (const bool causal : {false, true}) {
      for (const double p : {0.0, 0.25}) {
        add(attention({1, 1, 1, 1, causal, {}}, p, form));
        add(attention({2, 37, 3, 5, causal, {}}, p, form));
        add(attention({3, 37, 2, 7, causal, {1, 37, 30}}, p, form));
        add(attention({2, 131, 1, 3, causal, {}}, p, form));
        add(attention({3, 128, 1, 2, causal, {0, 128, 127}}, p, form));
        add(attention({4, 67, 2, 5, causal, {0, 1, 67, 30}, true}, p, form));
      }
    }
    add(attention({1, 1031, 1, 3, false, {}}, 0, form));
    add(attention({1, 523, 1, 5, true, {}}, 0.25, form));
    add(attention({1, 661, 1, 3, false, {659}}, 0.1, form));
    add(attention({0, 5, 2, 3, false, {}}, 0.1, form));
    for (const int64_t head_width : {32, 33, 64, 100, 128}) {
      add(attention({1, 67, 2, head_width, false, {}}, 0.25, form));
    }
    add(attention({2, 70, 1, 64, true, {70, 66}}, 0.25, form));
    add(attention({1, 661, 1, 3, false, {130}, true}, 0.1, form));
    add(large_scores(form));
  }

  add(normalize_heads({1, 1, 1}, 1));
  add(normalize_heads({3, 7, 20}, 4));
  add(normalize_heads({2, 131, 67}, 1));
  add(normalize_heads({2, 5, 33}, 3));
  add(normalize_heads({0, 3, 4}, 2));

  add(running_mean({1, 1, 1}));
  add(running_mean({3, 7, 5}));
  add(running_mean({2, 131, 67}));
  add(running_mean({1, 4099, 2}));
  add(running_mean({0, 3, 2}));

  add(embedding({1}, 1, 1, 1));
  add(embedding({2, 3}, 7, 5, 7));
  add(embedding({4, 33}, 50, 67, 9));
  add(embedding({700}, 5, 3, 2));  // more positions of a token than one thread adds
  add(embedding({2, 0}, 4, 3, 4));
  add(sample_rows({1, 1, 1}, 1, {}));
  add(sample_rows({3, 29, 5}, 6, {}));
  add(sample_rows({2, 13, 67}, 13, {}));
  add(sample_rows({2, 5, 3}, 18, {}));  // more rows than positions: some are taken twice
  add(sample_rows({4, 29, 5}, 8, {29, 1, 7, 12}));
  add(sample_rows({2, 1019, 3}, 400, {}));
  add(sample_rows({0, 5, 3}, 4, {}));

  add(data_projection(1, 1, 1, 1, 1));
  add(data_projection(3, 7, 2, 5, 3));
  add(data_projection(2, 67, 3, 17, 19));
  add(data_projection(0, 3, 2, 4, 2));

  for (const bool shared : {false, true}) {
    for (const int64_t sides : {1, 2}) {
      add(project_scores(1, 1, 1, 1, 1, shared, sides));
      add(project_scores(3, 7, 2, 5, 3, shared, sides));
      add(project_scores(2, 131, 3, 17, 19, shared, sides));
      add(project_scores(0, 3, 2, 4, 2, shared, sides));
    }
  }

  for (const bool per_sample : {false, true}) {
    for (const bool shared : {false, true}) {
      for (const bool together : {false, true}) {
        add(ksvd_loss({1, 1, 1, 1, 1, shared, per_sample, {}, together}));
        add(ksvd_loss({3, 2, 7, 5, 4, shared, per_sample, {}, together}));
        add(ksvd_loss({3, 2, 7, 5, 4, shared, per_sample, {1, 7, 4}, together}));
        add(ksvd_loss({2, 3, 131, 17, 67, shared, per_sample, {}, together}));
      }
    }
  }

  add(cross_entropy(1, 1, 1));
  add(cross_entropy(1, 2, 1));
  add(cross_entropy(7, 5, 1));
  add(cross_entropy(131, 67, 3));
  add(cross_entropy(5, 3, 1e4));
  add(infinite_logits());
  add(probabilities(cross_entropy(7, 5, 1), 5));
  add(probabilities(cross_entropy(5, 3, 1e4), 3));
  add(probabilities(infinite_logits(), 5));

  add(add_scaled({1}, 0.1));
  add(add_scaled({7, 13}, -2));
  add(add_scaled({3, 6007}, 0.3));
  add(add_scaled({0, 2}, 0.3));

  // A reference evaluation of the larger cases takes milliseconds.
  for (OpCase& c : all) {
    int64_t elements = 0;
    for (const OpInput& input : c.inputs) elements += input.shape.count();
    if (elements > 1000) c.gradient_samples = std::min<int64_t>(c.gradient_samples, 8);
  }
  return all;
}

}  // namespace primal::testing

#include "core/op_support.h"
#include "core/ops.h"

namespace primal::ops {

Var linear(Context& ctx, const Var& x, const Var& weight, const Var& bias) {
  Backend& be = ctx.backend;
  expect_rank("linear", "weight", 2, weight.shape());
  const int64_t in = weight.shape()[1];
  const int64_t out = weight.shape()[0];
  if (x.shape().rank() < 1 || x.shape()[-1] != in) {
    fail("[linear] input must be (..., {}), got {}", in, x.shape().text());
  }
  if (bias.value.defined()) expect_shape("linear", "bias", {out}, bias.shape());
  const int64_t rows = in == 0 ? 0 : x.value.count() / in;
  std::vector<int64_t> sizes(x.shape().sizes().begin(), x.shape().sizes().end());
  sizes.back() = out;
  Tensor y = be.empty(Shape(sizes));
  GemmArgs p = product(rows, out, in, {x.value.data(), in}, transposed(weight.value.data(), in),
                       y.data(), out);
  p.bias = bias.value.defined() ? bias.value.data() : nullptr;
  be.op->gemm(be.exec, p);
  if (!recording(ctx, x, weight, bias)) return {y};
  // dx = dy W, dW = dy^T x, dbias = sum of dy over rows.
  return ctx.tape->record(std::move(y), [&be, x = x.kept(), weight, bias = node_of(bias), rows, in,
                                         out](Tape& tape, const Tensor& dy) {
    with_slot(tape, bias, [&](const GradientSlot& g) {
      be.op->sum_rows(be.exec, rows, out, dy.data(), g.tensor.data(), g.accumulate);
    });
    with_slot(tape, weight, [&](const GradientSlot& g) {
      be.op->gemm(be.exec, product(out, in, rows, transposed(dy.data(), out), {x.now().data(), in},
                                   g.tensor.data(), in, g.accumulate));
    });
    with_slot(tape, x, [&](const GradientSlot& g) {
      be.op->gemm(be.exec, product(rows, in, out, {dy.data(), out}, {weight.value.data(), in},
                                   g.tensor.data(), in, g.accumulate));
    });
  });
}

Var matmul(Context& ctx, const Var& a, const Var& b) {
  Backend& be = ctx.backend;
  expect_rank("matmul", "left", 2, a.shape());
  expect_rank("matmul", "right", 2, b.shape());
  const int64_t m = a.shape()[0];
  const int64_t k = a.shape()[1];
  const int64_t n = b.shape()[1];
  expect_shape("matmul", "right", {k, n}, b.shape());
  Tensor y = be.empty({m, n});
  be.op->gemm(be.exec, product(m, n, k, {a.value.data(), k}, {b.value.data(), n}, y.data(), n));
  if (!recording(ctx, a, b)) return {y};
  return ctx.tape->record(std::move(y), [&be, a, b, m, k, n](Tape& tape, const Tensor& dy) {
    with_slot(tape, a, [&](const GradientSlot& g) {  // da = dy b^T
      be.op->gemm(be.exec, product(m, k, n, {dy.data(), n}, transposed(b.value.data(), n),
                                   g.tensor.data(), k, g.accumulate));
    });
    with_slot(tape, b, [&](const GradientSlot& g) {  // db = a^T dy
      be.op->gemm(be.exec, product(k, n, m, transposed(a.value.data(), k), {dy.data(), n},
                                   g.tensor.data(), n, g.accumulate));
    });
  });
}

Var repeat(Context& ctx, const Var& x, int64_t times) {
  Backend& be = ctx.backend;
  expect_rank("repeat", "input", 1, x.shape());
  if (times < 1) fail("[repeat] the number of copies must be at least 1, got {}", times);
  const int64_t width = x.shape()[0];
  Tensor y = be.empty({times * width});
  for (int64_t i = 0; i < times; ++i) {
    be.op->copy(be.exec, width, x.value.data(), y.data() + i * width);
  }
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(
      std::move(y), [&be, x = node_of(x), times, width](Tape& tape, const Tensor& dy) {
        const GradientSlot g = tape.slot(x);
        be.op->sum_rows(be.exec, times, width, dy.data(), g.tensor.data(), g.accumulate);
      });
}

Var add_position(Context& ctx, const Var& x, const Var& position, float scale) {
  Backend& be = ctx.backend;
  expect_rank("add_position", "input", 3, x.shape());
  expect_rank("add_position", "position", 2, position.shape());
  const int64_t batch = x.shape()[0];
  const int64_t length = x.shape()[1];
  const int64_t width = x.shape()[2];
  if (position.shape()[0] < length || position.shape()[1] != width) {
    fail("[add_position] position must be (at least {}, {}), got {}", length, width,
         position.shape().text());
  }
  Tensor y = be.empty(x.shape());
  const int64_t count = length * width;
  be.op->add_position(be.exec, batch, count, scale, x.value.data(), position.value.data(),
                      y.data());
  if (!recording(ctx, x, position)) return {y};
  return ctx.tape->record(std::move(y), [&be, x = node_of(x), position = node_of(position), batch,
                                         count, scale](Tape& tape, const Tensor& dy) {
    with_slot(tape, position, [&](const GradientSlot& g) {
      const int64_t all = g.tensor.count();
      be.op->sum_rows(be.exec, batch, count, dy.data(), g.tensor.data(), g.accumulate);
      if (!g.accumulate && all > count) {  // rows beyond this batch's length
        be.op->fill(be.exec, all - count, 0.0F, g.tensor.data() + count);
      }
    });
    with_slot(tape, x, [&](const GradientSlot& g) {
      be.op->scale(be.exec, dy.count(), scale, dy.data(), g.tensor.data(), g.accumulate);
    });
  });
}

Var dropout(Context& ctx, const Var& x, double p) {
  Backend& be = ctx.backend;
  const Dropout mask = next_dropout(ctx, "dropout", p, x.value.count());
  if (!mask.active()) return x;
  Tensor y = be.empty(x.shape());
  be.op->dropout(be.exec, y.count(), mask, x.value.data(), y.data(), false);
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(std::move(y), [&be, x = node_of(x), mask](Tape& tape, const Tensor& dy) {
    const GradientSlot g = tape.slot(x);
    be.op->dropout(be.exec, dy.count(), mask, dy.data(), g.tensor.data(), g.accumulate);
  });
}

Var activation(Context& ctx, const Var& x, Activation kind, double dropout) {
  Backend& be = ctx.backend;
  const Dropout mask = next_dropout(ctx, "activation", dropout, x.value.count());
  Tensor y = be.empty(x.shape());
  be.op->activation(be.exec, y.count(), kind, mask, x.value.data(), y.data());
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(std::move(y), [&be, x, kind, mask](Tape& tape, const Tensor& dy) {
    const GradientSlot g = tape.slot(x);
    be.op->activation_backward(be.exec, dy.count(), kind, mask, x.value.data(), dy.data(),
                               g.tensor.data(), g.accumulate);
  });
}

Var add_dropout(Context& ctx, const Var& x, const Var& y, double dropout) {
  Backend& be = ctx.backend;
  expect_shape("add_dropout", "the branch", x.shape(), y.shape());
  const Dropout mask = next_dropout(ctx, "add_dropout", dropout, x.value.count());
  Tensor sum = be.empty(x.shape());
  be.op->add_dropout(be.exec, sum.count(), mask, x.value.data(), y.value.data(), sum.data());
  if (!recording(ctx, x, y)) return {sum};
  return ctx.tape->record(
      std::move(sum), [&be, x = node_of(x), y = node_of(y), mask](Tape& tape, const Tensor& dz) {
        with_slot(tape, y, [&](const GradientSlot& g) {
          be.op->dropout(be.exec, dz.count(), mask, dz.data(), g.tensor.data(), g.accumulate);
        });
        if (x.needs_gradient()) tape.give(x, dz);
      });
}

Var layer_norm(Context& ctx, const Var& x, const Var& weight, const Var& bias, double eps) {
  Backend& be = ctx.backend;
  if (x.shape().rank() < 1) fail("[layer_norm] input must have a dimension");
  const int64_t width = x.shape()[-1];
  expect_shape("layer_norm", "weight", {width}, weight.shape());
  expect_shape("layer_norm", "bias", {width}, bias.shape());
  const int64_t rows = width == 0 ? 0 : x.value.count() / width;
  Tensor y = be.empty(x.shape());
  Tensor mean = be.empty({rows});
  Tensor inverse_std = be.empty({rows});
  be.op->layer_norm(be.exec, rows, width, static_cast<float>(eps), x.value.data(),
                    weight.value.data(), bias.value.data(), y.data(), mean.data(),
                    inverse_std.data());
  if (!recording(ctx, x, weight, bias)) return {y};
  return ctx.tape->record(std::move(y), [&be, x, weight, bias = node_of(bias), mean, inverse_std,
                                         rows, width](Tape& tape, const Tensor& dy) {
    // The kernel fills all three; what needs no gradient goes to a scratch tensor.
    const auto target = [&](const Var& var, const Shape& shape) {
      return var.needs_gradient() ? tape.slot(var) : GradientSlot{be.empty(shape), false};
    };
    const GradientSlot dx = target(x, x.shape());
    const GradientSlot dw = target(weight, {width});
    const GradientSlot db = target(bias, {width});
    be.op->layer_norm_backward(be.exec, rows, width, x.value.data(), weight.value.data(),
                               mean.data(), inverse_std.data(), dy.data(), dx.tensor.data(),
                               dx.accumulate, dw.tensor.data(), dw.accumulate, db.tensor.data(),
                               db.accumulate);
  });
}

Var reshape(Context& ctx, const Var& x, Shape shape) {
  Tensor y = x.value.reshape(shape);
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(std::move(y),
                          [x = node_of(x)](Tape& tape, const Tensor& dy) { tape.give(x, dy); });
}

Var mask_positions(Context& ctx, const Var& x, const Tensor& lengths, const Var& bias) {
  Backend& be = ctx.backend;
  expect_rank("mask_positions", "input", 3, x.shape());
  const Shape shape = x.shape();
  expect_shape("mask_positions", "lengths", {shape[0]}, lengths.shape());
  const bool biased = bias.value.defined();
  if (biased) expect_shape("mask_positions", "bias", {shape[2]}, bias.shape());
  const auto run = [&be, shape, lengths](const Tensor& from, const float* add, const Tensor& to,
                                         bool accumulate) {
    be.op->mask_positions(be.exec, shape[0], shape[1], shape[2], lengths.data<int32_t>(),
                          from.data(), add, to.data(), accumulate);
  };
  Tensor y = be.empty(shape);
  run(x.value, biased ? bias.value.data() : nullptr, y, false);
  if (!recording(ctx, x, bias)) return {y};
  return ctx.tape->record(std::move(y), [&be, run, x = node_of(x), bias = node_of(bias), shape](
                                            Tape& tape, const Tensor& dy) {
    with_slot(tape, bias, [&](const GradientSlot& g) {
      be.op->sum_rows(be.exec, shape[0] * shape[1], shape[2], dy.data(), g.tensor.data(),
                      g.accumulate);
    });
    with_slot(tape, x, [&](const GradientSlot& g) { run(dy, nullptr, g.tensor, g.accumulate); });
  });
}

Var mean_positions(Context& ctx, const Var& x, const Tensor* lengths, bool own_length) {
  Backend& be = ctx.backend;
  expect_rank("mean_positions", "input", 3, x.shape());
  const Shape shape = x.shape();
  const Tensor kept = lengths != nullptr ? *lengths : Tensor();
  if (kept.defined()) expect_shape("mean_positions", "lengths", {shape[0]}, kept.shape());
  const int32_t* given = kept.defined() ? kept.data<int32_t>() : nullptr;
  Tensor y = be.empty({shape[0], shape[2]});
  be.op->mean_positions(be.exec, shape[0], shape[1], shape[2], given, own_length, x.value.data(),
                        y.data());
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(std::move(y), [&be, x = node_of(x), shape, kept, given, own_length](
                                            Tape& tape, const Tensor& dy) {
    const GradientSlot g = tape.slot(x);
    be.op->mean_positions_backward(be.exec, shape[0], shape[1], shape[2], given, own_length,
                                   dy.data(), g.tensor.data(), g.accumulate);
  });
}

Var pair_features(Context& ctx, const Var& x) {
  Backend& be = ctx.backend;
  expect_rank("pair_features", "input", 2, x.shape());
  const Shape shape = x.shape();
  if (shape[0] % 2 != 0) fail("[pair_features] input must have rows in twos, got {}", shape.text());
  Tensor y = be.empty({shape[0] / 2, 4 * shape[1]});
  be.op->pair_features(be.exec, shape[0] / 2, shape[1], x.value.data(), y.data());
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(std::move(y), [&be, x, shape](Tape& tape, const Tensor& dy) {
    const GradientSlot g = tape.slot(x);
    be.op->pair_features_backward(be.exec, shape[0] / 2, shape[1], x.value.data(), dy.data(),
                                  g.tensor.data(), g.accumulate);
  });
}

CrossEntropy cross_entropy(Context& ctx, const Var& logits, const Tensor& labels) {
  Backend& be = ctx.backend;
  expect_rank("cross_entropy", "logits", 2, logits.shape());
  const int64_t rows = logits.shape()[0];
  const int64_t classes = logits.shape()[1];
  expect_shape("cross_entropy", "labels", {rows}, labels.shape());
  if (rows == 0 || classes == 0) fail("[cross_entropy] got no logits: {}", logits.shape().text());
  CrossEntropy result{{be.empty({1})}, be.empty({1}), be.empty({rows, classes})};
  be.op->cross_entropy(be.exec, rows, classes, logits.value.data(), labels.data<int32_t>(),
                       result.loss.value.data(), result.probabilities.data(),
                       result.correct.data());
  if (!recording(ctx, logits)) return result;
  result.loss = ctx.tape->record(result.loss.value, [&be, logits = node_of(logits), labels,
                                                     probabilities = result.probabilities, rows,
                                                     classes](Tape& tape, const Tensor& dloss) {
    const GradientSlot g = tape.slot(logits);
    be.op->cross_entropy_backward(be.exec, rows, classes, probabilities.data(),
                                  labels.data<int32_t>(), dloss.data(), g.tensor.data(),
                                  g.accumulate);
  });
  return result;
}

Var add_scaled(Context& ctx, const Var& x, const Var& y, double factor) {
  Backend& be = ctx.backend;
  expect_shape("add_scaled", "the second operand", x.shape(), y.shape());
  const auto f = static_cast<float>(factor);
  Tensor sum = be.empty(x.shape());
  be.op->copy(be.exec, sum.count(), x.value.data(), sum.data());
  be.op->scale(be.exec, sum.count(), f, y.value.data(), sum.data(), true);
  if (!recording(ctx, x, y)) return {sum};
  return ctx.tape->record(
      std::move(sum), [&be, x = node_of(x), y = node_of(y), f](Tape& tape, const Tensor& dz) {
        with_slot(tape, y, [&](const GradientSlot& g) {
          be.op->scale(be.exec, dz.count(), f, dz.data(), g.tensor.data(), g.accumulate);
        });
        if (x.needs_gradient()) tape.give(x, dz);
      });
}

}  // namespace primal::ops

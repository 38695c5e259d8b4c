#include <algorithm>
#include <memory>
#include <vector>

#include "core/op_support.h"
#include "core/ops.h"

namespace primal::ops {
namespace {

constexpr float kNormEps = 1e-12F;

}  // namespace

Var normalize_heads(Context& ctx, const Var& x, int64_t heads) {
  Backend& be = ctx.backend;
  const int64_t width = x.shape()[-1];
  if (heads < 1 || width % heads != 0) {
    fail("[normalize_heads] width {} cannot be split into {} heads", width, heads);
  }
  const int64_t head_width = width / heads;
  const int64_t rows = x.value.count() / head_width;
  Tensor g = be.empty(x.shape());
  Tensor inverse_norm = be.empty({rows});
  be.op->l2_normalize(be.exec, rows, head_width, kNormEps, x.value.data(), g.data(),
                      inverse_norm.data());
  if (!recording(ctx, x)) return {g};
  return ctx.tape->record(g, [&be, x = node_of(x), g, inverse_norm, rows, head_width](
                                 Tape& tape, const Tensor& dg) {
    const GradientSlot dx = tape.slot(x);
    be.op->l2_normalize_backward(be.exec, rows, head_width, kNormEps, g.data(), inverse_norm.data(),
                                 dg.data(), dx.tensor.data(), dx.accumulate);
  });
}

Var running_mean(Context& ctx, const Var& x) {
  Backend& be = ctx.backend;
  expect_rank("running_mean", "input", 3, x.shape());
  const Shape shape = x.shape();
  Tensor y = be.empty(shape);
  be.op->running_mean(be.exec, shape[0], shape[1], shape[2], x.value.data(), y.data());
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(std::move(y), [&be, x = node_of(x), shape](Tape& tape, const Tensor& dy) {
    const GradientSlot g = tape.slot(x);
    be.op->running_mean_backward(be.exec, shape[0], shape[1], shape[2], dy.data(), g.tensor.data(),
                                 g.accumulate);
  });
}

int64_t sample_index(int64_t i, int64_t m, int64_t length) {
  if (m <= 1 || length <= 1) return 0;
  constexpr int64_t kLanes = 4;
  const double step = static_cast<double>(length - 1) / static_cast<double>(m - 1);
  const auto evenly = [&](int64_t at) {
    const double value =
        at < m / 2 ? step * static_cast<double>(at)
                   : static_cast<double>(length - 1) - step * static_cast<double>(m - 1 - at);
    return static_cast<int64_t>(value);
  };
  if (i >= m / (2 * kLanes) * (2 * kLanes)) return evenly(i);
  const int64_t lane = i % kLanes;
  return static_cast<int64_t>(static_cast<double>(evenly(i - lane)) +
                              step * static_cast<double>(lane));
}

Var sample_rows(Context& ctx, const Var& x, int64_t m, std::span<const int32_t> lengths) {
  Backend& be = ctx.backend;
  expect_rank("sample_rows", "input", 3, x.shape());
  if (m < 1) fail("[sample_rows] at least one row must be sampled, got {}", m);
  const Shape shape = x.shape();
  if (shape[1] == 0) {
    fail("[sample_rows] rows of no positions cannot be sampled: {}", shape.text());
  }
  if (!lengths.empty() && std::ssize(lengths) != shape[0]) {
    fail("[sample_rows] {} lengths were given for a batch of {}", lengths.size(), shape[0]);
  }
  std::vector<int32_t> rows;
  rows.reserve(shape[0] * m);
  for (int64_t b = 0; b < shape[0]; ++b) {
    const int64_t length = lengths.empty() ? shape[1] : lengths[b];
    if (length < 0 || length > shape[1]) {
      fail("[sample_rows] lengths must be from 0 to {}, got {}", shape[1], length);
    }
    for (int64_t i = 0; i < m; ++i) {
      rows.push_back(static_cast<int32_t>(sample_index(i, m, length)));
    }
  }
  Tensor index = be.empty({shape[0], m}, DType::i32);
  be.op->upload_integers(be.exec, index.count(), rows.data(), index.data<int32_t>());
  Tensor y = be.empty({shape[0], m, shape[2]});
  be.op->gather_rows(be.exec, shape[0], shape[1], shape[2], m, index.data<int32_t>(),
                     x.value.data(), y.data());
  if (!recording(ctx, x)) return {y};
  return ctx.tape->record(
      std::move(y), [&be, x = node_of(x), shape, m, index](Tape& tape, const Tensor& dy) {
        const GradientSlot g = tape.slot(x);
        if (!g.accumulate) be.op->fill(be.exec, g.tensor.count(), 0.0F, g.tensor.data());
        be.op->gather_rows_backward(be.exec, shape[0], shape[1], shape[2], m, index.data<int32_t>(),
                                    dy.data(), g.tensor.data());
      });
}

Var data_projection(Context& ctx, const Var& rows, const Var& projection) {
  Backend& be = ctx.backend;
  expect_rank("data_projection", "rows", 3, rows.shape());
  expect_rank("data_projection", "projection", 3, projection.shape());
  const int64_t batch = rows.shape()[0];
  const int64_t m = rows.shape()[1];
  const int64_t width = rows.shape()[2];
  const int64_t heads = projection.shape()[0];
  const int64_t rank = projection.shape()[2];
  if (heads < 1 || width % heads != 0) {
    fail("[data_projection] width {} cannot be split into {} heads", width, heads);
  }
  expect_shape("data_projection", "projection", {heads, m, rank}, projection.shape());
  const int64_t head_width = width / heads;
  Tensor w = be.empty({batch, heads, head_width, rank});
  const int64_t item = head_width * rank;
  // W (d, s) = f^T (d, m) P (m, s)
  be.op->gemm_batched(be.exec,
                      product(head_width, rank, m, transposed(rows.value.data(), width),
                              {projection.value.data(), rank}, w.data(), rank),
                      {batch, heads, m * width, head_width, 0, m * rank, heads * item, item});
  if (!recording(ctx, rows, projection)) return {w};
  return ctx.tape->record(std::move(w), [&be, rows, projection, batch, m, width, heads, rank,
                                         head_width, item](Tape& tape, const Tensor& dw) {
    with_slot(tape, rows, [&](const GradientSlot& g) {  // df (m, d) = P dW^T
      be.op->gemm_batched(
          be.exec,
          product(m, head_width, rank, {projection.value.data(), rank}, transposed(dw.data(), rank),
                  g.tensor.data(), width, g.accumulate),
          {batch, heads, 0, m * rank, heads * item, item, m * width, head_width});
    });
    // dP (m, s) = sum over samples of f dW. A head's sum runs sample by sample, which fixes its
    // order.
    with_slot(tape, projection, [&](const GradientSlot& g) {
      if (batch == 0 && !g.accumulate) {
        be.op->fill(be.exec, g.tensor.count(), 0.0F, g.tensor.data());
      }
      for (int64_t b = 0; b < batch; ++b) {
        be.op->gemm_batched(be.exec,
                            product(m, rank, head_width, {rows.value.data() + b * m * width, width},
                                    {dw.data() + b * heads * item, rank}, g.tensor.data(), rank,
                                    b > 0 || g.accumulate),
                            {1, heads, 0, head_width, 0, item, 0, m * rank});
      }
    });
  });
}

Var project_scores(Context& ctx, const std::vector<Projected>& sides) {
  Backend& be = ctx.backend;
  if (sides.empty()) fail("[project_scores] got nothing to project");
  const Shape input = sides[0].g.shape();
  const Shape by = sides[0].projection.shape();
  expect_rank("project_scores", "input", 3, input);
  const bool shared = by.rank() == 3;
  const int64_t batch = input[0];
  const int64_t length = input[1];
  const int64_t width = input[2];
  const int64_t heads = by[shared ? 0 : 1];
  const int64_t rank = by[-1];
  if (heads < 1 || width % heads != 0) {
    fail("[project_scores] width {} cannot be split into {} heads", width, heads);
  }
  const int64_t head_width = width / heads;
  for (const Projected& side : sides) {
    expect_shape("project_scores", "input", input, side.g.shape());
    expect_shape("project_scores", "projection",
                 shared ? Shape{heads, head_width, rank} : Shape{batch, heads, head_width, rank},
                 side.projection.shape());
  }
  const int64_t item = head_width * rank;
  const int64_t w_outer = shared ? 0 : heads * item;
  const int64_t sample = length * width;
  const int64_t stride = std::ssize(sides) * rank;  // from one head's scores to the next
  const auto compute = [=, &be] {
    Tensor scores = be.empty({batch, length, heads * stride});
    for (int64_t i = 0; i < std::ssize(sides); ++i) {
      // e (N, s) = g (N, d) W (d, s)
      be.op->gemm_batched(
          be.exec,
          product(length, rank, head_width, {sides[i].g.value.data(), width},
                  {sides[i].projection.value.data(), rank}, scores.data() + i * rank,
                  heads * stride),
          {batch, heads, sample, head_width, w_outer, item, length * heads * stride, stride});
    }
    return scores;
  };
  Tensor scores = compute();
  if (std::ranges::none_of(
          sides, [&](const Projected& side) { return recording(ctx, side.g, side.projection); })) {
    return {scores};
  }
  Var result = ctx.tape->record(
      std::move(scores), [&be, sides, batch, length, width, heads, rank, head_width, item, w_outer,
                          sample, stride, shared](Tape& tape, const Tensor& dscores) {
        for (int64_t i = 0; i < std::ssize(sides); ++i) {
          const Var& g = sides[i].g;
          const Var& projection = sides[i].projection;
          const float* de = dscores.data() + i * rank;
          with_slot(tape, g, [&](const GradientSlot& slot) {  // dg (N, d) = de W^T
            be.op->gemm_batched(
                be.exec,
                product(length, head_width, rank, {de, heads * stride},
                        transposed(projection.value.data(), rank), slot.tensor.data(), width,
                        slot.accumulate),
                {batch, heads, length * heads * stride, stride, w_outer, item, sample, head_width});
          });
          with_slot(tape, projection, [&](const GradientSlot& slot) {  // dW (d, s) = g^T de
            // A shared projection sums over samples one by one, in order.
            const int64_t steps = shared ? batch : 1;
            if (steps == 0 && !slot.accumulate) {
              be.op->fill(be.exec, slot.tensor.count(), 0.0F, slot.tensor.data());
            }
            for (int64_t b = 0; b < steps; ++b) {
              be.op->gemm_batched(
                  be.exec,
                  product(head_width, rank, length, transposed(g.value.data() + b * sample, width),
                          {de + b * length * heads * stride, heads * stride}, slot.tensor.data(),
                          rank, b > 0 || slot.accumulate),
                  {shared ? 1 : batch, heads, sample, head_width, length * heads * stride, stride,
                   heads * item, item});
            }
          });
        }
      });
  // They are wider than g where 2 s > d, and one thin product away from it.
  result.recomputed = std::make_shared<Recomputed>(compute);
  return result;
}

Var ksvd_loss(Context& ctx, const std::vector<Var>& scores, const Var& lambda, const Var& trace_e,
              const Var& trace_r, const KsvdOptions& options) {
  Backend& be = ctx.backend;
  if (scores.size() != 1 && scores.size() != 2) {
    fail("[ksvd_loss] scores must be one value or two, got {}", scores.size());
  }
  const bool together = scores.size() == 1;
  const Var& e = scores.front();
  const Var& r = scores.back();
  expect_rank("ksvd_loss", "scores", 3, e.shape());
  expect_rank("ksvd_loss", "lambda", 2, lambda.shape());
  const Shape& shape = e.shape();
  const int64_t heads = lambda.shape()[0];
  const int64_t rank = lambda.shape()[1];
  const int64_t stride = (together ? 2 : 1) * rank;  // from one head's scores to the next
  expect_shape("ksvd_loss", "scores", {shape[0], shape[1], heads * stride}, shape);
  expect_shape("ksvd_loss", "left scores", shape, r.shape());
  expect_shape("ksvd_loss", "left projection", trace_e.shape(), trace_r.shape());
  const bool shared = trace_e.shape().rank() == 3;
  const int64_t rows = trace_e.shape()[-2];
  expect_shape("ksvd_loss", "projection",
               shared ? Shape{heads, rows, rank} : Shape{shape[0], heads, rows, rank},
               trace_e.shape());
  const Tensor lengths = options.lengths != nullptr ? *options.lengths : Tensor();
  if (lengths.defined()) expect_shape("ksvd_loss", "lengths", {shape[0]}, lengths.shape());
  if (shape[0] == 0) fail("[ksvd_loss] got no samples: {}", shape.text());
  KsvdArgs args;
  args.batch = shape[0];
  args.length = shape[1];
  args.heads = heads;
  args.rank = rank;
  args.per_sample = options.per_sample;
  args.e = e.value.data();
  args.r = r.value.data() + (together ? rank : 0);
  args.stride = stride;
  args.lambda = lambda.value.data();
  args.trace_e = trace_e.value.data();
  args.trace_r = trace_r.value.data();
  args.trace_batch = shared ? 1 : shape[0];
  args.trace_rows = rows;
  args.lengths = lengths.defined() ? lengths.data<int32_t>() : nullptr;
  Tensor j = be.empty({args.batch});
  Tensor loss = be.empty({1});
  be.op->ksvd(be.exec, args, j.data(), loss.data());
  if (!options.per_sample) {
    const size_t layer = ctx.aux.of("ksvd objective").size();
    const Tensor own = be.empty({1});
    be.op->copy(be.exec, 1, j.data(), own.data());
    ctx.aux.add("ksvd objective", {own});
    if (!ctx.part.objectives.empty()) {
      // Of a part with its own J_p, whose weighted sum over the parts is J: the slope of J^2 there,
      // and 2 J J_p - J^2, whose weighted sum is J^2.
      const double whole = ctx.part.objectives.at(layer);
      be.op->fill(be.exec, 1, static_cast<float>(-whole * whole), loss.data());
      be.op->scale(be.exec, 1, static_cast<float>(2 * whole), own.data(), loss.data(), true);
      be.op->fill(be.exec, j.count(), static_cast<float>(whole), j.data());
    }
  }
  if (!recording(ctx, e, r, lambda, trace_e, trace_r)) return {loss};
  return ctx.tape->record(std::move(loss),
                          [&be, e = e.kept(), r = r.kept(), together, lambda, trace_e, trace_r,
                           lengths, args, j](Tape& tape, const Tensor& dloss) {
                            KsvdArgs again = args;
                            again.e = e.now().data();
                            again.r = r.now().data() + (together ? again.rank : 0);
                            KsvdGradients g;
                            with_slot(tape, e, [&](const GradientSlot& slot) {
                              g.de = slot.tensor.data();
                              g.accumulate_de = slot.accumulate;
                              if (!together) return;
                              g.dr = slot.tensor.data() + args.rank;
                              g.accumulate_dr = slot.accumulate;
                            });
                            if (!together) {
                              with_slot(tape, r, [&](const GradientSlot& slot) {
                                g.dr = slot.tensor.data();
                                g.accumulate_dr = slot.accumulate;
                              });
                            }
                            const auto added = [&](const Var& var) -> float* {
                              if (!var.needs_gradient()) return nullptr;
                              const GradientSlot slot = tape.slot(var);
                              if (!slot.accumulate) {
                                be.op->fill(be.exec, slot.tensor.count(), 0.0F, slot.tensor.data());
                              }
                              return slot.tensor.data();
                            };
                            g.dlambda = added(lambda);
                            g.dtrace_e = added(trace_e);
                            g.dtrace_r = added(trace_r);
                            be.op->ksvd_backward(be.exec, again, j.data(), dloss.data(), g);
                          });
}

}  // namespace primal::ops

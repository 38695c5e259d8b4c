#include <cmath>

#include "core/op_support.h"
#include "core/ops.h"

namespace primal::ops {
namespace {

/// One product per sample and head of (B, N, D) operands and (B, H, N, N) scores.
struct HeadProducts {
  Backend& be;
  int64_t batch, length, heads, head_width;

  int64_t width() const { return heads * head_width; }

  /// scores = factor * x y^T.
  void outer(float factor, const Tensor& x, const Tensor& y, const Tensor& scores) const {
    GemmArgs p = product(length, length, head_width, {x.data(), width()},
                         transposed(y.data(), width()), scores.data(), length);
    p.alpha = factor;
    const int64_t sample = length * width();
    const int64_t matrix = length * length;
    be.op->gemm_batched(
        be.exec, p, {batch, heads, sample, head_width, sample, head_width, heads * matrix, matrix});
  }

  /// out = factor * op(scores) x.
  void apply(float factor, bool transpose, const Tensor& scores, const Tensor& x,
             const Tensor& out) const {
    GemmArgs p = product(length, head_width, length, {scores.data(), length, transpose},
                         {x.data(), width()}, out.data(), width());
    p.alpha = factor;
    const int64_t sample = length * width();
    const int64_t matrix = length * length;
    be.op->gemm_batched(
        be.exec, p, {batch, heads, heads * matrix, matrix, sample, head_width, sample, head_width});
  }
};

Var materialized(Context& ctx, const Var& q, const Var& k, const Var& v, AttentionArgs args,
                 const Tensor& lengths) {
  Backend& be = ctx.backend;
  const HeadProducts products{be, args.batch, args.length, args.heads, args.head_width};
  const Shape scores_shape{args.batch, args.heads, args.length, args.length};
  Tensor probabilities = be.empty(scores_shape);
  products.outer(args.scale, q.value, k.value, probabilities);
  Tensor dropped = args.dropout.active() ? be.empty(scores_shape) : probabilities;
  be.op->attention_softmax(be.exec, args, probabilities.data(), dropped.data());
  Tensor out = be.empty(q.shape());
  products.apply(1, false, dropped, v.value, out);
  if (!recording(ctx, q, k, v)) return {out};
  return ctx.tape->record(std::move(out), [&be, products, args, lengths, scores_shape, q, k, v,
                                           probabilities, dropped](Tape& tape, const Tensor& dout) {
    Tensor scores = be.empty(scores_shape);
    products.outer(1, dout, v.value, scores);
    be.op->attention_softmax_backward(be.exec, args, probabilities.data(), scores.data());
    const auto deliver = [&](const Var& to, float factor, bool transpose, const Tensor& matrix,
                             const Tensor& x) {
      if (!to.needs_gradient()) return;
      Tensor gradient = be.empty(to.shape());
      products.apply(factor, transpose, matrix, x, gradient);
      tape.give(to, gradient);
    };
    deliver(v, 1, true, dropped, dout);
    deliver(q, args.scale, false, scores, k.value);
    deliver(k, args.scale, true, scores, q.value);
  });
}

}  // namespace

Var attention(Context& ctx, const Var& q, const Var& k, const Var& v,
              const AttentionOptions& options) {
  Backend& be = ctx.backend;
  expect_rank("attention", "queries", 3, q.shape());
  expect_shape("attention", "keys", q.shape(), k.shape());
  expect_shape("attention", "values", q.shape(), v.shape());
  const Shape& shape = q.shape();
  if (options.heads < 1 || shape[2] % options.heads != 0) {
    fail("[attention] width {} cannot be split into {} heads", shape[2], options.heads);
  }
  const Tensor lengths = options.lengths != nullptr ? *options.lengths : Tensor();
  if (lengths.defined()) expect_shape("attention", "lengths", {shape[0]}, lengths.shape());
  AttentionArgs args;
  args.batch = shape[0];
  args.heads = options.heads;
  args.length = shape[1];
  args.head_width = shape[2] / options.heads;
  args.scale = 1 / std::sqrt(static_cast<float>(args.head_width));
  args.causal = options.causal;
  args.lengths = lengths.defined() ? lengths.data<int32_t>() : nullptr;
  args.all_queries = options.all_queries;
  // Rows of the mask are padded to whole blocks.
  const int64_t row = (args.length + 127) / 128 * 128;
  args.dropout =
      next_dropout(ctx, "attention", options.dropout, args.batch * args.heads * args.length * row);
  if (options.form == AttentionForm::materialized) return materialized(ctx, q, k, v, args, lengths);

  Tensor out = be.empty(shape);
  Tensor log_sum = be.empty({args.batch, args.heads, args.length});
  be.op->attention(be.exec, args, q.value.data(), k.value.data(), v.value.data(), out.data(),
                   log_sum.data());
  if (!recording(ctx, q, k, v)) return {out};
  return ctx.tape->record(
      out, [&be, args, lengths, q, k, v, out, log_sum](Tape& tape, const Tensor& dout) {
        Tensor dq = be.empty(q.shape());
        Tensor dk = be.empty(q.shape());
        Tensor dv = be.empty(q.shape());
        be.op->attention_backward(be.exec, args,
                                  {q.value.data(), k.value.data(), v.value.data(), out.data(),
                                   log_sum.data(), dout.data(), dq.data(), dk.data(), dv.data()});
        if (q.needs_gradient()) tape.give(q, dq);
        if (k.needs_gradient()) tape.give(k, dk);
        if (v.needs_gradient()) tape.give(v, dv);
      });
}

}  // namespace primal::ops

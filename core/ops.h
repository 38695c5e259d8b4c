#pragma once

#include "core/context.h"

// Differentiable ops. Shapes in comments: B batch, N sequence length, D width, H heads, d = D / H,
// s rank, m sampled rows. Errors name the op, what was expected and what was given.

namespace primal::ops {

/// y = x W^T + bias over the last dimension: x (..., in), weight (out, in), bias (out) or no value.
Var linear(Context& ctx, const Var& x, const Var& weight, const Var& bias);

/// a b, of a (m, k) and b (k, n).
Var matmul(Context& ctx, const Var& a, const Var& b);

/// x (n) -> (times n): x one time after another.
Var repeat(Context& ctx, const Var& x, int64_t times);

/// Token ids on the device, and their positions grouped by token, which is how embedding() adds up
/// its gradient: in one order, without atomics.
struct Tokens {
  /// `values` are ids from 0 to vocabulary - 1, row-major of shape `s`.
  Tokens(const Backend& be, std::span<const int32_t> values, const Shape& s, int64_t vocabulary);

  Shape shape;
  int64_t vocabulary = 0;
  Tensor ids;           ///< (n) int32, n = shape.count(), as are all of these
  Tensor order;         ///< (n): positions, those of one token together, ascending
  Tensor pieces;        ///< (p + 1): where in `order` each part of a token's positions begins
  Tensor group_pieces;  ///< (g + 1): the first piece of each token that occurs
  Tensor group_ids;     ///< (g): these tokens
};

/// Rows of a table: table (vocabulary, D) -> (tokens.shape..., D).
Var embedding(Context& ctx, const Var& table, const Tokens& tokens);

/// scale * x + position: x (B, N, D), position (M, D) with M >= N, of which the first N rows are
/// used.
Var add_position(Context& ctx, const Var& x, const Var& position, float scale);

/// Zeroes each element with probability `p` and scales the others by 1 / (1 - p); the identity in
/// evaluation.
Var dropout(Context& ctx, const Var& x, double p);

/// dropout(activation(x)), the GELU being the exact one, x Phi(x).
Var activation(Context& ctx, const Var& x, Activation kind, double dropout);

/// x + dropout(y), the residual connection.
Var add_dropout(Context& ctx, const Var& x, const Var& y, double dropout);

/// Layer normalisation over the last dimension (Ba et al., 2016): weight, bias (D).
Var layer_norm(Context& ctx, const Var& x, const Var& weight, const Var& bias, double eps);

/// The same values under another shape.
Var reshape(Context& ctx, const Var& x, Shape shape);

/// x (B, N, D), zero at positions from lengths[b] on, plus the bias (D) at every position unless it
/// has no value. lengths (B) int32.
Var mask_positions(Context& ctx, const Var& x, const Tensor& lengths, const Var& bias = {});

/// Mean over positions, x (B, N, D) -> (B, D): the sum over the first lengths[b] positions (all
/// without lengths), divided by N, or with `own_length` by lengths[b]. lengths (B) int32.
Var mean_positions(Context& ctx, const Var& x, const Tensor* lengths, bool own_length);

/// Of two rows a, b each: x (2 B, D) -> (B, 4 D), the features a, b, a * b, a - b.
Var pair_features(Context& ctx, const Var& x);

/// How canonical attention is computed: block by block, or with all H x N x N probabilities in
/// memory.
enum class AttentionForm : uint8_t { blockwise, materialized };

struct AttentionOptions {
  int64_t heads = 1;
  bool causal = false;
  double dropout = 0;               ///< of the probabilities
  const Tensor* lengths = nullptr;  ///< (B) int32: later positions are not seen
  bool all_queries = false;         ///< these see the others all the same; else their outputs are 0
  AttentionForm form = AttentionForm::blockwise;
};

/// softmax(q k^T / sqrt(d)) v per head; q, k, v and the result are (B, N, D) (Vaswani et al.,
/// 2017).
Var attention(Context& ctx, const Var& q, const Var& k, const Var& v, const AttentionOptions&);

// Primal-Attention (Chen et al., NeurIPS 2023).

/// g(x) = x / max(||x||, 1e-12) over each head's d components: (B, N, D) -> (B, N, D).
Var normalize_heads(Context& ctx, const Var& x, int64_t heads);

/// Position t becomes the mean of positions 0..t: (B, N, D) -> (B, N, D).
Var running_mean(Context& ctx, const Var& x);

/// `m` evenly spaced rows of x (B, N, D) -> (B, m, D); of the first lengths[b] rows unless
/// `lengths` is empty.
Var sample_rows(Context& ctx, const Var& x, int64_t m, std::span<const int32_t> lengths);

/// Row i of m evenly spaced ones among `length`: trunc(i (length - 1) / (m - 1)) from the nearer
/// end, except that rows come in groups of four, each counted on from its truncated first one (the
/// last m % 8 rows singly). So did the integer range by which the published models chose their
/// rows; plain truncation differs by one here and there, and models trained with the one would not
/// give the same outputs with the other.
int64_t sample_index(int64_t i, int64_t m, int64_t length);

/// W = f^T P per head: rows f (B, m, D), projection P (H, m, s) -> (B, H, d, s).
Var data_projection(Context& ctx, const Var& rows, const Var& projection);

struct Projected {
  Var g;           ///< (B, N, D)
  Var projection;  ///< W (B, H, d, s) or shared (H, d, s)
};
/// Scores g W per head, those of all `sides` next to each other: (B, N, H sides s). The backward
/// computes them again.
Var project_scores(Context& ctx, const std::vector<Projected>& sides);

struct KsvdOptions {
  bool per_sample = true;           ///< means over each sample, else over the whole batch
  const Tensor* lengths = nullptr;  ///< (B) int32: moments over real positions only
};

/// mean of J^2 with J = 1/2 mean |e Lambda|^2 + 1/2 mean |r Lambda|^2 - trace(mean over heads of
/// W_e^T W_r): scores [e r] per head (B, N, H 2 s), or e and r (B, N, H s) apart; lambda (H, s);
/// the trace is of (H, m, s) or, per sample, (B, H, d, s).
Var ksvd_loss(Context& ctx, const std::vector<Var>& scores, const Var& lambda, const Var& trace_e,
              const Var& trace_r, const KsvdOptions&);

struct CrossEntropy {
  Var loss;        ///< (1), mean over rows
  Tensor correct;  ///< (1), rows whose largest logit is the label's
  Tensor probabilities;
};
/// Mean softmax cross entropy: logits (rows, classes), labels (rows) int32.
CrossEntropy cross_entropy(Context& ctx, const Var& logits, const Tensor& labels);

/// x + factor * y, both of one shape.
Var add_scaled(Context& ctx, const Var& x, const Var& y, double factor);

}  // namespace primal::ops

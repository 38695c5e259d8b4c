#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define PRIMAL_HOST_DEVICE __host__ __device__
#else
#define PRIMAL_HOST_DEVICE
#endif

namespace primal {

/// C = alpha op(A) op(B) + beta C + bias, single precision, row-major, op(X) = X or its transpose.
/// op(A) is (m, k), op(B) is (k, n), C is (m, n), bias is (n) and added to every row. Leading
/// dimensions count elements. With beta = 0, C is not read. C must not overlap A, B or bias.
struct GemmArgs {
  bool trans_a = false, trans_b = false;
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float beta = 0;
  float* c = nullptr;
  int64_t ldc = 0;
  const float* bias = nullptr;
};

/// A factor of a product as it lies in memory: rows `ld` elements apart, read as its transpose
/// where `transposed`.
struct Factor {
  const float* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
};

inline Factor transposed(const float* data, int64_t ld) {
  return {data, ld, true};
}

/// C (m, n) = A (m, k) B (k, n), added to what C holds where `accumulate`.
inline GemmArgs product(int64_t m, int64_t n, int64_t k, Factor a, Factor b, float* c, int64_t ldc,
                        bool accumulate = false) {
  GemmArgs args;
  args.trans_a = a.transposed;
  args.trans_b = b.transposed;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = a.data;
  args.lda = a.ld;
  args.b = b.data;
  args.ldb = b.ld;
  args.beta = accumulate ? 1.0F : 0.0F;
  args.c = c;
  args.ldc = ldc;
  return args;
}

/// Many products of one shape: item (o, i) uses a + o a_outer + i a_inner, and b and c likewise.
/// Strides count elements; 0 shares an operand. No two items may share C.
struct GemmBatch {
  int64_t count_outer = 1, count_inner = 1;
  int64_t a_outer = 0, a_inner = 0, b_outer = 0, b_inner = 0, c_outer = 0, c_inner = 0;
};

/// Which mask a dropout applies: element i is kept when its 16 random bits are below `keep_below`.
/// The bits are those of core/rng.h's Philox: see kernels/cpu/dropout.h for which bits belong to i.
struct Dropout {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t op = 0;
  uint32_t keep_below = 65536;  ///< keep probability times 65536; 65536 keeps all
  float scale = 1;              ///< 1 / keep probability
  uint64_t first = 0;           ///< the mask begins at this block of 128 elements of a longer one

  bool active() const { return keep_below < 65536; }
};

enum class Activation : uint8_t { gelu, relu };

/// Positions of tokens, grouped: group i is token ids[i], with pieces group_pieces[i] up to
/// group_pieces[i + 1]; piece p has positions order[piece_starts[p]] up to
/// order[piece_starts[p + 1]].
struct TokenGroups {
  int64_t groups = 0, pieces = 0;
  const int32_t* order = nullptr;
  const int32_t* piece_starts = nullptr;
  const int32_t* group_pieces = nullptr;
  const int32_t* ids = nullptr;
};

/// Canonical attention over heads of width `head_width`. q, k, v, out are (batch, length, heads *
/// head_width).
struct AttentionArgs {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t head_width = 0;
  float scale = 1;      ///< of the scores, 1 / sqrt(head_width)
  bool causal = false;  ///< position t sees positions 0..t only
  const int32_t* lengths =
      nullptr;               ///< (batch): positions from lengths[b] on are not seen; null: all are
  bool all_queries = false;  ///< they see the others all the same; else their outputs are 0
  Dropout
      dropout;  ///< of the probabilities; rows of the mask are padded to a multiple of 128 elements
};

struct AttentionGradients {
  const float* q;
  const float* k;
  const float* v;
  const float* out;
  const float* log_sum;  ///< (batch, heads, length), from forward
  const float* dout;
  float* dq;
  float* dk;
  float* dv;
};

/// J_b = 1/2 mean |e Lambda|^2 + 1/2 mean |r Lambda|^2 - trace, loss = mean over b of J_b^2.
/// The means run over heads and positions of each sample, or over the whole batch (one J).
/// The trace is sum(trace_e * trace_r) / trace_heads per sample.
struct KsvdArgs {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t rank = 0;
  bool per_sample = true;
  const float* e = nullptr;  ///< (batch, length, heads, rank), `stride` from one head to the next
  const float* r = nullptr;  ///< the same
  int64_t stride = 0;        ///< rank, or 2 rank where a head's e and r lie side by side
  const float* lambda = nullptr;  ///< (heads, rank)
  const float* trace_e =
      nullptr;  ///< (trace_batch, heads, trace_rows, rank): the projections the trace is of
  const float* trace_r = nullptr;  ///< the same
  int64_t trace_batch = 1;         ///< 1: shared by all samples; else batch
  int64_t trace_rows = 0;
  const int32_t* lengths =
      nullptr;  ///< (batch): moments over real positions only; null: all positions
};

/// Where the gradients go; a null pointer wants none. de, dr lie as e, r do and are added to with
/// `accumulate`, else overwritten; the others are always added to.
struct KsvdGradients {
  float* de = nullptr;
  float* dr = nullptr;
  bool accumulate_de = false;
  bool accumulate_dr = false;
  float* dlambda = nullptr;
  float* dtrace_e = nullptr;
  float* dtrace_r = nullptr;
};

/// One step of the Adam family:
///   g = factor * gradient + l2 * value;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 -
///   beta2) g^2 value = decay * value - step_size * (adaptive ? m / (second_scale * sqrt(v) + eps)
///   : m)
struct AdamStep {
  float l2 = 0;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float decay = 1;
  float step_size = 0;
  float second_scale = 1;
  bool adaptive = true;
};

/// What shortens numbers whose squares add up to `squares` to `max_norm`; see kernel `clip`.
PRIMAL_HOST_DEVICE inline float clip_factor(double squares, float max_norm) {
  if (!std::isfinite(squares)) return NAN;
  // The small term is the published code's; it matters only in the last digits.
  const double factor = max_norm / (std::sqrt(squares) + 1e-6);
  return max_norm > 0 && factor < 1 ? static_cast<float>(factor) : 1.0F;
}

}  // namespace primal

#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/bf16.h"
#include "kernels/cpu/gemm_amx.h"

#ifdef PRIMAL_BLAS
#include <cblas.h>
#else
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the intrinsics' deliberately undefined operands for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#endif

namespace primal::cpu {
namespace {

// Tiles are cut by shape alone, so that the bits do not depend on the number of threads: equal
// ones, of at most kTileRows x kTileColumns, and kTiles of them if that leaves kLeastRows in each.
constexpr int64_t kTileRows = 512, kTileColumns = 512, kTiles = 4, kLeastRows = 192, kUnit = 16;
// Products with few outputs and a long inner dimension are cut along k; the parts are added in
// order.
constexpr int64_t kSkinnyOutputs = 4096, kPartDepth = 8192;
// Least harmonic mean of m and n (halved), and least k, for which AMX pays.
constexpr int64_t kAmxLeast = 48;

void check(const Exec& exec, const GemmArgs& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0) {
    fail("[gemm] sizes must not be negative, got ({}, {}, {})", g.m, g.n, g.k);
  }
  const auto check_leading = [](const char* name, int64_t given, int64_t columns) {
    constexpr int64_t kMax = std::numeric_limits<int>::max();
    if (given < columns || given > kMax) {
      fail("[gemm] leading dimension of {} must be from {} to {}, got {}", name, columns, kMax,
           given);
    }
  };
  if (exec.product == ProductKind::amx && !amx_available()) {
    fail("[gemm] this processor or operating system does not offer AMX");
  }
  if (g.m == 0 || g.n == 0) return;
  check_leading("c", g.ldc, g.n);
  if (g.k == 0) return;
  check_leading("a", g.lda, g.trans_a ? g.m : g.k);
  check_leading("b", g.ldb, g.trans_b ? g.k : g.n);
}

/// The part of g that computes rows [i, i + rows) and columns [j, j + columns).
GemmArgs tile(const GemmArgs& g, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  GemmArgs t = g;
  t.m = rows;
  t.n = columns;
  t.a += g.trans_a ? i : i * g.lda;
  t.b += g.trans_b ? j * g.ldb : j;
  t.c += i * g.ldc + j;
  if (g.bias) t.bias += j;
  return t;
}

/// C = beta C + bias.
void scale(const GemmArgs& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    float* c = g.c + i * g.ldc;
    for (int64_t j = 0; j < g.n; ++j) {
      c[j] = (g.beta == 0 ? 0.0f : g.beta * c[j]) + (g.bias ? g.bias[j] : 0.0f);
    }
  }
}

/// OpenBLAS (its OpenMP build) and Eigen would start threads of their own, and cut the product by
/// their number, when called outside of an active parallel region. Both honour the calling thread's
/// limit, which is restored.
class OneThread {
 public:
#ifdef _OPENMP
  OneThread() : threads_(omp_get_max_threads()) {
    omp_set_num_threads(1);
  }
  ~OneThread() {
    omp_set_num_threads(threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
#endif
};

#ifdef PRIMAL_BLAS

void blas(const GemmArgs& g) {
#ifdef _OPENMP
  // The build with threads of its own has one setting for the whole process.
  static const bool once = openblas_get_parallel() != 1 || (openblas_set_num_threads(1), true);
#else
  static const bool once = (openblas_set_num_threads(1), true);
#endif
  (void)once;
  [[maybe_unused]] const OneThread limit;
  cblas_sgemm(CblasRowMajor, g.trans_a ? CblasTrans : CblasNoTrans,
              g.trans_b ? CblasTrans : CblasNoTrans, static_cast<int>(g.m), static_cast<int>(g.n),
              static_cast<int>(g.k), g.alpha, g.a, static_cast<int>(g.lda), g.b,
              static_cast<int>(g.ldb), g.beta, g.c, static_cast<int>(g.ldc));
}

#else

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Operand = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
using Result = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

void blas(const GemmArgs& g) {
  [[maybe_unused]] const OneThread limit;
  const Operand a(g.a, g.trans_a ? g.k : g.m, g.trans_a ? g.m : g.k, Eigen::OuterStride<>(g.lda));
  const Operand b(g.b, g.trans_b ? g.n : g.k, g.trans_b ? g.k : g.n, Eigen::OuterStride<>(g.ldb));
  Result c(g.c, g.m, g.n, Eigen::OuterStride<>(g.ldc));
  if (g.beta == 0) {
    c.setZero();
  } else if (g.beta != 1) {
    c *= g.beta;
  }
  const float alpha = g.alpha;
  if (g.trans_a && g.trans_b) {
    c.noalias() += alpha * (a.transpose() * b.transpose());
  } else if (g.trans_a) {
    c.noalias() += alpha * (a.transpose() * b);
  } else if (g.trans_b) {
    c.noalias() += alpha * (a * b.transpose());
  } else {
    c.noalias() += alpha * (a * b);
  }
}

#endif

/// Packing for AMX costs time in proportion to (m + n) k, which the faster product of m n k has to
/// repay.
bool use_amx(const Exec& exec, const GemmArgs& g) {
  if (exec.product == ProductKind::amx) return true;
  return exec.product == ProductKind::automatic && g.m * g.n >= kAmxLeast * (g.m + g.n) &&
         g.k >= kAmxLeast && amx_available();
}

/// The operand's elements (rows, columns), rounded to bfloat16, in memory of its own.
std::vector<float> rounded(const float* x, int64_t rows, int64_t columns, int64_t stride) {
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = x + i * stride;
    float* to = out.data() + i * columns;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) to[j] = round_to_bf16(from[j]);
  }
  return out;
}

void product_on_this_thread(const Exec& exec, const GemmArgs& args) {
  GemmArgs g = args;
  const bool bf16 = exec.precision == Precision::bf16;
  if (g.k == 0 || g.alpha == 0) return scale(g);
  if (use_amx(exec, g)) return bf16 ? gemm_amx_bf16(g) : gemm_amx(g);
  std::vector<float> a, b;
  if (bf16) {
    a = g.trans_a ? rounded(g.a, g.k, g.m, g.lda) : rounded(g.a, g.m, g.k, g.lda);
    b = g.trans_b ? rounded(g.b, g.n, g.k, g.ldb) : rounded(g.b, g.k, g.n, g.ldb);
    g.a = a.data();
    g.b = b.data();
    g.lda = g.trans_a ? g.m : g.k;
    g.ldb = g.trans_b ? g.k : g.n;
  }
  if (g.bias) {
    scale(g);
    g.beta = 1;
  }
  blas(g);
}

bool in_parallel() {
#ifdef _OPENMP
  return omp_in_parallel() != 0;
#else
  return true;
#endif
}

/// Runs f, which computes `items` products of g's shape on `threads` threads, and adds the time
/// that they were kept, waiting for one another included, and the operations to the meter.
template <class F>
void measured(const Exec& exec, const GemmArgs& g, int64_t items, int threads, F&& f) {
  if (!exec.meter) return f();
  const auto start = std::chrono::steady_clock::now();
  f();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  exec.meter->add(
      seconds.count() * threads,
      2.0 * static_cast<double>(items * g.m) * static_cast<double>(g.n) * static_cast<double>(g.k));
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

void tiled(const Exec& exec, const GemmArgs& g) {
  const auto piece = [](int64_t size, int64_t count) {
    return ceil_div(ceil_div(size, count), kUnit) * kUnit;
  };
  const int64_t columns = piece(g.n, ceil_div(g.n, kTileColumns)), across = ceil_div(g.n, columns);
  const int64_t wanted = std::clamp<int64_t>(g.m / kLeastRows, 1, ceil_div(kTiles, across));
  const int64_t rows = piece(g.m, std::max(wanted, ceil_div(g.m, kTileRows)));
  const int64_t down = ceil_div(g.m, rows);
  parallel_for(exec, down * across, [&](int64_t t) {
    const int64_t i = t / across * rows, j = t % across * columns;
    const GemmArgs part = tile(g, i, std::min(rows, g.m - i), j, std::min(columns, g.n - j));
    product_on_this_thread(exec, part);
  });
}

void split_along_k(const Exec& exec, const GemmArgs& g) {
  const int64_t parts = ceil_div(g.k, kPartDepth), size = g.m * g.n;
  std::vector<float> sums(static_cast<std::size_t>(parts * size));
  parallel_for(exec, parts, [&](int64_t p) {
    const int64_t start = p * kPartDepth;
    GemmArgs part = g;
    part.k = std::min(kPartDepth, g.k - start);
    part.a += g.trans_a ? start * g.lda : start;
    part.b += g.trans_b ? start : start * g.ldb;
    part.beta = 0;
    part.bias = nullptr;
    part.c = sums.data() + p * size;
    part.ldc = g.n;
    product_on_this_thread(exec, part);
  });
  scale(g);
  for (int64_t p = 0; p < parts; ++p) {
    for (int64_t i = 0; i < g.m; ++i) {
      const float* sum = sums.data() + p * size + i * g.n;
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.ldc + j] += sum[j];
    }
  }
}

}  // namespace

void gemm(const Exec& exec, const GemmArgs& args) {
  check(exec, args);
  if (args.m == 0 || args.n == 0) return;
  measured(exec, args, 1, in_parallel() ? 1 : exec.threads, [&] {
    if (args.m * args.n <= kSkinnyOutputs && args.k > kPartDepth) {
      split_along_k(exec, args);
    } else {
      tiled(exec, args);
    }
  });
}

void gemm_serial(const Exec& exec, const GemmArgs& args) {
  check(exec, args);
  if (args.m == 0 || args.n == 0) return;
  measured(exec, args, 1, 1, [&] { product_on_this_thread(exec, args); });
}

void gemm_batched(const Exec& exec, const GemmArgs& args, const GemmBatch& batch) {
  check(exec, args);
  if (args.m == 0 || args.n == 0) return;
  const int64_t items = batch.count_outer * batch.count_inner;
  measured(exec, args, items, in_parallel() ? 1 : exec.threads, [&] {
    parallel_for(exec, items, [&](int64_t item) {
      const int64_t outer = item / batch.count_inner, inner = item % batch.count_inner;
      GemmArgs g = args;
      g.a += outer * batch.a_outer + inner * batch.a_inner;
      g.b += outer * batch.b_outer + inner * batch.b_inner;
      g.c += outer * batch.c_outer + inner * batch.c_inner;
      product_on_this_thread(exec, g);
    });
  });
}

}  // namespace primal::cpu

#pragma once

#include <cstdint>

#include "kernels/cpu/exec.h"

namespace primal::cpu {

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

/// Many products of one shape: item (o, i) uses a + o a_outer + i a_inner, and b and c likewise.
/// Strides count elements; 0 shares an operand. No two items may share C.
struct Batch {
  int64_t count_outer = 1, count_inner = 1;
  int64_t a_outer = 0, a_inner = 0, b_outer = 0, b_inner = 0, c_outer = 0, c_inner = 0;
};

/// One product on exec.threads threads. The bits of the result depend on the shape, the values and
/// the processor, never on the number of threads. Throws Error on a negative size or a leading
/// dimension that is too short.
void gemm(const Exec& exec, const GemmArgs& args);

/// One product on the calling thread; may be called inside of a parallel region.
void gemm_serial(const Exec& exec, const GemmArgs& args);

/// The items of a batch spread over exec.threads threads, each as gemm_serial computes it.
void gemm_batched(const Exec& exec, const GemmArgs& args, const Batch& batch);

/// Whether this processor and operating system offer ProductKind::amx.
bool amx_available();

}  // namespace primal::cpu

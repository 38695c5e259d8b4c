#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "core/error.h"

/// Throws Error with the call, its place and the library's own words when a CUDA or cuBLAS call
/// fails.
#define PRIMAL_CHECK(call) ::primal::cuda::check((call), #call, __FILE__, __LINE__)

namespace primal::cuda {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  fail("[cuda] {}:{}: {}: {} ({})", file, line, call, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

inline void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail("[cuda] {}:{}: {}: {}", file, line, call, cublasGetStatusString(status));
}

}  // namespace primal::cuda

#pragma once

#include "kernels/args.h"
#include "kernels/cpu/exec.h"

namespace primal::cpu {

/// One product on exec.threads threads. The bits of the result depend on the shape, the values and
/// the processor, never on the number of threads. Throws Error on a negative size or a leading
/// dimension that is too short.
void gemm(const Exec& exec, const GemmArgs& args);

/// One product on the calling thread; may be called inside of a parallel region.
void gemm_serial(const Exec& exec, const GemmArgs& args);

/// The items of a batch spread over exec.threads threads, each as gemm_serial computes it.
void gemm_batched(const Exec& exec, const GemmArgs& args, const GemmBatch& batch);

/// Whether this processor and operating system offer ProductKind::amx.
bool amx_available();

}  // namespace primal::cpu

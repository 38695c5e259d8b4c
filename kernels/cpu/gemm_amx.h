#pragma once

#include "kernels/cpu/gemm.h"

namespace primal::cpu {

/// gemm_serial on the processor's bfloat16 matrix unit; sizes are positive and alpha is not zero.
/// Needs amx_available(). See gemm_amx.cpp for its accuracy.
void gemm_amx(const GemmArgs& args);

/// The same with operands rounded to bfloat16, six times less work.
void gemm_amx_bf16(const GemmArgs& args);

}  // namespace primal::cpu

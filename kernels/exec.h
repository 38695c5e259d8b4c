#pragma once

#include "kernels/cpu/exec.h"
#include "kernels/cpu/gemm.h"

namespace primal {

using cpu::Exec;
using cpu::GemmArgs;
using GemmBatch = cpu::Batch;

}  // namespace primal

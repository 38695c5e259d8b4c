#pragma once

#include "kernels/cpu/exec.h"
#include "kernels/cpu/gemm.h"
#include "kernels/table.h"

// The CPU's kernels, declared from kernels/ops.def. Work is cut by shape only, never by the number
// of threads, and every sum runs in one fixed order: results are the same bits for any number of
// threads.

namespace primal::cpu {

#define KERNEL(name, arguments) void name arguments;
#include "kernels/ops.def"
#undef KERNEL

}  // namespace primal::cpu

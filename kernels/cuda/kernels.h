#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/simt.h"
#include "kernels/table.h"

// The kernels of kernels/ops.def for CUDA; on the host, for tests. Every sum runs in an order that
// depends on the shape only.

namespace primal::PRIMAL_DEVICE {

#define KERNEL(name, arguments) void name arguments;
#include "kernels/ops.def"
#undef KERNEL

}  // namespace primal::PRIMAL_DEVICE

#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/exec.h"

namespace primal {

/// The kernels of a backend (kernels/ops.def).
struct OpTable {
#define KERNEL(name, arguments) void(*name) arguments = nullptr;
#include "kernels/ops.def"
#undef KERNEL
};

const OpTable& cpu_kernels();

}  // namespace primal

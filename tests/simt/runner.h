#pragma once

#include <cstdint>

#include "core/backend.h"

namespace primal::simt {

/// In which order the threads of a block run between barriers. Kernels must not depend on it.
enum class Order : uint8_t { ascending, descending, shuffled };

/// Sets the order of the runs to come.
void set_order(Order order);

/// A backend whose kernels are those of kernels/cuda, run on the host, and whose products are the
/// CPU's.
Backend host_backend(std::unique_ptr<RawMemory> memory);

}  // namespace primal::simt

#pragma once

#include <memory>
#include <string>

#include "core/tensor.h"
#include "kernels/table.h"

namespace primal {

enum class Device : uint8_t { cpu, cuda };

/// A device: its memory, how it executes, and its kernels.
struct Backend {
  Device device = Device::cpu;
  std::shared_ptr<CachingAllocator> memory;
  Exec exec;
  const OpTable* op = nullptr;
  std::string device_name;       ///< of a GPU: model and architecture
  std::shared_ptr<void> stream;  ///< keeps what exec.stream points to

  Tensor empty(Shape shape, DType dtype = DType::f32) const { return {memory, shape, dtype}; }
};

/// The CPU with `threads` threads; 0 takes what the process may use (affinity and container quota).
Backend cpu_backend(int threads = 0);

/// The first GPU. Error, with what can be done, where there is none that this build can use.
Backend cuda_backend();
/// Why cuda_backend() would fail, or nothing.
std::string cuda_obstacle();

/// Cores this process may use: the affinity mask, lowered to a container's CPU quota.
int usable_cores();

}  // namespace primal

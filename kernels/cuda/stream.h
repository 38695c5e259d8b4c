#pragma once

#include "core/memory.h"
#include "kernels/exec.h"

namespace primal::cuda {

/// What kernels need besides their arguments: where they queue, and scratch memory in the order of
/// that queue.
struct Stream {
  void* handle = nullptr;  ///< cudaStream_t
  CachingAllocator* memory = nullptr;
};

}  // namespace primal::cuda

namespace primal {

/// Device memory for the kernels that are launched while it lives. The stream orders its reuse.
template <class T>
class Scratch {
 public:
  Scratch(const Exec& exec, int64_t count)
      : memory_(*exec.stream->memory),
        data_(static_cast<T*>(memory_.allocate(count * static_cast<int64_t>(sizeof(T))))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { memory_.free(data_); }

  T* data() const { return data_; }

 private:
  CachingAllocator& memory_;
  T* data_;
};

}  // namespace primal

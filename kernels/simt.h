#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/exec.h"

// The CUDA kernel language for two compilers. Under nvcc this is CUDA itself. Under a C++ compiler
// the same .cu file becomes code whose threads are run on the host, one after the other between
// barriers, by tests/simt/runner.cpp: every value that a kernel computes, every bound and every
// barrier can be tested without a GPU.
//
// Kernels keep to this subset: 1-D to 3-D grids and blocks; __syncthreads, __syncwarp; the shuffles
// and votes below, with a mask; the tensor cores through kernels/cuda/mma.h; shared memory through
// SharedMemory only; no atomics.

#ifdef __CUDACC__

#include <cuda_runtime.h>

// The namespace of what is compiled from kernels/cuda.
#define PRIMAL_DEVICE cuda

namespace primal::cuda {

/// Throws Error with the name of the kernel when the launch before failed.
void check_launch(std::string_view kernel);
/// Stream that `exec` computes on.
cudaStream_t stream_of(const Exec& exec);

/// Runs `kernel` with `shared` bytes of shared memory on the stream of `exec`. An empty grid runs
/// nothing.
template <auto kernel, class... Arguments>
void launch(const Exec& exec, dim3 grid, dim3 block, std::size_t shared, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  // More than 48 KiB has to be asked for.
  if (shared > 48 * 1024) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared));
  }
  kernel<<<grid, block, shared, stream_of(exec)>>>(arguments...);
  check_launch(__PRETTY_FUNCTION__);
}

extern __shared__ __align__(16) char shared_bytes[];

/// Cuts the block's shared memory into arrays. Every thread asks for the same ones in the same
/// order.
class SharedMemory {
 public:
  template <class T>
  __device__ T* array(int count) {
    static_assert(sizeof(T) == 4 || sizeof(T) % 8 == 0);
    char* start = next_;
    next_ += (static_cast<std::size_t>(count) * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(start);
  }

 private:
  char* next_ = shared_bytes;
};

}  // namespace primal::cuda

#else

#include <cmath>
#include <cstring>
#include <functional>

// NOLINTBEGIN(readability-identifier-naming): the names that CUDA has
#define PRIMAL_DEVICE simt
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}
};

struct alignas(16) float4 {
  float x, y, z, w;
};

namespace primal::simt {

/// Where the running thread is.
struct Place {
  dim3 thread{0, 0, 0}, block{0, 0, 0}, threads, blocks;
};
const Place& here();

#define threadIdx (::primal::simt::here().thread)
#define blockIdx (::primal::simt::here().block)
#define blockDim (::primal::simt::here().threads)
#define gridDim (::primal::simt::here().blocks)

/// Runs `thread` once for each thread of the grid. Throws Error that names kernel, block and
/// threads when a barrier or shuffle is not reached by all that must, when a lane reads one outside
/// of its mask, and when shared memory is overrun.
void run_grid(std::string_view kernel, dim3 grid, dim3 block, std::size_t shared,
              const std::function<void()>& thread);

template <auto kernel, class... Arguments>
void launch(const Exec&, dim3 grid, dim3 block, std::size_t shared, Arguments... arguments) {
  run_grid(__PRETTY_FUNCTION__, grid, block, shared, [&] { kernel(arguments...); });
}

/// `count` elements that every thread of the block gets at its `index`-th request, `at` bytes into
/// the block's shared memory.
void* shared_array(int index, std::size_t at, std::size_t bytes);

class SharedMemory {
 public:
  template <class T>
  T* array(int count) {
    static_assert(sizeof(T) == 4 || sizeof(T) % 8 == 0);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* start = shared_array(index_++, used_, bytes);
    used_ += (bytes + 15) / 16 * 16;
    return static_cast<T*>(start);
  }

 private:
  int index_ = 0;
  std::size_t used_ = 0;
};

void __syncthreads();

/// What the lanes of a warp exchange.
struct Exchange {
  enum Kind : uint8_t {
    none,
    sync,
    shuffle,
    shuffle_up,
    shuffle_down,
    shuffle_xor,
    ballot,
    product,             ///< value: address of a ProductOperands
    matrices,            ///< value: address of a MatrixRows
    matrices_transposed  ///< the same
  } kind = none;
  unsigned mask = 0;
  int operand = 0;  ///< lane, delta or lane mask
  int width = 32;
  uint64_t value = 0;
};
/// A lane's part of a warp's product and of matrices that it loads; see kernels/cuda/mma.h.
struct ProductOperands {
  uint32_t a[4];
  uint32_t b[2];
  float* d;
};
struct MatrixRows {
  const uint32_t* row;
  uint32_t* out;
};
/// Waits for all lanes of the mask; returns what this lane gets.
uint64_t exchange(const Exchange& mine);

template <class T>
T exchange_value(Exchange::Kind kind, unsigned mask, T value, int operand, int width) {
  static_assert(sizeof(T) <= 8);
  Exchange mine{kind, mask, operand, width, 0};
  std::memcpy(&mine.value, &value, sizeof(T));
  const uint64_t got = exchange(mine);
  std::memcpy(&value, &got, sizeof(T));
  return value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return exchange_value(Exchange::shuffle, mask, value, lane, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return exchange_value(Exchange::shuffle_up, mask, value, static_cast<int>(delta), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return exchange_value(Exchange::shuffle_down, mask, value, static_cast<int>(delta), width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return exchange_value(Exchange::shuffle_xor, mask, value, lanes, width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(exchange({Exchange::ballot, mask, 0, 32, predicate != 0 ? 1U : 0U}));
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFF) {
  exchange({Exchange::sync, mask, 0, 32, 0});
}

}  // namespace primal::simt
   // NOLINTEND(readability-identifier-naming)

#endif

#pragma once

#include <cstdint>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace primal {

namespace cuda {
struct Stream;  // kernels/cuda/stream.h
}

/// Index of the calling thread in its team, 0 outside of a parallel region.
inline int thread_index() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/// Thread-seconds and floating-point operations spent in matrix products: a product on several
/// threads counts its time once for each. Every thread adds to its own slot, a cache line wide, so
/// that measuring costs two clock reads per product.
class ProductMeter {
 public:
  explicit ProductMeter(int threads) : slots_(static_cast<std::size_t>(threads)) {}

  /// Adds to the calling thread's slot; a thread beyond `threads` is not counted.
  void add(double seconds, double operations) {
    const auto i = static_cast<std::size_t>(thread_index());
    if (i >= slots_.size()) return;
    slots_[i].seconds += seconds;
    slots_[i].operations += operations;
  }
  double thread_seconds() const {
    double sum = 0;
    for (const Slot& s : slots_) sum += s.seconds;
    return sum;
  }
  double operations() const {
    double sum = 0;
    for (const Slot& s : slots_) sum += s.operations;
    return sum;
  }
  void reset() { slots_.assign(slots_.size(), Slot{}); }

 private:
  struct alignas(64) Slot {
    double seconds = 0, operations = 0;
  };
  std::vector<Slot> slots_;
};

/// Which code computes matrix products. `automatic` chooses by shape and by what the processor
/// offers.
enum class ProductKind { automatic, blas, amx };

/// What products round their operands to. They add in float32; all other arithmetic, and every
/// tensor, is float32.
enum class Precision : uint8_t {
  float32,
  tf32,  ///< 10 bits and sign, on GPUs that have it; elsewhere float32
  bf16,  ///< 7 bits and sign
};

/// How a kernel runs. Every result is the same bits for any number of threads.
struct Exec {
  int threads = 1;
  ProductMeter* meter = nullptr;
  ProductKind product = ProductKind::automatic;
  Precision precision = Precision::float32;
  cuda::Stream* stream = nullptr;  ///< of a CUDA backend, else null
};

}  // namespace primal

#include "core/backend.h"
#include "core/error.h"

// Stands in for kernels/cuda in a build without CUDA.

namespace primal {

std::string cuda_obstacle() {
  return "this build has the CPU backend only; configure with -DPRIMAL_CUDA=ON, or use cpu or auto";
}

Backend cuda_backend() {
  fail("device: cuda: {}", cuda_obstacle());
}

}  // namespace primal

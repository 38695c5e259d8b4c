#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "tests/simt/runner.h"

namespace primal::simt {

// What cuBLAS and the CUDA runtime do on a GPU.

namespace {

Exec on_cpu(const Exec& exec) {
  Exec cpu;
  cpu.precision = exec.precision;
  return cpu;
}

}  // namespace

void gemm(const Exec& exec, const GemmArgs& args) {
  cpu::gemm(on_cpu(exec), args);
}
void gemm_batched(const Exec& exec, const GemmArgs& args, const GemmBatch& batch) {
  cpu::gemm_batched(on_cpu(exec), args, batch);
}
void upload(const Exec&, int64_t n, const float* host, float* out) {
  std::copy_n(host, n, out);
}
void download(const Exec&, int64_t n, const float* x, float* host) {
  std::copy_n(x, n, host);
}
void upload_integers(const Exec&, int64_t n, const int32_t* host, int32_t* out) {
  std::copy_n(host, n, out);
}

Backend host_backend(std::unique_ptr<RawMemory> memory) {
  static constexpr OpTable kTable{
#define KERNEL(name, arguments) .name = simt::name,
#include "kernels/ops.def"
#undef KERNEL
  };
  Backend backend;
  backend.device = Device::cuda;  // whoever reads its memory has to download it
  backend.memory = std::make_shared<CachingAllocator>(std::move(memory));
  const auto stream = std::make_shared<cuda::Stream>();
  stream->memory = backend.memory.get();
  backend.exec.stream = stream.get();
  backend.stream = stream;
  backend.op = &kTable;
  return backend;
}

}  // namespace primal::simt

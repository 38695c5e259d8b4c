// The parts of the CUDA backend that are no kernels: the device, its memory, copies, and products
// by cuBLAS.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "core/backend.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/stream.h"
#include "kernels/table.h"

namespace primal {
namespace cuda {

#define KERNEL(name, arguments) void name arguments;
#include "kernels/ops.def"
#undef KERNEL

namespace {

class DeviceMemory final : public RawMemory {
 public:
  void* acquire(int64_t bytes) override {
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // forgets it
      return nullptr;
    }
    PRIMAL_CHECK(status);
    return block;
  }
  void release(void* block, int64_t) override {
    cudaFree(block);  // waits for the kernels that use it
  }
  int64_t available() const override {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }
};

/// Page-locked host memory that uploads pass through: the caller's buffer is free at once, the copy
/// runs on the stream.
class Staging {
 public:
  Staging() {
    for (Slot& slot : slots_)
      PRIMAL_CHECK(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming));
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    for (Slot& slot : slots_) {
      cudaEventDestroy(slot.copied);
      cudaFreeHost(slot.memory);
    }
  }

  void upload(cudaStream_t stream, size_t bytes, const void* host, void* device) {
    if (bytes == 0) return;
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    PRIMAL_CHECK(cudaEventSynchronize(slot.copied));  // its last copy; over long ago
    if (slot.bytes < bytes) {
      PRIMAL_CHECK(cudaFreeHost(slot.memory));
      slot.memory = nullptr;
      slot.bytes = 0;
      PRIMAL_CHECK(cudaMallocHost(&slot.memory, bytes));
      slot.bytes = bytes;
    }
    std::memcpy(slot.memory, host, bytes);
    PRIMAL_CHECK(cudaMemcpyAsync(device, slot.memory, bytes, cudaMemcpyHostToDevice, stream));
    PRIMAL_CHECK(cudaEventRecord(slot.copied, stream));
  }

 private:
  struct Slot {
    void* memory = nullptr;
    size_t bytes = 0;
    cudaEvent_t copied = nullptr;
  };
  std::array<Slot, 8> slots_;  // a batch is a few tensors; two batches may be on their way
  size_t next_ = 0;
};

/// The stream with what works on it.
struct Session final : Stream {
  Staging staging;
  cublasHandle_t blas = nullptr;
  cublasLtHandle_t biased = nullptr;
  std::shared_ptr<CachingAllocator> allocator;

  Session() : allocator(std::make_shared<CachingAllocator>(std::make_unique<DeviceMemory>())) {
    memory = allocator.get();
    cudaStream_t queue = nullptr;
    PRIMAL_CHECK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    handle = queue;
    PRIMAL_CHECK(cublasCreate(&blas));
    PRIMAL_CHECK(cublasSetStream(blas, queue));
    PRIMAL_CHECK(cublasLtCreate(&biased));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    cublasLtDestroy(biased);
    cublasDestroy(blas);
    cudaStreamDestroy(static_cast<cudaStream_t>(handle));
  }
};

Session& session_of(const Exec& exec) {
  return *static_cast<Session*>(exec.stream);
}

cublasOperation_t operation(bool transposed) {
  return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// How cuBLAS computes a product of float32 operands into float32.
cublasComputeType_t compute_type(const Exec& exec) {
  switch (exec.precision) {
    case Precision::tf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Precision::bf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case Precision::float32:
      break;
  }
  return CUBLAS_COMPUTE_32F_PEDANTIC;
}

/// `count` products whose operands lie `a`, `b` and `c` elements apart.
struct Repeat {
  int64_t count = 1, a = 0, b = 0, c = 0;
};

// Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: the operands change places.

void multiply(const Exec& exec, const GemmArgs& g, const Repeat& r) {
  PRIMAL_CHECK(cublasGemmStridedBatchedEx_64(
      session_of(exec).blas, operation(g.trans_b), operation(g.trans_a), g.n, g.m, g.k, &g.alpha,
      g.b, CUDA_R_32F, g.ldb, r.b, g.a, CUDA_R_32F, g.lda, r.a, &g.beta, g.c, CUDA_R_32F, g.ldc,
      r.c, r.count, compute_type(exec), CUBLAS_GEMM_DEFAULT));
}

/// cublasLt's descriptors of products with a bias, which it adds while the product is still in
/// registers.
class BiasedProduct {
 public:
  BiasedProduct(const Exec& exec, const GemmArgs& g, const Repeat& r) {
    PRIMAL_CHECK(cublasLtMatmulDescCreate(&product_, compute_type(exec), CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(g.trans_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(g.trans_a));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    a_ = layout(g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.ldb, r.count, r.b);
    b_ = layout(g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.lda, r.count, r.a);
    c_ = layout(g.n, g.m, g.ldc, r.count, r.c);
  }
  BiasedProduct(const BiasedProduct&) = delete;
  BiasedProduct& operator=(const BiasedProduct&) = delete;
  ~BiasedProduct() {
    for (cublasLtMatrixLayout_t matrix : {a_, b_, c_}) cublasLtMatrixLayoutDestroy(matrix);
    cublasLtMatmulDescDestroy(product_);
  }

  void run(const Exec& exec, const GemmArgs& g) const {
    PRIMAL_CHECK(cublasLtMatmul(session_of(exec).biased, product_, &g.alpha, g.b, a_, g.a, b_,
                                &g.beta, g.c, c_, g.c, c_, nullptr, nullptr, 0,
                                static_cast<cudaStream_t>(exec.stream->handle)));
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    PRIMAL_CHECK(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value));
  }
  static cublasLtMatrixLayout_t layout(int64_t rows, int64_t columns, int64_t leading,
                                       int64_t count, int64_t stride) {
    cublasLtMatrixLayout_t matrix = nullptr;
    PRIMAL_CHECK(cublasLtMatrixLayoutCreate(&matrix, CUDA_R_32F, static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(columns), leading));
    const auto items = static_cast<int32_t>(count);
    PRIMAL_CHECK(cublasLtMatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &items, sizeof items));
    PRIMAL_CHECK(cublasLtMatrixLayoutSetAttribute(
        matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return matrix;
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

void product(const Exec& exec, const GemmArgs& g, const Repeat& r) {
  if (g.bias == nullptr) {
    multiply(exec, g, r);
  } else {
    BiasedProduct(exec, g, r).run(exec, g);
  }
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "unknown";
  return fmt::format("{}, sm_{}{}", properties.name, properties.major, properties.minor);
}

/// Whether code for one of the build's architectures runs on sm_`architecture`: newer GPUs compile
/// it from its PTX.
bool runs_on(int architecture) {
  std::istringstream list(PRIMAL_CUDA_ARCHITECTURES);
  for (int built = 0; list >> built;) {
    if (built <= architecture) return true;
    list.ignore(16, ' ');
  }
  return false;
}

/// What keeps this machine from running the build's kernels, or nothing.
std::string obstacle() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver) {
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "no NVIDIA driver is loaded (nvidia-smi shows whether there is one)";
    return fmt::format(
        "the NVIDIA driver serves CUDA {}.{}, this build needs {}.{}; update the driver",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && devices == 0)) {
    return "the driver shows no GPU (is CUDA_VISIBLE_DEVICES set?)";
  }
  if (status != cudaSuccess) return cudaGetErrorString(status);
  const std::string name = device_name(0);
  const std::string architecture = name.substr(name.rfind('_') + 1);
  if (runs_on(std::stoi(architecture))) return "";
  return fmt::format(
      "the GPU ({}) is older than this build is for ({}); configure with "
      "-DCMAKE_CUDA_ARCHITECTURES={}",
      name, PRIMAL_CUDA_ARCHITECTURES, architecture);
}

}  // namespace

void check_launch(std::string_view kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  fail("[cuda] launch failed: {} ({}): {}", cudaGetErrorString(status), cudaGetErrorName(status),
       kernel);
}

cudaStream_t stream_of(const Exec& exec) {
  return static_cast<cudaStream_t>(exec.stream->handle);
}

void upload(const Exec& exec, int64_t n, const float* host, float* out) {
  session_of(exec).staging.upload(stream_of(exec), static_cast<size_t>(n) * sizeof(float), host,
                                  out);
}

void upload_integers(const Exec& exec, int64_t n, const int32_t* host, int32_t* out) {
  session_of(exec).staging.upload(stream_of(exec), static_cast<size_t>(n) * sizeof(int32_t), host,
                                  out);
}

void download(const Exec& exec, int64_t n, const float* x, float* host) {
  PRIMAL_CHECK(cudaMemcpyAsync(host, x, static_cast<size_t>(n) * sizeof(float),
                               cudaMemcpyDeviceToHost, stream_of(exec)));
  PRIMAL_CHECK(cudaStreamSynchronize(stream_of(exec)));
}

void gemm(const Exec& exec, const GemmArgs& g) {
  if (g.m > 0 && g.n > 0) product(exec, g, {});
}

void gemm_batched(const Exec& exec, const GemmArgs& g, const GemmBatch& b) {
  if (g.m == 0 || g.n == 0 || b.count_outer == 0 || b.count_inner == 0) return;
  // One call for each item of the shorter side.
  Repeat along{b.count_inner, b.a_inner, b.b_inner, b.c_inner};
  Repeat across{b.count_outer, b.a_outer, b.b_outer, b.c_outer};
  if (along.count < across.count) std::swap(along, across);
  for (int64_t i = 0; i < across.count; ++i) {
    GemmArgs item = g;
    item.a += i * across.a;
    item.b += i * across.b;
    item.c += i * across.c;
    product(exec, item, along);
  }
}

}  // namespace cuda

std::string cuda_obstacle() {
  return cuda::obstacle();
}

Backend cuda_backend() {
  if (const std::string problem = cuda_obstacle(); !problem.empty())
    fail("device: cuda: {}", problem);
  static constexpr OpTable kTable{
#define KERNEL(name, arguments) .name = cuda::name,
#include "kernels/ops.def"
#undef KERNEL
  };
  const auto session = std::make_shared<cuda::Session>();
  Backend backend;
  backend.device = Device::cuda;
  backend.memory = session->allocator;
  backend.exec.stream = session.get();
  backend.stream = session;
  backend.op = &kTable;
  backend.device_name = cuda::device_name(0);
  return backend;
}

}  // namespace primal

#include <vector>

#include "core/error.h"
#include "kernels/cuda/mma.h"
#include "tests/catch.h"
#include "tests/simt/runner.h"

// The runner against correct kernels, and against kernels with one planted fault each.

namespace primal::simt {
namespace {

constexpr Order kOrders[] = {Order::ascending, Order::descending, Order::shuffled};

enum class Fault : uint8_t {
  none,
  no_barrier,
  bound,
  outside_mask,
  overrun,
  late_barrier,
  lane_missing,
  too_much,
  other_array
};

/// out[block] = sum of the block's 64 inputs.
template <Fault fault>
__global__ void block_sum(const float* x, float* out) {
  SharedMemory shared;
  float* values = shared.array<float>(fault == Fault::too_much ? 80 : 64);
  float* sums = shared.array<float>(fault == Fault::other_array && threadIdx.x == 5 ? 1 : 2);
  const unsigned t = threadIdx.x;
  values[t + (fault == Fault::overrun ? 1 : 0)] =
      x[blockIdx.x * 64 + t + (fault == Fault::bound ? 1 : 0)];
  if (fault != Fault::no_barrier) __syncthreads();
  if (fault == Fault::late_barrier && t == 63) return;
  float sum = values[63 - t];
  for (int step = 16; step > 0; step /= 2) {
    const unsigned mask =
        fault == Fault::outside_mask ? (t < 48 ? 0x0000FFFFU : 0xFFFFFFFFU) : 0xFFFFFFFFU;
    if (fault == Fault::outside_mask && t % 32 >= 16 && t < 48) continue;
    if (fault == Fault::lane_missing && t == 40) continue;
    sum += __shfl_xor_sync(mask, sum, step);
  }
  if (t % 32 == 0) sums[t / 32] = sum;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = sums[0] + sums[1];
}

template <Fault fault>
std::vector<float> block_sums(Order order) {
  set_order(order);
  std::vector<float> x(64 * 3 + 1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.37F;
  std::vector<float> out(3);
  launch<block_sum<fault>>(Exec{}, 3, 64, 66 * sizeof(float), static_cast<const float*>(x.data()),
                           out.data());
  return out;
}

template <Fault fault>
std::string error_of(Order order) {
  try {
    block_sums<fault>(order);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

__global__ void places(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * 24 + thread] += block * 100 + thread;
}

__global__ void exchanges(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(0xFFFFFFFF, lane, 3);
  out[32 + lane] = __shfl_up_sync(0xFFFFFFFF, lane, 5);
  out[64 + lane] = __shfl_down_sync(0xFFFFFFFF, lane, 5);
  out[96 + lane] = __shfl_xor_sync(0xFFFFFFFF, lane, 9);
  out[128 + lane] = static_cast<int>(__ballot_sync(0xFFFFFFFF, lane % 3 == 0));
  out[160 + lane] = __shfl_down_sync(0xFFFFFFFF, lane, 3, 8);
  if (lane < 16) out[192 + lane] = __shfl_xor_sync(0x0000FFFF, lane, 1);
  __syncwarp();
}

}  // namespace

TEST_CASE("simt: a kernel with barriers and shuffles gives the same bits in any thread order") {
  for (const Order order : kOrders) {
    const std::vector<float> sums = block_sums<Fault::none>(order);
    REQUIRE(sums == block_sums<Fault::none>(Order::ascending));
    for (int b = 0; b < 3; ++b) CHECK(sums[b] == Approx(0.37 * (64 * (64 * b) + 63 * 32)));
  }
}

TEST_CASE("simt: every thread of a grid runs once, in its place") {
  std::vector<unsigned> out(24 * 12, 0);
  launch<places>(Exec{}, dim3(3, 2, 2), dim3(4, 3, 2), 0, out.data());
  for (unsigned i = 0; i < out.size(); ++i) CHECK(out[i] == i / 24 * 100 + i % 24);
  launch<places>(Exec{}, 0, 32, 0, out.data());  // an empty grid
}

TEST_CASE("simt: shuffles and votes read the lanes that CUDA's do") {
  for (const Order order : kOrders) {
    set_order(order);
    std::vector<int> out(224, -1);
    launch<exchanges>(Exec{}, 1, 32, 0, out.data());
    unsigned thirds = 0;
    for (int lane = 0; lane < 32; lane += 3) thirds |= 1U << lane;
    for (int lane = 0; lane < 32; ++lane) {
      CHECK(out[lane] == 3);
      CHECK(out[32 + lane] == (lane < 5 ? lane : lane - 5));
      CHECK(out[64 + lane] == (lane > 26 ? lane : lane + 5));
      CHECK(out[96 + lane] == (lane ^ 9));
      CHECK(static_cast<unsigned>(out[128 + lane]) == thirds);
      CHECK(out[160 + lane] == (lane % 8 < 5 ? lane + 3 : lane));
      if (lane < 16) CHECK(out[192 + lane] == (lane ^ 1));
    }
  }
}

TEST_CASE("simt: matrices and products of a warp are those of the tensor cores") {
  // d = x y^T + x y of 16 x 16 whole numbers, which bfloat16 holds.
  const auto x = [](int i, int j) { return static_cast<float>((3 * i + 5 * j) % 17 - 8); };
  const auto y = [](int i, int j) { return static_cast<float>((7 * i + 2 * j) % 13 - 6); };
  for (const Order order : kOrders) {
    set_order(order);
    float d[16][16];
    run_grid("product", 1, 32, 2 * 16 * 8 * sizeof(uint32_t), [&] {
      SharedMemory shared;
      auto* xs = shared.array<uint32_t>(16 * 8);
      auto* ys = shared.array<uint32_t>(16 * 8);
      const int lane = static_cast<int>(threadIdx.x);
      for (int i = lane; i < 16 * 8; i += 32) {
        const int row = i / 8;
        const int column = i % 8 * 2;
        xs[i] = pack_bf16(x(row, column), x(row, column + 1));
        ys[i] = pack_bf16(y(row, column), y(row, column + 1));
      }
      __syncwarp();
      float sums[2][4] = {};
      uint32_t left[4], right[4];
      load_matrices(left, xs + lane % 16 * 8 + lane / 16 * 4);
      load_matrices(right, ys + (lane % 8 + lane / 16 * 8) * 8 + lane / 8 % 2 * 4);
      for (int n = 0; n < 2; ++n) multiply_add(sums[n], left, right[2 * n], right[2 * n + 1]);
      load_transposed(right, ys + lane % 16 * 8 + lane / 16 * 4);
      for (int n = 0; n < 2; ++n) multiply_add(sums[n], left, right[2 * n], right[2 * n + 1]);
      for (int n = 0; n < 2; ++n) {
        for (int i = 0; i < 4; ++i) {
          d[lane / 4 + i / 2 * 8][8 * n + lane % 4 * 2 + i % 2] = sums[n][i];
        }
      }
    });
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        float expected = 0;
        for (int k = 0; k < 16; ++k) expected += x(i, k) * y(j, k) + x(i, k) * y(k, j);
        CHECK(d[i][j] == expected);
      }
    }
  }
}

TEST_CASE("simt: a missing barrier changes the result") {
  int wrong = 0;
  for (const Order order : kOrders) {
    wrong +=
        block_sums<Fault::no_barrier>(order) != block_sums<Fault::none>(Order::ascending) ? 1 : 0;
  }
  CHECK(wrong == 3);
}

TEST_CASE("simt: a barrier or a shuffle that some threads do not reach is an error") {
  CHECK(error_of<Fault::late_barrier>(Order::ascending) ==
        "[block_sum<Fault::late_barrier>] block (0, 0, 0): a warp operation with mask 0xffffffff "
        "is not reached by all its lanes; "
        "missing: 63");
  CHECK_THAT(error_of<Fault::lane_missing>(Order::descending), ContainsSubstring("missing: 40"));
}

TEST_CASE("simt: a shuffle that reads outside of its mask is an error") {
  for (const Order order : kOrders) {
    CHECK_THAT(error_of<Fault::outside_mask>(order),
               ContainsSubstring("which is outside of its mask 0xffff"));
  }
}

TEST_CASE(
    "simt: shared memory beyond what was launched, or other than the first thread's, is an error") {
  CHECK_THAT(error_of<Fault::too_much>(Order::ascending),
             ContainsSubstring("thread 0: asks for 320 bytes of shared memory, launched with 264"));
  CHECK_THAT(
      error_of<Fault::other_array>(Order::ascending),
      ContainsSubstring("thread 5: asks for other shared arrays than the block's first thread"));
}

#ifndef __SANITIZE_ADDRESS__
// AddressSanitizer ends the program at the faulty access itself.
TEST_CASE("simt: an overrun of a shared array is an error") {
  CHECK(error_of<Fault::overrun>(Order::ascending) ==
        "[block_sum<Fault::overrun>] block (0, 0, 0): shared memory was written before array 1 or "
        "after the one before it");
}
#endif

TEST_CASE("simt: a grid or block that CUDA would refuse is an error") {
  const std::vector<float> x(64);
  std::vector<float> out(1);
  const auto run = [&](dim3 grid, dim3 block, std::size_t shared) {
    launch<block_sum<Fault::none>>(Exec{}, grid, block, shared, x.data(), out.data());
  };
  CHECK_THROWS_WITH(run(1, 1025, 0), ContainsSubstring("cannot be launched"));
  CHECK_THROWS_WITH(run(dim3(1, 65536), 64, 0), ContainsSubstring("cannot be launched"));
  CHECK_THROWS_WITH(run(1, 64, 300000),
                    ContainsSubstring("300000 bytes of shared memory; a block has 232448"));
}

}  // namespace primal::simt

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/guarded_memory.h"

using namespace primal;

namespace {

/// A system with `capacity` bytes that records what is asked of it.
class SmallMemory : public RawMemory {
 public:
  struct Log {
    int acquired = 0;
    int released = 0;
    int64_t used = 0;
  };

  SmallMemory(int64_t capacity, std::shared_ptr<Log> log) : capacity_(capacity), log_(log) {}

  void* acquire(int64_t bytes) override {
    if (log_->used + bytes > capacity_) return nullptr;
    log_->used += bytes;
    ++log_->acquired;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void release(void* block, int64_t bytes) override {
    log_->used -= bytes;
    ++log_->released;
    std::free(block);
  }
  int64_t available() const override { return capacity_ - log_->used; }

 private:
  int64_t capacity_;
  std::shared_ptr<Log> log_;
};

struct Fixture {
  explicit Fixture(int64_t capacity)
      : memory(std::make_shared<CachingAllocator>(std::make_unique<SmallMemory>(capacity, log))) {}

  Tensor tensor(int64_t floats) const { return {memory, {floats}}; }

  std::shared_ptr<SmallMemory::Log> log = std::make_shared<SmallMemory::Log>();
  std::shared_ptr<CachingAllocator> memory;
};

}  // namespace

TEST_CASE("the allocator tells bytes in use, their peak, and bytes held") {
  const Fixture f(1 << 20);
  {
    const Tensor a = f.tensor(128);
    const Tensor b = f.tensor(200);
    CHECK(f.memory->figures().allocated == 512 + 1024);
    CHECK(f.memory->figures().reserved == 512 + 1024);
  }
  CHECK(f.memory->figures().allocated == 0);
  CHECK(f.memory->figures().peak_allocated == 512 + 1024);
  CHECK(f.memory->figures().reserved == 512 + 1024);
  CHECK(f.log->released == 0);
  f.memory->reset_peak();
  CHECK(f.memory->figures().peak_allocated == 0);
  CHECK(f.memory->figures().peak_reserved == 512 + 1024);
  f.memory->release_cached();
  CHECK(f.memory->figures().reserved == 0);
  CHECK(f.log->used == 0);
  f.memory->reset_peak();
  CHECK(f.memory->figures().peak_reserved == 0);
}

TEST_CASE("freed blocks are used again, whole or in parts, and join when they come back") {
  const Fixture f(1 << 20);
  const float* first = nullptr;
  {
    const Tensor a = f.tensor(1024);
    first = a.data();
  }
  for (int round = 0; round < 2; ++round) {
    {
      const Tensor same = f.tensor(1000);
      CHECK(same.data() == first);
      CHECK(f.memory->figures().allocated == 4096);
    }
    Tensor left = f.tensor(300);
    Tensor middle = f.tensor(10);
    const Tensor right = f.tensor(500);
    CHECK(left.data() == first);
    CHECK(middle.data() == first + 384);
    CHECK(right.data() == first + 512);
    CHECK(f.memory->figures().allocated == 1536 + 512 + 2048);
    if (round == 0) {
      left = {};
      middle = {};  // joins the block before it
    } else {
      middle = {};
      left = {};  // joins the block behind it
    }
    CHECK(f.tensor(512).data() == first);
  }
  CHECK(f.log->acquired == 1);
}

TEST_CASE(
    "small blocks share a segment, and the smallest free piece that is large enough is used") {
  const Fixture f(64 << 20);
  const Tensor a = f.tensor(128 << 10);
  Tensor b = f.tensor(1);
  const Tensor c = f.tensor(64 << 10);
  CHECK(f.log->acquired == 1);
  CHECK(f.memory->figures().reserved == 2 << 20);
  const Tensor large = f.tensor(600 << 10);  // too large to share
  CHECK(f.memory->figures().reserved == (2 << 20) + (2400 << 10));
  const float* hole = b.data();
  b = {};
  CHECK(f.tensor(100).data() == hole);
  CHECK(f.log->acquired == 2);
}

TEST_CASE("sizes that change from step to step share memory") {
  const Fixture f(int64_t{1} << 30);
  std::mt19937 rng(1);
  int64_t most = 0;
  for (int step = 0; step < 200; ++step) {
    const auto length = static_cast<int64_t>(20 + rng() % 1000);
    std::vector<Tensor> kept;
    for (int layer = 0; layer < 8; ++layer) {
      for (const int64_t width : {64, 64, 128, 30, 30})
        kept.push_back(f.tensor(length * width * 8));
      const Tensor passing = f.tensor(length * 64 * 8);
    }
    while (!kept.empty()) kept.pop_back();
    most = std::max(most, f.memory->figures().peak_allocated);
    REQUIRE(f.memory->figures().allocated == 0);
  }
  CHECK(f.memory->figures().peak_reserved < most * 5 / 4);
}

TEST_CASE("blocks never overlap, stay aligned, and all join again") {
  const auto log = std::make_shared<SmallMemory::Log>();
  CachingAllocator memory(std::make_unique<SmallMemory>(int64_t{64} << 20, log));
  struct Live {
    unsigned char* data;
    int64_t bytes;
    unsigned char mark;
  };
  std::mt19937 rng(7);
  std::vector<Live> live;
  int64_t in_use = 0;
  const auto check = [](const Live& block) {
    const std::span bytes(block.data, static_cast<size_t>(block.bytes));
    REQUIRE(std::ranges::all_of(bytes, [&](unsigned char byte) { return byte == block.mark; }));
  };
  for (int turn = 0; turn < 20000; ++turn) {
    if (live.size() < 60 && (live.empty() || rng() % 2 == 0)) {
      const auto bytes = static_cast<int64_t>(1 + rng() % (rng() % 8 == 0 ? 1 << 21 : 1 << 14));
      if (in_use + bytes > 24 << 20) continue;
      auto* data = static_cast<unsigned char*>(memory.allocate(bytes));
      REQUIRE(reinterpret_cast<uintptr_t>(data) % 64 == 0);
      live.push_back({data, bytes, static_cast<unsigned char>(rng())});
      std::memset(data, live.back().mark, static_cast<size_t>(bytes));
      in_use += bytes;
    } else {
      std::swap(live[rng() % live.size()], live.back());
      check(live.back());
      in_use -= live.back().bytes;
      memory.free(live.back().data);
      live.pop_back();
    }
    REQUIRE(memory.figures().allocated >= in_use);
    REQUIRE(memory.figures().reserved >= memory.figures().allocated);
    REQUIRE(memory.figures().reserved == log->used);
  }
  for (const Live& block : live) {
    check(block);
    memory.free(block.data);
  }
  CHECK(memory.figures().allocated == 0);
  memory.release_cached();
  CHECK(memory.figures().reserved == 0);
  CHECK(log->used == 0);
}

TEST_CASE("copies and slices share a block until the last one goes") {
  const Fixture f(1 << 20);
  Tensor slice;
  {
    const Tensor a = f.tensor(256);
    CHECK(a.unique());
    slice = a.slice(100, {4, 5});
    CHECK_FALSE(a.unique());
    CHECK(slice.data() == a.data() + 100);
  }
  CHECK(f.memory->figures().allocated == 1024);
  slice = {};
  CHECK(f.memory->figures().allocated == 0);
}

TEST_CASE("cached blocks go back before the system is out of memory") {
  const Fixture f(8192);
  {
    const Tensor a = f.tensor(1024);
    const Tensor b = f.tensor(512);
  }
  const Tensor large = f.tensor(2048);  // fits only when both are given back
  CHECK(f.log->released == 2);
  CHECK(f.memory->figures().reserved == 8192);
}

TEST_CASE("running out of memory tells needed and available bytes, and harms nothing") {
  const Fixture f(8192);
  const Tensor a = f.tensor(1024);
  CHECK_THROWS_WITH(f.tensor(3000),
                    ContainsSubstring("[memory] out of memory: 12000 bytes needed, 4096 "
                                      "available, 4096 in use by tensors"));
  CHECK(f.memory->figures().allocated == 4096);
  CHECK_NOTHROW(f.tensor(1024));
}

TEST_CASE("tensors of no elements are allowed") {
  const Fixture f(8192);
  const Tensor none = f.tensor(0);
  CHECK(none.defined());
  CHECK(none.count() == 0);
}

TEST_CASE("an allocator gives everything back at its end") {
  Fixture f(8192);
  { const Tensor a = f.tensor(1024); }
  f.memory.reset();
  CHECK(f.log->used == 0);
}

TEST_CASE("host memory is aligned for vector instructions") {
  const Backend be = cpu_backend(1);
  for (const int64_t count : {1, 17, 1000, 3000000}) {
    const Tensor tensor = be.empty({count});
    CHECK(reinterpret_cast<uintptr_t>(tensor.data()) % 64 == 0);
    tensor.floats().front() = 1;
    tensor.floats().back() = 1;
  }
}

TEST_CASE("guard words see a write one element before or behind a tensor") {
  for (const int64_t at : {-1, 13}) {
    const auto report = std::make_shared<testing::GuardedMemory::Report>();
    const Backend be = testing::guarded_backend(1, report);
    {
      const Tensor tensor = be.empty({13});
      CHECK(std::isnan(tensor.data()[0]));
      tensor.data()[12] = 1;
      CHECK(report->violations == 0);
      tensor.data()[at] = 1;
    }
    CHECK(report->violations > 0);
    CHECK(report->live == 0);
  }
}

TEST_CASE("shapes refuse sizes that cannot be") {
  CHECK_THROWS_WITH(Shape({2, -1}), "[shape] sizes must be >= 0, got -1");
  CHECK_THROWS_WITH(Shape({1, 1, 1, 1, 1, 1, 1}), "[shape] at most 6 dimensions, got 7");
  CHECK_THROWS_AS(Shape({int64_t{1} << 40, int64_t{1} << 40}), Error);
  CHECK_THROWS_WITH(Shape({2, 3})[2], "[shape] axis 2 of (2, 3) does not exist");
  CHECK(Shape({2, 3})[-1] == 3);
  CHECK(Shape().count() == 1);
}

TEST_CASE("a tensor is read as what it holds") {
  const Backend be = cpu_backend(1);
  const Tensor integers = be.empty({2}, DType::i32);
  CHECK_NOTHROW(integers.data<int32_t>());
  CHECK_THROWS_WITH(integers.data(), ContainsSubstring("tensor read as"));
  CHECK_THROWS_WITH(Tensor().data(), ContainsSubstring("[tensor] undefined tensor read as"));
  CHECK_THROWS_WITH(be.empty({2, 3}).slice(4, {3}),
                    "[slice] (3) at element 4 does not lie within (2, 3)");
}

TEST_CASE("the process's memory is known") {
  const ProcessMemory memory = process_memory();
  CHECK(memory.resident > 1 << 20);
  CHECK(memory.peak_resident > 1 << 20);
}

#include <cstdlib>

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

TEST_CASE("freed blocks are used again, by similar sizes only") {
  const Fixture f(1 << 20);
  const float* first = nullptr;
  {
    const Tensor a = f.tensor(1024);
    first = a.data();
  }
  {
    const Tensor same = f.tensor(1000);
    CHECK(same.data() == first);
    CHECK(f.log->acquired == 1);
    CHECK(f.memory->figures().allocated == 4096);
  }
  const Tensor small = f.tensor(10);  // would waste the whole block
  CHECK(small.data() != first);
  CHECK(f.log->acquired == 2);
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
  { const Tensor a = f.tensor(1024); }
  { const Tensor b = f.tensor(512); }
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

#include "core/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"

namespace primal {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

/// Blocks begin and end at multiples of this.
constexpr int64_t kGrain = 512;
/// Blocks of up to half of this share segments of this size.
constexpr int64_t kSegment = int64_t{2} << 20;

class HostMemory : public RawMemory {
 public:
  void* acquire(int64_t bytes) override {
    const int64_t alignment = bytes >= 2 * kHugePage ? kHugePage : 64;
    const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* block = std::aligned_alloc(alignment, rounded);
#ifdef MADV_HUGEPAGE
    if (block != nullptr && alignment == kHugePage) madvise(block, rounded, MADV_HUGEPAGE);
#endif
    return block;
  }

  void release(void* block, int64_t) override {
    std::free(block);
  }

  int64_t available() const override {
    std::ifstream file("/proc/meminfo");
    std::string key;
    int64_t kib = 0;
    while (file >> key >> kib) {
      if (key == "MemAvailable:") return kib * 1024;
      file.ignore(256, '\n');
    }
    return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  }
};

}  // namespace

std::unique_ptr<RawMemory> host_memory() {
  return std::make_unique<HostMemory>();
}

CachingAllocator::~CachingAllocator() {
  release_cached();
}

CachingAllocator::Blocks::iterator CachingAllocator::acquire(int64_t size, int64_t wanted) {
  int64_t segment = raw_->exact() || size > kSegment / 2 ? size : kSegment;
  // What is free is too small for this block: an eighth more than was ever in use is enough to
  // keep.
  const int64_t most = std::max(most_, figures_.allocated + size);
  shrink(most + most / 8 - segment);
  void* start = raw_->acquire(segment);
  if (start == nullptr) {
    shrink(0);
    start = raw_->acquire(segment);
  }
  if (start == nullptr) {
    segment = size;
    start = raw_->acquire(segment);
  }
  if (start == nullptr) {
    fail(
        "[memory] out of memory: {} bytes needed, {} available, {} in use by tensors; raise "
        "train.accumulate, or lower train.batch, model.dim or model.feedforward",
        wanted, raw_->available(), figures_.allocated);
  }
  figures_.reserved += segment;
  figures_.peak_reserved = std::max(figures_.peak_reserved, figures_.reserved);
  return blocks_.insert_or_assign(static_cast<std::byte*>(start), Block{segment, segment, true})
      .first;
}

void* CachingAllocator::allocate(int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const int64_t wanted = std::max<int64_t>(bytes, 1);
  const int64_t size = raw_->exact() ? wanted : (wanted + kGrain - 1) / kGrain * kGrain;
  Blocks::iterator at;
  if (const auto found = free_.lower_bound({size, nullptr}); found != free_.end()) {
    at = blocks_.find(found->second);
    free_.erase(found);
  } else {
    at = acquire(size, wanted);
  }
  auto& [start, block] = *at;
  block.free = false;
  if (block.size > size) {
    blocks_.emplace(start + size, Block{block.size - size, 0, true});
    free_.emplace(block.size - size, start + size);
    block.size = size;
  }
  figures_.allocated += size;
  figures_.peak_allocated = std::max(figures_.peak_allocated, figures_.allocated);
  most_ = std::max(most_, figures_.allocated);
  return start;
}

void CachingAllocator::free(void* freed) {
  const std::scoped_lock lock(mutex_);
  auto at = blocks_.find(static_cast<std::byte*>(freed));
  figures_.allocated -= at->second.size;
  at->second.free = true;
  // `into` takes over the free block behind it.
  const auto join = [&](Blocks::iterator into, Blocks::iterator behind) {
    into->second.size += behind->second.size;
    blocks_.erase(behind);
  };
  if (const auto next = std::next(at);
      next != blocks_.end() && next->second.free && next->second.segment == 0) {
    free_.erase({next->second.size, next->first});
    join(at, next);
  }
  if (at->second.segment == 0) {
    if (const auto previous = std::prev(at); previous->second.free) {
      free_.erase({previous->second.size, previous->first});
      join(previous, at);
      at = previous;
    }
  }
  free_.emplace(at->second.size, at->first);
  if (raw_->exact()) shrink(0);
}

void CachingAllocator::release_cached() {
  const std::scoped_lock lock(mutex_);
  shrink(0);
}

void CachingAllocator::shrink(int64_t target) {
  for (auto at = free_.end(); at != free_.begin() && figures_.reserved > target;) {
    --at;
    const auto [size, start] = *at;
    if (blocks_.at(start).segment != size) continue;
    raw_->release(start, size);
    figures_.reserved -= size;
    blocks_.erase(start);
    at = free_.erase(at);
  }
}

MemoryFigures CachingAllocator::figures() const {
  const std::scoped_lock lock(mutex_);
  return figures_;
}

void CachingAllocator::reset_peak() {
  const std::scoped_lock lock(mutex_);
  figures_.peak_allocated = figures_.allocated;
  figures_.peak_reserved = figures_.reserved;
}

ProcessMemory process_memory() {
  ProcessMemory memory;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  memory.peak_resident = int64_t{usage.ru_maxrss} * 1024;
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  if (statm >> total >> resident) memory.resident = resident * sysconf(_SC_PAGESIZE);
  return memory;
}

}  // namespace primal

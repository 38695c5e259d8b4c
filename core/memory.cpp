#include "core/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/error.h"

namespace primal {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

/// Rounds up so that similar requests share blocks: 512-byte steps, above 1 MiB eighths of a power
/// of two.
int64_t block_size(int64_t bytes) {
  bytes = std::max<int64_t>(bytes, 1);
  const int64_t step = bytes <= (1 << 20)
                           ? 512
                           : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}

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

void* CachingAllocator::allocate(int64_t& bytes) {
  const std::scoped_lock lock(mutex_);
  const int64_t wanted = bytes;
  bytes = raw_->exact() ? std::max<int64_t>(wanted, 1) : block_size(wanted);
  void* block = nullptr;
  // A cached block may be up to a quarter larger than asked for.
  if (auto found = cached_.lower_bound(bytes);
      found != cached_.end() && found->first <= bytes + bytes / 4) {
    bytes = found->first;
    block = found->second;
    cached_.erase(found);
  } else {
    block = raw_->acquire(bytes);
    if (block == nullptr) {
      release_cached_locked();
      block = raw_->acquire(bytes);
    }
    if (block == nullptr) {
      fail(
          "[memory] out of memory: {} bytes needed, {} available, {} in use by tensors; raise "
          "train.accumulate, or lower train.batch, model.dim or model.feedforward",
          wanted, raw_->available(), figures_.allocated);
    }
    figures_.reserved += bytes;
    figures_.peak_reserved = std::max(figures_.peak_reserved, figures_.reserved);
  }
  figures_.allocated += bytes;
  figures_.peak_allocated = std::max(figures_.peak_allocated, figures_.allocated);
  return block;
}

void CachingAllocator::free(void* block, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  figures_.allocated -= bytes;
  cached_.emplace(bytes, block);
  if (raw_->exact()) release_cached_locked();
}

void CachingAllocator::release_cached() {
  const std::scoped_lock lock(mutex_);
  release_cached_locked();
}

void CachingAllocator::release_cached_locked() {
  for (const auto& [bytes, block] : cached_) {
    raw_->release(block, bytes);
    figures_.reserved -= bytes;
  }
  cached_.clear();
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

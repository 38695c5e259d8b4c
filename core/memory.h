#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace primal {

/// Bytes held by an allocator. `allocated` is in use by tensors, `reserved` is held from the system
/// (in use or cached for reuse); the peaks are since the last reset_peak().
struct MemoryFigures {
  int64_t allocated = 0;
  int64_t peak_allocated = 0;
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
};

/// Where a device's raw memory comes from. Returns nullptr when the system has none left.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  virtual void* acquire(int64_t bytes) = 0;
  virtual void release(void* block, int64_t bytes) = 0;
  /// Bytes the system could still give, for the out-of-memory message.
  virtual int64_t available() const = 0;
  /// True: blocks are exactly as large as asked for and go back at once, so that a memory which
  /// watches the ends of its blocks sees the ends of tensors.
  virtual bool exact() const { return false; }
};

/// Host memory in 64-byte aligned blocks; large ones on huge pages where the system offers them.
std::unique_ptr<RawMemory> host_memory();

/// Caches freed blocks, because every training step asks for the same sizes again.
class CachingAllocator {
 public:
  explicit CachingAllocator(std::unique_ptr<RawMemory> raw) : raw_(std::move(raw)) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator();

  /// A block of at least `bytes`; `bytes` becomes the block's real size, which free() wants back.
  /// Throws Error with needed and available bytes when the system has none left.
  void* allocate(int64_t& bytes);
  void free(void* block, int64_t bytes);

  /// Gives every cached block back to the system.
  void release_cached();

  MemoryFigures figures() const;
  void reset_peak();

 private:
  void release_cached_locked();

  std::unique_ptr<RawMemory> raw_;
  mutable std::mutex mutex_;
  std::multimap<int64_t, void*> cached_;
  MemoryFigures figures_;
};

/// Resident memory of this process in bytes, now and at its highest.
struct ProcessMemory {
  int64_t resident = 0;
  int64_t peak_resident = 0;
};
ProcessMemory process_memory();

}  // namespace primal

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

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

/// Keeps freed memory, because every training step asks for the same sizes again. Blocks are cut
/// from segments, the smallest free piece that is large enough first, and join their free
/// neighbours when they come back, so that sizes which change from step to step share memory too.
class CachingAllocator {
 public:
  explicit CachingAllocator(std::unique_ptr<RawMemory> raw) : raw_(std::move(raw)) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator();

  /// A block of at least `bytes`. Throws Error with needed and available bytes when the system has
  /// none left.
  void* allocate(int64_t bytes);
  void free(void* block);

  /// Gives the segments of which nothing is in use back to the system.
  void release_cached();

  MemoryFigures figures() const;
  void reset_peak();

 private:
  struct Block {
    int64_t size = 0;
    int64_t segment = 0;  ///< bytes of the segment that begins here; 0 within one
    bool free = false;
  };
  using Blocks = std::map<std::byte*, Block>;

  /// A free block of a new segment.
  Blocks::iterator acquire(int64_t size, int64_t wanted);
  /// Releases free segments, the largest first, until at most `target` bytes are held.
  void shrink(int64_t target);

  std::unique_ptr<RawMemory> raw_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                  ///< of all segments, by address
  std::set<std::pair<int64_t, std::byte*>> free_;  ///< those that are free, by size
  MemoryFigures figures_;
  int64_t most_ = 0;  ///< the most that was ever in use
};

/// Resident memory of this process in bytes, now and at its highest.
struct ProcessMemory {
  int64_t resident = 0;
  int64_t peak_resident = 0;
};
ProcessMemory process_memory();

}  // namespace primal

#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/backend.h"

namespace primal::testing {

/// Host memory whose blocks stand between guard words and begin as NaN: a kernel that writes
/// beyond a tensor is counted, one that reads beyond it, or reads what nobody wrote, yields NaN.
class GuardedMemory : public RawMemory {
 public:
  /// Outlives the memory.
  struct Report {
    int64_t blocks = 0;      ///< handed out so far
    int64_t live = 0;        ///< not yet given back
    int64_t violations = 0;  ///< guard bytes found overwritten, counted when a block goes back
  };

  explicit GuardedMemory(std::shared_ptr<Report> report) : report_(std::move(report)) {}

  bool exact() const override { return true; }

  void* acquire(int64_t bytes) override {
    const int64_t whole = (bytes + 2 * kGuard + 63) / 64 * 64;
    auto* start = static_cast<unsigned char*>(std::aligned_alloc(64, whole));
    std::memset(start, kPattern, whole);  // as floats: NaN
    ++report_->blocks;
    ++report_->live;
    return start + kGuard;
  }

  void release(void* block, int64_t bytes) override {
    auto* first = static_cast<unsigned char*>(block);
    for (int64_t i = 0; i < kGuard; ++i) {
      report_->violations += first[-1 - i] != kPattern ? 1 : 0;
      report_->violations += first[bytes + i] != kPattern ? 1 : 0;
    }
    --report_->live;
    std::free(first - kGuard);
  }

  int64_t available() const override { return 0; }

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr unsigned char kPattern = 0xFF;

  std::shared_ptr<Report> report_;
};

/// A CPU backend on guarded memory.
inline Backend guarded_backend(int threads, const std::shared_ptr<GuardedMemory::Report>& report) {
  Backend backend = cpu_backend(threads);
  backend.memory = std::make_shared<CachingAllocator>(std::make_unique<GuardedMemory>(report));
  return backend;
}

}  // namespace primal::testing

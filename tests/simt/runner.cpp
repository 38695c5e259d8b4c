#include "tests/simt/runner.h"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/bf16.h"
#include "kernels/simt.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define PRIMAL_ASAN 1
#else
#define PRIMAL_ASAN 0
#endif

// Threads of a block are fibers on one OS thread. A warp runs until each of its lanes waits at a
// barrier, waits in an exchange, or has returned; complete exchanges are then resolved and the warp
// goes on, until all its lanes wait at the barrier or have returned. Only then does the next warp
// run: warps drift as far apart as the barriers let them.

namespace primal::simt {
namespace {

namespace context = boost::context;

constexpr std::size_t kStack = PRIMAL_ASAN ? 256 * 1024 : 64 * 1024;
constexpr std::size_t kGuard = 64;
constexpr int kMostArrays = 32;
constexpr unsigned char kGuardByte = 0xA5;
constexpr unsigned char kUnset = 0xFF;  // as a float, NaN

Order current_order = Order::ascending;

struct Unwind {};

/// A stack that is used again and again.
class Stack {
 public:
  Stack() : memory_(context::fixedsize_stack(kStack).allocate()) {}
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { context::fixedsize_stack(kStack).deallocate(memory_); }
  const context::stack_context& memory() const { return memory_; }

 private:
  context::stack_context memory_;
};

/// Hands out a Stack's memory and keeps it.
struct BorrowedStack {
  const Stack* stack;
  context::stack_context allocate() { return stack->memory(); }
  void deallocate(context::stack_context&) {}
};

struct Thread {
  enum State : uint8_t { ready, at_barrier, exchanging, done } state = ready;
  Place place;
  Exchange exchange;
  uint64_t received = 0;
  context::fiber fiber;
};

/// What is written over a kernel's name in errors.
std::string kernel_name(std::string_view pretty) {
  const std::string_view mark = "kernel = ";
  const size_t start = pretty.find(mark);
  if (start == pretty.npos) return std::string(pretty);
  pretty.remove_prefix(start + mark.size());
  std::string name(pretty.substr(0, pretty.find_first_of(";]")));
  for (const std::string_view drop :
       {"primal::simt::", "<unnamed>::", "{anonymous}::", "(anonymous namespace)::"}) {
    for (size_t at = name.find(drop); at != name.npos; at = name.find(drop))
      name.erase(at, drop.size());
  }
  return name;
}

class Runner;
thread_local Runner* running = nullptr;

class Runner {
 public:
  void run(std::string_view kernel, dim3 grid, dim3 block, std::size_t shared,
           const std::function<void()>& body) {
    kernel_ = kernel;
    body_ = &body;
    const unsigned count = block.x * block.y * block.z;
    if (count == 0 || count > 1024 || block.z > 64 || grid.y > 65535 || grid.z > 65535 ||
        grid.x > 0x7FFFFFFF) {
      fail("[{}] cannot be launched: grid {} x {} x {}, block {} x {} x {}", kernel_name(kernel_),
           grid.x, grid.y, grid.z, block.x, block.y, block.z);
    }
    if (shared > 227 * 1024)
      fail("[{}] {} bytes of shared memory; a block has 232448", kernel_name(kernel_), shared);
    shared_ = shared;
    arena_.resize(shared + (kMostArrays + 1) * kGuard + 16);
    while (stacks_.size() < count) stacks_.push_back(std::make_unique<Stack>());
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) run_block({x, y, z}, grid, block);
      }
    }
  }

  const Place& place() const { return current_->place; }

  void wait(Thread::State state) {
    current_->state = state;
    leave();
  }
  uint64_t exchange(const Exchange& mine) {
    current_->exchange = mine;
    wait(Thread::exchanging);
    return current_->received;
  }

  void* shared_array(int index, std::size_t at, std::size_t bytes) {
    if (index >= kMostArrays) stop(fmt::format("asks for more than {} shared arrays", kMostArrays));
    if (at + bytes > shared_) {
      stop(
          fmt::format("asks for {} bytes of shared memory, launched with {}", at + bytes, shared_));
    }
    const std::size_t start = first_ + at + (static_cast<std::size_t>(index) + 1) * kGuard;
    const auto i = static_cast<std::size_t>(index);
    if (i == arrays_.size()) {
      arrays_.push_back({start, bytes});
      unpoison(start, bytes);
      std::fill_n(arena_.begin() + static_cast<std::ptrdiff_t>(start), bytes, kUnset);
    } else if (i > arrays_.size() || arrays_[i].start != start || arrays_[i].bytes != bytes) {
      stop("asks for other shared arrays than the block's first thread");
    }
    return arena_.data() + start;
  }

 private:
  struct Array {
    std::size_t start, bytes;
  };

  void run_block(dim3 index, dim3 grid, dim3 block) {
    try {
      run_threads(index, grid, block);
    } catch (...) {
      unwinding_ = true;
      error_.clear();
      for (Thread& thread : threads_) {
        if (thread.state != Thread::done) enter(thread);
      }
      unwinding_ = false;
      unpoison(0, arena_.size());
      throw;
    }
  }

  void run_threads(dim3 index, dim3 grid, dim3 block) {
    error_.clear();
    arrays_.clear();
    const unsigned count = block.x * block.y * block.z;
    threads_.clear();
    threads_.resize(count);
    // float4 wants 16 bytes.
    first_ = (16 - reinterpret_cast<std::uintptr_t>(arena_.data()) % 16) % 16;
    unpoison(0, arena_.size());
    std::fill(arena_.begin(), arena_.end(), kGuardByte);
    poison(0, arena_.size());
    for (unsigned t = 0; t < count; ++t) {
      threads_[t].place = {
          {t % block.x, t / block.x % block.y, t / block.x / block.y}, index, block, grid};
      threads_[t].fiber =
          context::fiber(std::allocator_arg, BorrowedStack{stacks_[t].get()},
                         [this](context::fiber&& back) { return body(std::move(back)); });
    }
    std::vector<unsigned> warps((count + 31) / 32);
    std::iota(warps.begin(), warps.end(), 0U);
    arrange(warps);
    while (true) {
      for (const unsigned warp : warps) run_warp(warp);
      unsigned waiting = 0;
      for (const Thread& thread : threads_) waiting += thread.state == Thread::at_barrier ? 1 : 0;
      if (waiting == 0) break;
      if (waiting < count) {
        fail_at("__syncthreads is reached by {} of {} threads; missing: {}", waiting, count,
                list([](const Thread& t) { return t.state != Thread::at_barrier; }));
      }
      for (Thread& thread : threads_) thread.state = Thread::ready;
    }
    unpoison(0, arena_.size());
    check_guards();
  }

  void run_warp(unsigned warp) {
    const unsigned begin = warp * 32;
    const unsigned end = std::min(begin + 32, static_cast<unsigned>(threads_.size()));
    std::vector<unsigned> lanes(end - begin);
    std::iota(lanes.begin(), lanes.end(), begin);
    arrange(lanes);
    while (true) {
      for (const unsigned t : lanes) {
        if (threads_[t].state == Thread::ready) enter(threads_[t]);
      }
      bool resolved = false;
      bool waits = false;
      for (unsigned t = begin; t < end; ++t) {
        if (threads_[t].state != Thread::exchanging) continue;
        waits = true;
        resolved = resolve(begin, end, threads_[t].exchange) || resolved;
      }
      if (!waits) return;
      if (!resolved) {
        unsigned t = begin;
        while (threads_[t].state != Thread::exchanging) ++t;
        const Exchange wanted = threads_[t].exchange;
        fail_at("a warp operation with mask {:#x} is not reached by all its lanes; missing: {}",
                wanted.mask, list([&](const Thread& other) {
                  const auto i = static_cast<unsigned>(&other - threads_.data());
                  return i >= begin && i < end && (wanted.mask >> (i - begin) & 1) != 0 &&
                         (other.state != Thread::exchanging || other.exchange.kind != wanted.kind ||
                          other.exchange.mask != wanted.mask);
                }));
      }
    }
  }

  /// Serves the lanes of the exchange when all have arrived.
  bool resolve(unsigned begin, unsigned end, const Exchange& wanted) {
    const Exchange one = wanted;
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((one.mask >> lane & 1) == 0) continue;
      // Lanes beyond the block's end are no threads; a full mask may name them.
      if (begin + lane >= end) continue;
      const Thread& thread = threads_[begin + lane];
      if (thread.state != Thread::exchanging || thread.exchange.kind != one.kind ||
          thread.exchange.mask != one.mask) {
        return false;
      }
      if (thread.exchange.value != 0) ballot |= 1U << lane;
    }
    if (one.kind >= Exchange::product) {
      if (one.mask != 0xFFFFFFFF || end - begin != 32) {
        fail_at("the tensor cores want all 32 lanes of a warp, mask {:#x} of {} threads", one.mask,
                end - begin);
      }
      one.kind == Exchange::product ? multiply(begin) : load_matrices(begin, one.kind);
    }
    for (unsigned lane = 0; lane < 32 && begin + lane < end; ++lane) {
      if ((one.mask >> lane & 1) == 0) continue;
      Thread& thread = threads_[begin + lane];
      thread.received = one.kind == Exchange::ballot ? ballot
                        : one.kind == Exchange::sync || one.kind >= Exchange::product
                            ? 0
                            : received(begin, end, static_cast<int>(lane), thread.exchange);
      thread.state = Thread::ready;
    }
    return true;
  }

  template <class T>
  T& given(unsigned thread) const {
    return *reinterpret_cast<T*>(threads_[thread].exchange.value);
  }

  /// The product that the lanes' operands make; the layout is that of mma.m16n8k16.
  void multiply(unsigned begin) const {
    float a[16][16];
    float b[16][8];
    const auto pair = [](uint32_t word, float& low, float& high) {
      low = bf16_value(static_cast<uint16_t>(word));
      high = bf16_value(static_cast<uint16_t>(word >> 16));
    };
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned g = lane / 4;
      const unsigned t = lane % 4 * 2;
      const auto& operands = given<ProductOperands>(begin + lane);
      for (unsigned i = 0; i < 4; ++i) {
        float* row = &a[g + i % 2 * 8][t + i / 2 * 8];
        pair(operands.a[i], row[0], row[1]);
      }
      for (unsigned i = 0; i < 2; ++i) pair(operands.b[i], b[t + 8 * i][g], b[t + 8 * i + 1][g]);
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned g = lane / 4;
      const unsigned t = lane % 4 * 2;
      const auto& operands = given<ProductOperands>(begin + lane);
      for (unsigned i = 0; i < 4; ++i) {
        float sum = operands.d[i];
        for (unsigned k = 0; k < 16; ++k) sum += a[g + i / 2 * 8][k] * b[k][t + i % 2];
        operands.d[i] = sum;
      }
    }
  }

  /// What ldmatrix gives the lanes.
  void load_matrices(unsigned begin, Exchange::Kind kind) const {
    for (unsigned lane = 0; lane < 32; ++lane) {
      const auto address = reinterpret_cast<std::uintptr_t>(given<MatrixRows>(begin + lane).row);
      if (address % 16 != 0)
        fail_at("ldmatrix: the row of lane {} is not aligned to 16 bytes", lane);
    }
    const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
      const uint32_t* words = given<MatrixRows>(begin + matrix * 8 + row).row;
      return words[column / 2] >> column % 2 * 16 & 0xFFFF;
    };
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned g = lane / 4;
      const unsigned t = lane % 4 * 2;
      for (unsigned m = 0; m < 4; ++m) {
        given<MatrixRows>(begin + lane).out[m] =
            kind == Exchange::matrices ? element(m, g, t) | element(m, g, t + 1) << 16
                                       : element(m, t, g) | element(m, t + 1, g) << 16;
      }
    }
  }

  uint64_t received(unsigned begin, unsigned end, int lane, const Exchange& e) const {
    const int first = lane / e.width * e.width;
    int from = lane;
    if (e.kind == Exchange::shuffle) from = first + (e.operand & (e.width - 1));
    if (e.kind == Exchange::shuffle_up && lane - e.operand >= first) from = lane - e.operand;
    if (e.kind == Exchange::shuffle_down && lane + e.operand < first + e.width)
      from = lane + e.operand;
    if (e.kind == Exchange::shuffle_xor && (lane ^ e.operand) < first + e.width)
      from = lane ^ e.operand;
    if ((e.mask >> from & 1) == 0 || begin + static_cast<unsigned>(from) >= end) {
      fail_at("a shuffle reads lane {}, which is outside of its mask {:#x}; by thread {}", from,
              e.mask, begin + static_cast<unsigned>(lane));
    }
    return threads_[begin + static_cast<unsigned>(from)].exchange.value;
  }

  // ---- fibers

  context::fiber body(context::fiber&& back) {
    back_ = std::move(back);
#if PRIMAL_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &main_stack_, &main_size_);
#endif
    try {
      if (!unwinding_) (*body_)();
    } catch (const Error& error) {
      error_ = error.what();
    } catch (const Unwind&) {
    }
    current_->state = Thread::done;
#if PRIMAL_ASAN
    __sanitizer_start_switch_fiber(nullptr, main_stack_, main_size_);
#endif
    return std::move(back_);
  }

  void enter(Thread& thread) {
    current_ = &thread;
    running = this;
#if PRIMAL_ASAN
    void* fake = nullptr;
    const auto& stack = stacks_[static_cast<std::size_t>(&thread - threads_.data())]->memory();
    __sanitizer_start_switch_fiber(&fake, static_cast<char*>(stack.sp) - stack.size, stack.size);
#endif
    thread.fiber = std::move(thread.fiber).resume();
#if PRIMAL_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    if (!error_.empty()) throw Error(error_);
  }

  void leave() {
#if PRIMAL_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, main_stack_, main_size_);
#endif
    back_ = std::move(back_).resume();
#if PRIMAL_ASAN
    __sanitizer_finish_switch_fiber(fake, &main_stack_, &main_size_);
#endif
    if (unwinding_) throw Unwind{};
  }

  // ---- errors

  std::string where(const Place& p) const {
    return fmt::format("[{}] block ({}, {}, {})", kernel_name(kernel_), p.block.x, p.block.y,
                       p.block.z);
  }
  template <class... Args>
  [[noreturn]] void fail_at(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: {}", where(threads_[0].place), fmt::format(format, std::forward<Args>(args)...));
  }
  /// Ends the running thread with an error.
  [[noreturn]] void stop(const std::string& what) const {
    fail("{}, thread {}: {}", where(current_->place), current_ - threads_.data(), what);
  }
  template <class F>
  std::string list(F&& wanted) const {
    std::string text;
    int found = 0;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      if (!wanted(threads_[t])) continue;
      if (++found <= 8) text += fmt::format("{}{}", text.empty() ? "" : ", ", t);
    }
    return found > 8 ? fmt::format("{} and {} more", text, found - 8) : text;
  }

  void check_guards() const {
    std::size_t at = first_;
    const auto intact = [&](std::size_t end) {
      for (; at < end; ++at) {
        if (arena_[at] != kGuardByte) return false;
      }
      return true;
    };
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (!intact(arrays_[i].start))
        fail_at("shared memory was written before array {} or after the one before it", i);
      at = arrays_[i].start + arrays_[i].bytes;
    }
    if (!intact(arena_.size()))
      fail_at("shared memory was written after array {}", static_cast<int>(arrays_.size()) - 1);
  }

  void poison([[maybe_unused]] std::size_t start, [[maybe_unused]] std::size_t bytes) {
#if PRIMAL_ASAN
    __asan_poison_memory_region(arena_.data() + start, bytes);
#endif
  }
  void unpoison([[maybe_unused]] std::size_t start, [[maybe_unused]] std::size_t bytes) {
#if PRIMAL_ASAN
    __asan_unpoison_memory_region(arena_.data() + start, bytes);
#endif
  }

  template <class T>
  void arrange(std::vector<T>& items) {
    if (current_order == Order::descending) std::reverse(items.begin(), items.end());
    if (current_order == Order::shuffled) std::shuffle(items.begin(), items.end(), random_);
  }

  std::string_view kernel_;
  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<Thread> threads_;
  std::vector<unsigned char> arena_;
  std::vector<Array> arrays_;
  std::size_t shared_ = 0, first_ = 0;
  Thread* current_ = nullptr;
  context::fiber back_;
  std::string error_;       // of the thread that ran last
  bool unwinding_ = false;  // after an error: threads that wait end
  std::mt19937 random_{2023};
  // Only AddressSanitizer wants to know.
  [[maybe_unused]] const void* main_stack_ = nullptr;
  [[maybe_unused]] std::size_t main_size_ = 0;
};

}  // namespace

void set_order(Order order) {
  current_order = order;
}

const Place& here() {
  return running->place();
}

void run_grid(std::string_view kernel, dim3 grid, dim3 block, std::size_t shared,
              const std::function<void()>& thread) {
  static thread_local Runner runner;
  runner.run(kernel, grid, block, shared, thread);
}

void* shared_array(int index, std::size_t at, std::size_t bytes) {
  return running->shared_array(index, at, bytes);
}

void __syncthreads() {
  running->wait(Thread::at_barrier);
}

uint64_t exchange(const Exchange& mine) {
  return running->exchange(mine);
}

}  // namespace primal::simt

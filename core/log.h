#pragma once

#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace primal {

/// A program's timed lines, each flushed at once, and on a terminal one line below them that is
/// redrawn in place.
class Log {
 public:
  Log(std::ostream& out, bool terminal);
  /// Standard output, a terminal or not.
  static Log standard();

  void info(std::string_view line);
  void warn(std::string_view line);

  bool terminal() const { return terminal_; }
  /// On a terminal, replaces the status line; the next info() or warn() clears it. Elsewhere
  /// nothing.
  void status(std::string_view text);

 private:
  void clear_status();

  std::ostream& out_;
  bool terminal_;
  bool status_shown_ = false;
  std::shared_ptr<spdlog::logger> logger_;
};

/// "1h02m", "3m05s", "12s".
std::string duration_text(double seconds);

/// Tells how far a run of `total` steps is: a bar with rate and time left on a terminal, elsewhere
/// a line at the first step and then whenever `interval` has passed.
class Progress {
 public:
  Progress(Log& log, int64_t done, int64_t total,
           std::chrono::duration<double> interval = std::chrono::seconds(30));

  /// After each step. `detail` is e.g. "epoch 3/100, loss 0.12".
  void step(int64_t done, std::string_view detail);

 private:
  using Clock = std::chrono::steady_clock;

  Log& log_;
  int64_t first_;
  int64_t total_;
  std::chrono::duration<double> interval_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_{};
};

}  // namespace primal

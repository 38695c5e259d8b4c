#include "core/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace primal {
namespace {

size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Log::Log(std::ostream& out, bool terminal)
    : out_(out),
      terminal_(terminal),
      logger_(std::make_shared<spdlog::logger>(
          "primal", std::make_shared<spdlog::sinks::ostream_sink_st>(out, true))) {
  logger_->set_pattern("%H:%M:%S %v");
}

Log Log::standard() {
  return Log(std::cout, isatty(STDOUT_FILENO) != 0);
}

void Log::info(std::string_view line) {
  clear_status();
  logger_->info("{}", line);
}

void Log::warn(std::string_view line) {
  clear_status();
  logger_->warn("warning: {}", line);
}

void Log::status(std::string_view text) {
  if (!terminal_) return;
  out_ << '\r' << text.substr(0, terminal_width() - 1) << "\033[K" << std::flush;
  status_shown_ = true;
}

void Log::clear_status() {
  if (status_shown_) out_ << "\r\033[K";
  status_shown_ = false;
}

std::string duration_text(double seconds) {
  const int64_t whole = std::llround(std::max(0.0, seconds));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

Progress::Progress(Log& log, int64_t done, int64_t total, std::chrono::duration<double> interval)
    : log_(log), first_(done), total_(total), interval_(interval) {}

void Progress::step(int64_t done, std::string_view detail) {
  const auto now = Clock::now();
  const bool never_shown = shown_ == Clock::time_point{};
  const std::chrono::duration<double> since = now - shown_;
  constexpr std::chrono::duration<double> kRedraw(0.1);
  if (!never_shown && since < (log_.terminal() ? kRedraw : interval_)) return;
  shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done - first_) / std::max(elapsed, 1e-9);
  const std::string left = duration_text(static_cast<double>(total_ - done) / std::max(rate, 1e-9));
  if (log_.terminal()) {
    constexpr int64_t kWidth = 24;
    const int64_t filled = kWidth * done / std::max<int64_t>(total_, 1);
    log_.status(
        fmt::format("[{:-<{}}] {}/{} {}, {:.1f} steps/s, {} left",
                    std::string(static_cast<size_t>(std::clamp<int64_t>(filled, 0, kWidth)), '#'),
                    kWidth, done, total_, detail, rate, left));
  } else {
    log_.info(
        fmt::format("step {}/{}: {}, {:.1f} steps/s, {} left", done, total_, detail, rate, left));
  }
}

}  // namespace primal

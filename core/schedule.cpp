#include "core/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace primal {
namespace {

double between_rates(double from, double to, double part) {
  return from + (to - from) * std::clamp(part, 0.0, 1.0);
}

class Constant final : public Schedule {
 public:
  std::string_view kind() const override { return "constant"; }
  void fields(Fields&) override {}
  double rate(double peak, int64_t, int64_t) const override { return peak; }
};

/// Common part of the schedules that start by raising the rate.
class WithWarmup : public Schedule {
 public:
  void fields(Fields& f) override {
    f.field("warmup_steps", warmup_steps_, at_least(0),
            "updates until the rate reaches optimizer.lr");
    f.field("start_lr", start_lr_, at_least(0), "rate that the warm-up starts from");
  }

 protected:
  bool warming(int64_t step) const { return step < warmup_steps_; }
  /// Starts at start_lr.
  double warmup(double peak, int64_t step) const {
    return between_rates(start_lr_, peak,
                         static_cast<double>(step) / static_cast<double>(warmup_steps_));
  }

  int64_t warmup_steps_ = 0;
  double start_lr_ = 0;
};

class LinearWarmup final : public WithWarmup {
 public:
  std::string_view kind() const override { return "linear_warmup"; }
  // The first update is already one part of the way up, so that it changes something.
  double rate(double peak, int64_t step, int64_t) const override {
    return warming(step) ? warmup(peak, step + 1) : peak;
  }
};

class Cosine final : public WithWarmup {
 public:
  std::string_view kind() const override { return "cosine"; }
  void fields(Fields& f) override {
    WithWarmup::fields(f);
    f.field("end_lr", end_lr_, at_least(0), "rate at the end of the run");
  }
  // The half wave spans the whole run; the warm-up replaces its beginning.
  double rate(double peak, int64_t step, int64_t steps) const override {
    if (warming(step)) return warmup(peak, step);
    const double part = static_cast<double>(std::min(step, steps)) /
                        static_cast<double>(std::max<int64_t>(steps, 1));
    return between_rates(end_lr_, peak, (1 + std::cos(std::numbers::pi * part)) / 2);
  }

 private:
  double end_lr_ = 0;
};

/// Smith and Topin, 2019, in its linear form: up to the peak, reached by the last warm-up update,
/// then down, reaching the lowest rate in the last update of the run. The first moment's decay goes
/// the other way, down and up again.
class OneCycle final : public Schedule {
 public:
  std::string_view kind() const override { return "one_cycle"; }
  void fields(Fields& f) override {
    f.field("warmup_steps", warmup_steps_, at_least(1),
            "updates until the rate reaches optimizer.lr");
    f.field("start_divisor", start_divisor_, at_least(1), "the first rate is optimizer.lr / this");
    f.field("end_divisor", end_divisor_, at_least(1), "the last rate is the first rate / this");
    f.field("cycle_momentum", cycle_momentum_,
            "whether beta1 falls from max_momentum to base_momentum and rises again, in place of "
            "optimizer.beta1");
    f.field("base_momentum", base_momentum_, half_open(0, 1), "beta1 at the highest rate");
    f.field("max_momentum", max_momentum_, half_open(0, 1), "beta1 at the first and last rate");
  }
  double rate(double peak, int64_t step, int64_t steps) const override {
    const double start = peak / start_divisor_;
    return along(step, steps, start, peak, start / end_divisor_);
  }
  std::optional<double> beta1(int64_t step, int64_t steps) const override {
    if (!cycle_momentum_) return {};
    return along(step, steps, max_momentum_, base_momentum_, max_momentum_);
  }

 private:
  /// From `start` over `top` to `end`.
  double along(int64_t step, int64_t steps, double start, double top, double end) const {
    const int64_t turn = warmup_steps_ - 1;
    const int64_t last = std::max(steps - 1, turn + 1);
    if (step <= turn) {
      return between_rates(start, top,
                           turn == 0 ? 1 : static_cast<double>(step) / static_cast<double>(turn));
    }
    return between_rates(top, end,
                         static_cast<double>(step - turn) / static_cast<double>(last - turn));
  }

  int64_t warmup_steps_ = 1;
  double start_divisor_ = 25;
  double end_divisor_ = 1e4;
  bool cycle_momentum_ = true;
  double base_momentum_ = 0.85;
  double max_momentum_ = 0.95;
};

/// Vaswani et al., 2017.
class InverseSqrt final : public WithWarmup {
 public:
  std::string_view kind() const override { return "inverse_sqrt"; }
  double rate(double peak, int64_t step, int64_t) const override {
    if (warming(step)) return warmup(peak, step);
    const double reference = static_cast<double>(std::max<int64_t>(warmup_steps_, 1));
    return peak * std::sqrt(reference / static_cast<double>(std::max<int64_t>(step, 1)));
  }
};

template <class T>
std::unique_ptr<Schedule> make() {
  return std::make_unique<T>();
}

}  // namespace

std::span<const Kind<Schedule>> schedule_kinds() {
  static constexpr std::array kKinds{
      Kind<Schedule>{"constant", "the same rate throughout", make<Constant>},
      Kind<Schedule>{"linear_warmup", "up in a line, then constant", make<LinearWarmup>},
      Kind<Schedule>{"cosine", "up in a line, then down along half a cosine", make<Cosine>},
      Kind<Schedule>{"one_cycle", "up in a line, then down in a line", make<OneCycle>},
      Kind<Schedule>{"inverse_sqrt", "up in a line, then down as 1 / sqrt(step)",
                     make<InverseSqrt>},
  };
  return kKinds;
}

}  // namespace primal

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/config.h"

namespace primal {

/// What a schedule decides of an update.
struct Rates {
  Rates(double learning_rate, std::optional<double> first_decay = {})
      : lr(learning_rate), beta1(first_decay) {}
  double lr;
  std::optional<double> beta1;  ///< in place of optimizer.beta1
};

/// The learning rate over the updates of a run.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual std::string_view kind() const = 0;
  virtual void fields(Fields& f) = 0;
  /// The rate of update `step` (0, 1, ... steps - 1), where `peak` is optimizer.lr. A pure
  /// function, so that a resumed run goes on with the same rates.
  virtual double rate(double peak, int64_t step, int64_t steps) const = 0;
  /// Likewise of the first moment's decay; nothing leaves it as it is.
  virtual std::optional<double> beta1(int64_t, int64_t) const { return {}; }
  Rates rates(double peak, int64_t step, int64_t steps) const {
    return {rate(peak, step, steps), beta1(step, steps)};
  }
};

/// One line per schedule: {name, help, factory}.
std::span<const Kind<Schedule>> schedule_kinds();

}  // namespace primal

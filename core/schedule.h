#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/config.h"

namespace primal {

/// The learning rate over the updates of a run.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual std::string_view kind() const = 0;
  virtual void fields(Fields& f) = 0;
  /// The rate of update `step` (0, 1, ... steps - 1), where `peak` is optimizer.lr. A pure
  /// function, so that a resumed run goes on with the same rates.
  virtual double rate(double peak, int64_t step, int64_t steps) const = 0;
};

/// One line per schedule: {name, help, factory}.
std::span<const Kind<Schedule>> schedule_kinds();

}  // namespace primal

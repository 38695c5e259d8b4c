#include <array>

#include "core/task.h"

namespace primal {

std::unique_ptr<TaskConfig> make_uea_task();
std::unique_ptr<TaskConfig> make_lra_task();

std::span<const Kind<TaskConfig>> task_kinds() {
  static constexpr std::array kKinds{
      Kind<TaskConfig>{"uea", "classification of multivariate time series", make_uea_task},
      Kind<TaskConfig>{"lra", "classification of long sequences", make_lra_task},
  };
  return kKinds;
}

}  // namespace primal

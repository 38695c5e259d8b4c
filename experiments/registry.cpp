#include "core/task.h"

namespace primal {

std::span<const Kind<TaskConfig>> task_kinds() {
  return {};
}

}  // namespace primal

#include "kernels/table.h"

#include "kernels/cpu/kernels.h"

namespace primal {

const OpTable& cpu_kernels() {
  static const OpTable table = [] {
    OpTable t;
#define KERNEL(name, arguments) t.name = cpu::name;
#include "kernels/ops.def"
#undef KERNEL
    return t;
  }();
  return table;
}

}  // namespace primal

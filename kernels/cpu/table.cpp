#include "kernels/table.h"

#include "kernels/cpu/kernels.h"

namespace primal {

const OpTable& cpu_kernels() {
  static constexpr OpTable kTable{
#define KERNEL(name, arguments) .name = cpu::name,
#include "kernels/ops.def"
#undef KERNEL
  };
  return kTable;
}

}  // namespace primal

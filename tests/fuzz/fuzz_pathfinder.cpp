#include "tests/fuzz/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  primal::fuzz::accepts_pathfinder({reinterpret_cast<const char*>(data), size});
  return 0;
}

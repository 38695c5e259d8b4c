#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace primal {

uint32_t RandomStream::bits() {
  if (next_ == 4) {
    words_ = philox({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                     static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                    static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
    ++block_;
    next_ = 0;
  }
  return words_[next_++];
}

float RandomStream::uniform() {
  return static_cast<float>(bits() >> 8) * 0x1p-24F;
}

float RandomStream::normal() {
  const double u = (bits() + 1.0) * 0x1p-32;  // in (0, 1], so that the logarithm is finite
  const double angle = 2 * std::numbers::pi * (bits() * 0x1p-32);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
}

uint64_t RandomStream::below(uint64_t bound) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t value = 0;
  do {
    value = (uint64_t{bits()} << 32) | bits();
  } while (value >= limit);
  return value % bound;
}

}  // namespace primal

#pragma once

#include <bit>
#include <cstdint>

namespace primal {

/// The nearest bfloat16 (8 significant bits), ties to even; infinities and NaN stay what they are.
inline float round_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
  return std::bit_cast<float>(x != x ? bits | 0x00400000 : rounded);
}

/// The same as the 16 bits of a bfloat16, and back.
inline uint16_t bf16_bits(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(x)) >> 16);
}
inline float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace primal

#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace primal::cpu {

/// Elements whose masks one call computes.
inline constexpr int64_t kMaskBlock = 128;

/// Mask factors (0 or `scale`) of the elements [block * 128, block * 128 + 128).
///
/// Sixteen Philox4x32-10 counters give 64 words, hence 128 halves. Element e of a block uses
/// counter block * 16 + e % 16, word e / 32 and, when e / 16 is odd, that word's upper half: in
/// this order the sixteen lanes of a vector are neighbours in memory.
inline void dropout_factors(const Dropout& d, int64_t block, float* factors) {
  uint32_t c0[16];
  uint32_t c1[16];
  uint32_t c2[16];
  uint32_t c3[16];
  const uint64_t first = static_cast<uint64_t>(block) * 16;
  // 16 divides 2^32, so that the lanes never carry into the upper word.
#pragma omp simd
  for (int i = 0; i < 16; ++i) {
    c0[i] = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
    c1[i] = static_cast<uint32_t>(first >> 32);
    c2[i] = d.op;
    c3[i] = static_cast<uint32_t>(d.step);
  }
  auto key0 = static_cast<uint32_t>(d.seed);
  uint32_t key1 = static_cast<uint32_t>(d.seed >> 32) ^ static_cast<uint32_t>(d.step >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < 16; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ key0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ key1;
      c3[i] = static_cast<uint32_t>(p0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  const uint32_t* words[4] = {c0, c1, c2, c3};
  for (int w = 0; w < 4; ++w) {
#pragma omp simd
    for (int i = 0; i < 16; ++i) {
      factors[32 * w + i] = (words[w][i] & 0xFFFF) < d.keep_below ? d.scale : 0.0F;
      factors[32 * w + 16 + i] = (words[w][i] >> 16) < d.keep_below ? d.scale : 0.0F;
    }
  }
}

/// Row stride of the mask of attention probabilities: rows start on a block.
inline int64_t mask_row_blocks(int64_t length) {
  return (length + kMaskBlock - 1) / kMaskBlock;
}

}  // namespace primal::cpu

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
void dropout_factors(const Dropout& d, int64_t block, float* factors);

/// Row stride of the mask of attention probabilities: rows start on a block.
inline int64_t mask_row_blocks(int64_t length) {
  return (length + kMaskBlock - 1) / kMaskBlock;
}

}  // namespace primal::cpu

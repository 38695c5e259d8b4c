#pragma once

#include "kernels/args.h"
#include "kernels/simt.h"

namespace primal::PRIMAL_DEVICE {

/// Elements that one Philox counter serves: first_element(counter) + 16 k for k = 0..7
/// (kernels/cpu/dropout.h has the layout).
constexpr int kMaskElements = 8;
constexpr int kMaskStride = 16;

/// Philox4x32-10 (Salmon et al., 2011): four random words of a mask's counter, as core/rng.h
/// defines them.
__device__ inline void philox_words(const Dropout& d, uint64_t counter, uint32_t (&c)[4]) {
  counter += d.first * kMaskStride;
  c[0] = static_cast<uint32_t>(counter);
  c[1] = static_cast<uint32_t>(counter >> 32);
  c[2] = d.op;
  c[3] = static_cast<uint32_t>(d.step);
  uint32_t key0 = static_cast<uint32_t>(d.seed);
  uint32_t key1 = static_cast<uint32_t>(d.seed >> 32) ^ static_cast<uint32_t>(d.step >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

__device__ inline int64_t first_element(int64_t counter) {
  return counter / kMaskStride * (kMaskStride * kMaskElements) + counter % kMaskStride;
}

/// Dropout::active() for kernels.
__device__ inline bool drops(const Dropout& d) {
  return d.keep_below < 65536;
}

/// Mask factors, 0 or d.scale, of the counter's elements.
__device__ inline void dropout_factors(const Dropout& d, int64_t counter,
                                       float (&factors)[kMaskElements]) {
  uint32_t words[4];
  philox_words(d, static_cast<uint64_t>(counter), words);
#pragma unroll
  for (int k = 0; k < kMaskElements; ++k) {
    const uint32_t half = k % 2 == 0 ? words[k / 2] & 0xFFFF : words[k / 2] >> 16;
    factors[k] = half < d.keep_below ? d.scale : 0.0F;
  }
}

/// The mask factor of one element.
__device__ inline float dropout_factor(const Dropout& d, int64_t element) {
  constexpr int64_t kBlock = kMaskElements * kMaskStride;
  uint32_t words[4];
  philox_words(d, static_cast<uint64_t>(element / kBlock * kMaskStride + element % kMaskStride),
               words);
  const int k = static_cast<int>(element % kBlock) / kMaskStride;
  const uint32_t low = k < 4 ? (k < 2 ? words[0] : words[1]) : (k < 6 ? words[2] : words[3]);
  return (k % 2 == 0 ? low & 0xFFFF : low >> 16) < d.keep_below ? d.scale : 0.0F;
}

}  // namespace primal::PRIMAL_DEVICE

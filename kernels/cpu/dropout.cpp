#include "kernels/cpu/dropout.h"

#ifdef __AVX512F__
#ifndef __clang__
// g++ 12 takes the intrinsics' deliberately undefined operands for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

namespace primal::cpu {

void dropout_factors(const Dropout& d, int64_t block, float* factors) {
  const uint64_t first = (d.first + static_cast<uint64_t>(block)) * 16;
  // 16 divides 2^32, so that the lanes never carry into the upper word.
  auto key0 = static_cast<uint32_t>(d.seed);
  uint32_t key1 = static_cast<uint32_t>(d.seed >> 32) ^ static_cast<uint32_t>(d.step >> 32);
#ifdef __AVX512F__
  // Eight counters to a register, a word in the lower half of each lane. The multiplication reads
  // lower halves only, so that what collects in the upper ones does no harm.
  const auto all = [](uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); };
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const uint32_t low = static_cast<uint32_t>(first);
  __m512i c0[2] = {_mm512_add_epi64(all(low), lanes), _mm512_add_epi64(all(low + 8), lanes)};
  __m512i c1[2] = {all(first >> 32), all(first >> 32)};
  __m512i c2[2] = {all(d.op), all(d.op)};
  __m512i c3[2] = {all(static_cast<uint32_t>(d.step)), all(static_cast<uint32_t>(d.step))};
  for (int round = 0; round < 10; ++round) {
    for (int h = 0; h < 2; ++h) {
      constexpr int kXor = 0x96;  // a ^ b ^ c
      const __m512i p0 = _mm512_mul_epu32(c0[h], all(0xD2511F53));
      const __m512i p1 = _mm512_mul_epu32(c2[h], all(0xCD9E8D57));
      c0[h] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c1[h], all(key0), kXor);
      c2[h] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3[h], all(key1), kXor);
      c1[h] = p1;
      c3[h] = p0;
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  const __m512 scale = _mm512_set1_ps(d.scale);
  const __m512i below = _mm512_set1_epi32(static_cast<int>(d.keep_below));
  const __m512i* words[4] = {c0, c1, c2, c3};
  for (int w = 0; w < 4; ++w) {
    const __m512i word =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(words[w][0])),
                           _mm512_cvtepi64_epi32(words[w][1]), 1);
    const __m512i halves[2] = {_mm512_and_si512(word, _mm512_set1_epi32(0xFFFF)),
                               _mm512_srli_epi32(word, 16)};
    for (int h = 0; h < 2; ++h) {
      _mm512_storeu_ps(factors + 32 * w + 16 * h,
                       _mm512_maskz_mov_ps(_mm512_cmplt_epu32_mask(halves[h], below), scale));
    }
  }
#else
  uint32_t c0[16];
  uint32_t c1[16];
  uint32_t c2[16];
  uint32_t c3[16];
#pragma omp simd
  for (int i = 0; i < 16; ++i) {
    c0[i] = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
    c1[i] = static_cast<uint32_t>(first >> 32);
    c2[i] = d.op;
    c3[i] = static_cast<uint32_t>(d.step);
  }
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
#endif
}

}  // namespace primal::cpu

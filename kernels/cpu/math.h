#pragma once

#include <bit>
#include <cstdint>

namespace primal::cpu {

// Branch-free single precision functions that the compiler turns into vector code inside `omp simd`
// loops. The polynomials were fitted for this file by weighted minimax; errors are against double
// precision.

/// e^x for x <= 0 up to rounding (relative error 1e-7); 0 below -87.3. Larger x up to 88 works too.
inline float exp_simd(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kRound =
      12582912.0F;  // 1.5 * 2^23: adding and subtracting it rounds to an integer
  const float clamped = x < -87.3F ? -87.3F : x;
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts keeps the remainder exact.
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.381476048e-3F;
  p = p * r + 8.368713446e-3F;
  p = p * r + 4.166838475e-2F;
  p = p * r + 1.666652066e-1F;
  p = p * r + 4.999999346e-1F;
  p = (p * r) * r + r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound) + 127;
  const float result = p * std::bit_cast<float>(exponent << 23);
  return x < -87.3F ? 0.0F : result;
}

/// Density and distribution of the standard normal at x (absolute error 2e-7). The lower tail is
/// exp(-x^2/2) times a polynomial in u = 1 / (1 + 0.35 |x|), so that one exponential serves both.
struct NormalSimd {
  float density;
  float distribution;
};
inline NormalSimd normal_simd(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float gauss = exp_simd(-0.5F * x * x);
  const float u = 1.0F / (1.0F + 0.35F * magnitude);
  float p = -2.914585694e-2F;
  p = p * u + 1.439714265e-1F;
  p = p * u - 2.557138610e-1F;
  p = p * u + 1.591738891e-1F;
  p = p * u - 2.310976022e-2F;
  p = p * u + 1.055080143e-1F;
  p = p * u + 1.198328559e-1F;
  p = p * u + 1.398618723e-1F;
  p = p * u + 1.396214041e-1F;
  const float tail = p * u * gauss;
  return {0.398942280F * gauss, x < 0 ? tail : 1.0F - tail};
}

}  // namespace primal::cpu

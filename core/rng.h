#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace primal {

/// Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011): the numbers are a pure function of key and counter, so that any element's
/// number can be computed anywhere, in any order, and again in the backward pass.
using PhiloxWords = std::array<uint32_t, 4>;

inline PhiloxWords philox(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// Names one random mask: every dropout of every step has a key of its own.
struct MaskKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t op = 0;
};

/// The random state of a step: (seed, step, number of masks drawn so far). Saving `step` is enough
/// to resume.
class Rng {
 public:
  Rng(uint64_t seed, uint64_t step) : key_{seed, step, 0} {}
  /// A key that no other call in this step returns.
  MaskKey next_mask() {
    MaskKey key = key_;
    ++key_.op;
    return key;
  }

 private:
  MaskKey key_;
};

/// 64-bit FNV-1a, used to key random streams by name and as a checksum. Pass the last result to go
/// on with more bytes.
constexpr uint64_t hash_name(std::string_view name, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

/// A sequence of numbers on one named stream, for initialisation and shuffling.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint32_t bits();
  /// Uniform in [0, 1), 24 bits.
  float uniform();
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Standard normal (Box-Muller, in double precision).
  float normal();
  /// Uniform in [0, bound), without modulo bias. bound >= 1.
  uint64_t below(uint64_t bound);

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t block_ = 0;
  int next_ = 4;
  PhiloxWords words_{};
};

}  // namespace primal

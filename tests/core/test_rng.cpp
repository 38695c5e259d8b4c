#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/rng.h"
#include "tests/catch.h"

using namespace primal;

TEST_CASE("Philox4x32-10 gives its published known answers") {
  CHECK(philox({0, 0, 0, 0}, 0, 0) == PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, ones, ones) ==
        PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers lie from 0 to below 1 and are evenly spread") {
  RandomStream random(1, hash_name("uniform"));
  const int n = 100000;
  double sum = 0;
  double squares = 0;
  int outside = 0;
  std::vector<int> bins(11);
  for (int i = 0; i < n; ++i) {
    const double x = random.uniform();
    outside += x >= 0 && x < 1 ? 0 : 1;
    sum += x;
    squares += x * x;
    ++bins[std::clamp(static_cast<int>(10 * x), 0, 10)];
  }
  CHECK(outside == 0);
  bins.pop_back();
  CHECK(sum / n == Approx(0.5).margin(0.005));
  CHECK(squares / n == Approx(1.0 / 3).margin(0.005));
  double chi_square = 0;  // 9 degrees of freedom: above 27.9 in one of a thousand seeds
  for (const int count : bins) chi_square += std::pow(count - n / 10.0, 2) / (n / 10.0);
  CHECK(chi_square < 27.9);
}

TEST_CASE("uniform numbers of an interval stay within it") {
  RandomStream random(1, 2);
  for (int i = 0; i < 10000; ++i) {
    const float x = random.uniform(-3, 5);
    REQUIRE((x >= -3 && x <= 5));
  }
}

TEST_CASE("normal numbers have the normal distribution's moments and tails") {
  RandomStream random(1, hash_name("normal"));
  const int n = 200000;
  double moments[4] = {};
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    for (int k = 0; k < 4; ++k) moments[k] += std::pow(x, k + 1) / n;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  CHECK(moments[0] == Approx(0).margin(0.01));
  CHECK(moments[1] == Approx(1).margin(0.02));
  CHECK(moments[2] == Approx(0).margin(0.04));
  CHECK(moments[3] == Approx(3).margin(0.1));
  CHECK(beyond_two / static_cast<double>(n) == Approx(0.0455).margin(0.002));
}

TEST_CASE("below() reaches every value equally often and no other") {
  RandomStream random(3, hash_name("below"));
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  for (const int count : counts) CHECK(count == Approx(10000).margin(400));
  for (int i = 0; i < 100; ++i) CHECK(random.below(1) == 0);
  for (int i = 0; i < 100; ++i) CHECK(random.below(uint64_t{1} << 63) < uint64_t{1} << 63);
}

TEST_CASE("streams differ by name and by seed, and repeat") {
  const auto numbers = [](uint64_t seed, std::string_view name) {
    RandomStream random(seed, hash_name(name));
    std::vector<uint32_t> values(64);
    for (uint32_t& value : values) value = random.bits();
    return values;
  };
  CHECK(numbers(1, "a") == numbers(1, "a"));
  std::set<std::vector<uint32_t>> all;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (const char* name : {"", "a", "b", "layers.0.weight", "layers.1.weight"}) {
      all.insert(numbers(seed, name));
    }
  }
  CHECK(all.size() == 15);
}

TEST_CASE("names hash as 64-bit FNV-1a") {
  CHECK(hash_name("") == 0xcbf29ce484222325);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8c);
  CHECK(hash_name("foobar") == 0x85944171f73967e8);
}

TEST_CASE("masks of a step have keys of their own, and the step belongs to the key") {
  Rng rng(5, 9);
  const MaskKey first = rng.next_mask();
  const MaskKey second = rng.next_mask();
  CHECK((first.seed == 5 && first.step == 9));
  CHECK(first.op != second.op);
  Rng again(5, 9);
  CHECK(again.next_mask().op == first.op);
}

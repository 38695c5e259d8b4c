#include "core/ops.h"
#include "kernels/cpu/dropout.h"
#include "tests/catch.h"
#include "tests/op_cases.h"

using namespace primal;
using namespace primal::testing;

namespace {

Dropout mask(double p, MaskKey key = kCaseKey) {
  Dropout d;
  d.seed = key.seed;
  d.step = key.step;
  d.op = key.op;
  d.keep_below = static_cast<uint32_t>(std::lround((1 - p) * 65536));
  d.scale = static_cast<float>(1 / (1 - p));
  return d;
}

std::vector<float> factors(const Dropout& d, int64_t count) {
  std::vector<float> all(count + cpu::kMaskBlock);
  for (int64_t block = 0; block * cpu::kMaskBlock < count; ++block) {
    cpu::dropout_factors(d, block, all.data() + block * cpu::kMaskBlock);
  }
  all.resize(count);
  return all;
}

}  // namespace

TEST_CASE("dropout's vector code draws the bits of scalar Philox, block by block") {
  const Dropout d = mask(0.3);
  // Blocks on both sides of where the counter's lower word overflows.
  for (const int64_t block : {int64_t{0}, int64_t{1}, int64_t{17}, (int64_t{1} << 28) - 1,
                              int64_t{1} << 28, int64_t{1} << 40}) {
    INFO("block " << block);
    float values[cpu::kMaskBlock];
    cpu::dropout_factors(d, block, values);
    for (int64_t i = 0; i < cpu::kMaskBlock; ++i) {
      REQUIRE(double{values[i]} == mask_factor(block * cpu::kMaskBlock + i, 0.3));
    }
  }
}

TEST_CASE("dropout keeps the asked fraction and scales it, so that the mean stays") {
  for (const double p : {0.1, 0.25, 0.5, 0.9}) {
    INFO("p " << p);
    const int64_t count = 1 << 20;
    int64_t kept = 0;
    int64_t others = 0;
    double sum = 0;
    for (const float factor : factors(mask(p), count)) {
      others += factor != 0.0F && factor != static_cast<float>(1 / (1 - p)) ? 1 : 0;
      kept += factor != 0 ? 1 : 0;
      sum += factor;
    }
    CHECK(others == 0);
    // Four standard deviations, and the step of 1/65536 by which probabilities are given.
    const double margin = 4 * std::sqrt(p * (1 - p) / count) + 0.5 / 65536;
    CHECK(static_cast<double>(kept) / count == Approx(1 - p).margin(margin));
    CHECK(sum / count == Approx(1).margin(margin / (1 - p)));
  }
}

TEST_CASE("neighbouring elements, steps, ops and seeds have unrelated masks") {
  const int64_t count = 1 << 16;
  const std::vector<float> one = factors(mask(0.5, {1, 1, 0}), count);
  const auto agreement = [&](const std::vector<float>& other, int64_t shift) {
    int64_t same = 0;
    for (int64_t i = 0; i + shift < count; ++i) same += one[i + shift] == other[i] ? 1 : 0;
    return static_cast<double>(same) / static_cast<double>(count - shift);
  };
  for (const int64_t shift : {1, 2, 15, 16, 17, 32, 64, 127, 128, 256}) {
    INFO("shift " << shift);
    CHECK(agreement(one, shift) == Approx(0.5).margin(0.01));
  }
  for (const MaskKey& key :
       {MaskKey{2, 1, 0}, MaskKey{1, 2, 0}, MaskKey{1, 1, 1},
        MaskKey{1 + (uint64_t{1} << 32), 1, 0}, MaskKey{1, 1 + (uint64_t{1} << 32), 0}}) {
    CHECK(agreement(factors(mask(0.5, key), count), 0) == Approx(0.5).margin(0.01));
  }
}

TEST_CASE("two dropouts of a step differ, and backward uses forward's mask") {
  Backend be = cpu_backend(2);
  ParameterSet none;
  Tape tape(be);
  Context ctx(be, none, tape, Rng(4, 2));
  const int64_t count = 20011;
  const Tensor gradient = be.empty({count});
  const Var x{to_device(be, {count}, Values(count, 1.0)), tape.leaf(gradient)};
  const Var first = ops::dropout(ctx, x, 0.4);
  const Var second = ops::dropout(ctx, x, 0.4);
  CHECK(to_host(be, first.value) != to_host(be, second.value));
  const Tensor ones = to_device(be, {count}, Values(count, 1.0));
  const std::vector<float> forward = to_host(be, first.value);
  tape.backward(seed_gradients(ctx, {first}, {ones}));
  CHECK(to_host(be, gradient) == forward);
}

TEST_CASE("dropout of nearly everything and of nearly nothing is finite") {
  Backend be = cpu_backend(1);
  ParameterSet none;
  Tape tape(be);
  Context ctx(be, none, tape, Rng(4, 2));
  const Var x{to_device(be, {1000}, Values(1000, 1.0))};
  for (const double p : {1e-9, 0.999999}) {
    for (const float value : to_host(be, ops::dropout(ctx, x, p).value)) {
      REQUIRE(std::isfinite(value));
    }
  }
  CHECK(to_host(be, ops::dropout(ctx, x, 1e-9).value) == std::vector<float>(1000, 1.0F));
}

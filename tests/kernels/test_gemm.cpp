#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/bf16.h"
#include "tests/catch.h"

namespace primal::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<ProductKind> kinds() {
  std::vector<ProductKind> list{ProductKind::automatic, ProductKind::blas};
  if (amx_available()) list.push_back(ProductKind::amx);
  return list;
}

std::string name(ProductKind kind) {
  return kind == ProductKind::blas ? "blas" : kind == ProductKind::amx ? "amx" : "automatic";
}

std::vector<float> normal(std::mt19937& rng, int64_t count) {
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = draw(rng);
  return values;
}

/// A product with its operands, padded rows included, and a guard value behind every row of C.
struct Case {
  GemmArgs args;
  std::vector<float> a, b, c, bias;

  Case(std::mt19937& rng, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
       int64_t padding = 0) {
    args.trans_a = trans_a;
    args.trans_b = trans_b;
    args.m = m;
    args.n = n;
    args.k = k;
    args.lda = (trans_a ? m : k) + padding;
    args.ldb = (trans_b ? k : n) + padding;
    args.ldc = n + padding;
    a = normal(rng, (trans_a ? k : m) * args.lda);
    b = normal(rng, (trans_b ? n : k) * args.ldb);
    c = normal(rng, m * args.ldc);
    bias = normal(rng, n);
    if (padding > 0) {
      const auto spoil = [](std::vector<float>& x, int64_t leading, int64_t columns) {
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (static_cast<int64_t>(i) % leading >= columns) x[i] = kNan;
        }
      };
      spoil(a, args.lda, trans_a ? m : k);
      spoil(b, args.ldb, trans_b ? k : n);
      spoil(c, args.ldc, n);
    }
  }

  double a_at(int64_t i, int64_t l) const {
    return a[static_cast<std::size_t>(args.trans_a ? l * args.lda + i : i * args.lda + l)];
  }
  double b_at(int64_t l, int64_t j) const {
    return b[static_cast<std::size_t>(args.trans_b ? j * args.ldb + l : l * args.ldb + j)];
  }

  std::vector<float> run(const Exec& exec, bool serial = false) const {
    std::vector<float> out = c;
    GemmArgs g = args;
    g.a = a.data();
    g.b = b.data();
    g.c = out.data();
    if (args.bias) g.bias = bias.data();
    serial ? gemm_serial(exec, g) : gemm(exec, g);
    return out;
  }

  /// Largest |difference| to double precision, over the sum of the magnitudes of what was added.
  double error(const std::vector<float>& out) const {
    double worst = 0;
    for (int64_t i = 0; i < args.m; ++i) {
      for (int64_t j = 0; j < args.ldc; ++j) {
        const auto at = static_cast<std::size_t>(i * args.ldc + j);
        if (j >= args.n) {  // behind the row: untouched
          if (!std::isnan(out[at])) return std::numeric_limits<double>::infinity();
          continue;
        }
        double sum = 0, size = 0;
        for (int64_t l = 0; l < args.k; ++l) {
          const double p = a_at(i, l) * b_at(l, j);
          sum += p;
          size += std::abs(p);
        }
        sum *= args.alpha;
        size *= std::abs(args.alpha);
        if (args.beta != 0) {
          sum += double{args.beta} * c[at];
          size += std::abs(double{args.beta} * c[at]);
        }
        if (args.bias) {
          sum += bias[static_cast<std::size_t>(j)];
          size += std::abs(bias[static_cast<std::size_t>(j)]);
        }
        const double difference = std::abs(out[at] - sum);
        if (!(difference <= 1e-6 * size)) return size > 0 ? difference / size : difference;
        if (size > 0) worst = std::max(worst, difference / size);
      }
    }
    return worst;
  }
};

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

// (m, n, k): sides of one, primes, one less and one more than a tile or block, long and flat ones.
const std::vector<std::vector<int64_t>> kShapes = {
    {1, 1, 1},     {1, 17, 5},     {13, 1, 31},   {16, 16, 32},  {17, 15, 33},
    {31, 33, 65},  {32, 32, 64},   {47, 61, 29},  {64, 30, 405}, {29, 30, 64},
    {3, 2, 9000},  {16, 9, 20000}, {9, 1500, 16}, {2, 2000, 3},  {65, 530, 384},
    {70, 97, 385}, {200, 31, 769}, {390, 40, 37}, {64, 64, 1},   {193, 513, 48}};

}  // namespace

TEST_CASE("matrix products agree with double precision for all transposes and shapes") {
  std::mt19937 rng(7);
  for (const auto& s : kShapes) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      for (int64_t padding : {0, 5}) {
        const Case product(rng, transposes & 1, transposes & 2, s[0], s[1], s[2], padding);
        for (ProductKind kind : kinds()) {
          CAPTURE(name(kind), s, transposes, padding);
          CHECK(product.error(product.run({2, nullptr, kind})) <= 1e-6);
          CHECK(product.error(product.run({1, nullptr, kind}, true)) <= 1e-6);
        }
      }
    }
  }
}

TEST_CASE("rounding to bfloat16 is to the nearest, ties to even, and keeps NaN and infinities") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(round_to_bf16(1.0F) == 1.0F);
  CHECK(round_to_bf16(1.00390625F) == 1.0F);       // a tie: 1 + 2^-8
  CHECK(round_to_bf16(1.01171875F) == 1.015625F);  // a tie: 1 + 3 2^-8
  CHECK(round_to_bf16(1.004F) == 1.0078125F);      // just above
  CHECK(round_to_bf16(-3.14159274F) == -3.140625F);
  CHECK(std::signbit(round_to_bf16(-0.0F)));
  CHECK(round_to_bf16(3.4e38F) == inf);
  CHECK(round_to_bf16(-inf) == -inf);
  for (const uint32_t nan : {0x7F800001U, 0x7FFFFFFFU, 0xFFC00000U, 0xFF80FFFFU}) {
    CHECK(std::isnan(round_to_bf16(std::bit_cast<float>(nan))));
  }
}

TEST_CASE("products in bf16 are those of the operands rounded to bfloat16, added in float32") {
  std::mt19937 rng(27);
  for (const auto& s : kShapes) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      Case product(rng, transposes & 1, transposes & 2, s[0], s[1], s[2], 3);
      product.args.beta = transposes == 1 ? 0.5F : 0.0F;
      product.args.bias = transposes == 2 ? product.bias.data() : nullptr;
      Case rounded = product;  // whose error is against the rounded operands
      for (float& v : rounded.a) v = round_to_bf16(v);
      for (float& v : rounded.b) v = round_to_bf16(v);
      for (ProductKind kind : kinds()) {
        CAPTURE(name(kind), s, transposes);
        Exec exec{2, nullptr, kind};
        exec.precision = Precision::bf16;
        const std::vector<float> out = product.run(exec);
        CHECK(rounded.error(out) <= 1e-6);
        CHECK(rounded.error(product.run(exec, true)) <= 1e-6);
        exec.threads = 1;
        CHECK(same_bits(product.run(exec), out));
        if (s[2] > 1) CHECK(product.error(out) > 1e-6);  // rounding is seen
      }
    }
  }
}

TEST_CASE("a value that is not finite reaches the results of a product in bf16") {
  std::mt19937 rng(28);
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, std::bit_cast<float>(0x7FFFFFFFU), inf, -inf}) {
    Case product(rng, false, false, 64, 64, 64);
    for (float& v : product.b) v = 1;
    product.a[5 * 64 + 7] = bad;
    for (ProductKind kind : kinds()) {
      Exec exec{1, nullptr, kind};
      exec.precision = Precision::bf16;
      const std::vector<float> out = product.run(exec);
      for (size_t i = 0; i < out.size(); ++i) CHECK(std::isfinite(out[i]) == (i / 64 != 5));
      CHECK((std::isnan(bad) ? std::isnan(out[5 * 64]) : out[5 * 64] == bad));
    }
  }
}

TEST_CASE("matrix products scale, accumulate and add a bias") {
  std::mt19937 rng(8);
  const std::vector<std::vector<int64_t>> shapes = {
      {40, 50, 33}, {5, 7, 3}, {4, 6, 9000}, {33, 40, 800}, {5, 6, 0}};
  for (const auto& s : shapes) {
    for (float alpha : {1.0f, -0.5f, 0.0f}) {
      for (float beta : {0.0f, 1.0f, -2.0f}) {
        for (bool bias : {false, true}) {
          Case product(rng, false, true, s[0], s[1], s[2], 3);
          product.args.alpha = alpha;
          product.args.beta = beta;
          if (bias) product.args.bias = product.bias.data();
          if (beta == 0) std::fill(product.c.begin(), product.c.end(), kNan);
          for (ProductKind kind : kinds()) {
            CAPTURE(name(kind), s, alpha, beta, bias);
            CHECK(product.error(product.run({2, nullptr, kind})) <= 1e-6);
            CHECK(product.error(product.run({2, nullptr, kind}, true)) <= 1e-6);
          }
        }
      }
    }
  }
}

TEST_CASE("matrix products of positive values over a long inner dimension stay accurate") {
  std::mt19937 rng(9);
  Case product(rng, true, false, 48, 33, 6480);
  for (float& v : product.a) v = std::abs(v);
  for (float& v : product.b) v = std::abs(v);
  for (ProductKind kind : kinds()) {
    CAPTURE(name(kind));
    CHECK(product.error(product.run({2, nullptr, kind})) <= 1e-6);
  }
}

TEST_CASE("matrix products of values of very different magnitude stay accurate") {
  std::mt19937 rng(10);
  std::uniform_int_distribution<int> exponent(-40, 40);
  for (int transposes = 0; transposes < 4; ++transposes) {
    Case product(rng, transposes & 1, transposes & 2, 37, 45, 300);
    for (float& v : product.a) v = std::ldexp(v, exponent(rng));
    for (float& v : product.b) v = std::ldexp(v, exponent(rng));
    for (ProductKind kind : kinds()) {
      CAPTURE(name(kind), transposes);
      CHECK(product.error(product.run({2, nullptr, kind})) <= 1e-6);
    }
  }
}

TEST_CASE("a value that is not finite reaches its own row and column and no others") {
  std::mt19937 rng(11);
  Case product(rng, false, false, 40, 50, 70);
  product.a[3 * 70 + 5] = std::numeric_limits<float>::infinity();
  product.b[9 * 50 + 7] = kNan;
  for (ProductKind kind : kinds()) {
    CAPTURE(name(kind));
    const std::vector<float> out = product.run({2, nullptr, kind});
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 50; ++j) {
        const bool finite = std::isfinite(out[static_cast<std::size_t>(i * 50 + j)]);
        if (finite == (i == 3 || j == 7)) {
          CAPTURE(i, j);
          FAIL("unexpected value");
        }
      }
    }
  }
}

TEST_CASE("matrix products are the same bits for any number of threads and on every call") {
  std::mt19937 rng(12);
  const std::vector<std::vector<int64_t>> shapes = {{464, 512, 512}, {405, 30, 64},  {16, 9, 14848},
                                                    {9, 14848, 16},  {520, 700, 70}, {1, 5, 9},
                                                    {512, 512, 464}};
  for (const auto& s : shapes) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      const Case product(rng, transposes & 1, transposes & 2, s[0], s[1], s[2]);
      for (ProductKind kind : kinds()) {
        const std::vector<float> once = product.run({1, nullptr, kind});
        for (int threads : {1, 2, 3, 4}) {
          CAPTURE(name(kind), s, transposes, threads);
          CHECK(same_bits(once, product.run({threads, nullptr, kind})));
        }
      }
    }
  }
}

TEST_CASE("a product inside of a parallel region has the bits of one outside") {
  std::mt19937 rng(13);
  const Case product(rng, false, true, 130, 140, 150);
  for (ProductKind kind : kinds()) {
    CAPTURE(name(kind));
    const Exec exec{2, nullptr, kind};
    const std::vector<float> serial = product.run(exec, true), parallel = product.run(exec);
    std::vector<std::vector<float>> inside(4), nested(4);
    parallel_for(exec, 4, [&](int64_t i) {
      inside[static_cast<std::size_t>(i)] = product.run(exec, true);
      nested[static_cast<std::size_t>(i)] = product.run(exec);
    });
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(same_bits(serial, inside[i]));
      CHECK(same_bits(parallel, nested[i]));
    }
  }
}

TEST_CASE("a batch computes each item as one product, with shared operands") {
  std::mt19937 rng(14);
  const int64_t m = 29, n = 30, k = 64, outer = 3, inner = 5;
  const std::vector<float> a = normal(rng, outer * inner * m * k);
  const std::vector<float> b = normal(rng, inner * k * n);
  for (ProductKind kind : kinds()) {
    for (int threads : {1, 2, 4}) {
      CAPTURE(name(kind), threads);
      std::vector<float> c(static_cast<std::size_t>(outer * inner * m * n), kNan);
      GemmArgs g;
      g.m = m;
      g.n = n;
      g.k = k;
      g.a = a.data();
      g.lda = k;
      g.b = b.data();
      g.ldb = n;
      g.c = c.data();
      g.ldc = n;
      // One B per inner index, the same for every outer one.
      const GemmBatch batch{outer, inner, inner * m * k, m * k, 0, k * n, inner * m * n, m * n};
      gemm_batched({threads, nullptr, kind}, g, batch);
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t i = 0; i < inner; ++i) {
          std::vector<float> single(static_cast<std::size_t>(m * n), kNan);
          GemmArgs one = g;
          one.a = a.data() + (o * inner + i) * m * k;
          one.b = b.data() + i * k * n;
          one.c = single.data();
          gemm_serial({1, nullptr, kind}, one);
          const float* item = c.data() + (o * inner + i) * m * n;
          CHECK(std::memcmp(item, single.data(), single.size() * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST_CASE("empty matrix products touch nothing or only scale") {
  std::vector<float> c{1, 2, 3, 4};
  GemmArgs g;
  g.c = c.data();
  g.ldc = 2;
  for (ProductKind kind : kinds()) {
    g.m = 0;
    g.n = 2;
    gemm({2, nullptr, kind}, g);
    gemm_batched({2, nullptr, kind}, g, {0, 3});
    CHECK(c == std::vector<float>{1, 2, 3, 4});
  }
  g.m = 2;
  g.beta = 2;
  gemm({}, g);
  CHECK(c == std::vector<float>{2, 4, 6, 8});
  g.beta = 0;
  c[0] = kNan;
  gemm_serial({}, g);
  CHECK(c == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("wrong sizes of matrix products are refused") {
  std::vector<float> x(100);
  GemmArgs g;
  g.m = g.n = g.k = 4;
  g.a = g.b = x.data();
  g.c = x.data() + 50;
  g.lda = g.ldb = g.ldc = 4;
  gemm({}, g);
  for (int which = 0; which < 4; ++which) {
    GemmArgs wrong = g;
    if (which == 0) wrong.lda = 3;
    if (which == 1) wrong.ldb = 3;
    if (which == 2) wrong.ldc = 3;
    if (which == 3) wrong.k = -1;
    CAPTURE(which);
    CHECK_THROWS_AS(gemm({}, wrong), Error);
    CHECK_THROWS_AS(gemm_serial({}, wrong), Error);
    CHECK_THROWS_AS(gemm_batched({}, wrong, {2, 2}), Error);
  }
  if (!amx_available()) CHECK_THROWS_AS(gemm({1, nullptr, ProductKind::amx}, g), Error);
}

TEST_CASE("the product meter counts every operation once") {
  std::mt19937 rng(15);
  for (ProductKind kind : kinds()) {
    for (int threads : {1, 2}) {
      ProductMeter meter(threads);
      const Exec exec{threads, &meter, kind};
      const double expected = 2.0 * 500 * 600 * 70;
      const Case product(rng, false, true, 500, 600, 70);
      product.run(exec);
      CAPTURE(name(kind), threads);
      CHECK(meter.operations() == expected);
      product.run(exec, true);
      CHECK(meter.operations() == 2 * expected);
      CHECK(meter.thread_seconds() > 0);
      meter.reset();
      CHECK(meter.operations() == 0);
      Case(rng, false, true, 4, 4, 20000).run(exec);
      CHECK(meter.operations() == 2.0 * 4 * 4 * 20000);
    }
  }
}

}  // namespace primal::cpu

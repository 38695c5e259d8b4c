#include <cmath>

#include "core/error.h"
#include "core/parameters.h"
#include "tests/catch.h"
#include "tests/op_cases.h"

using namespace primal;
using namespace primal::testing;

namespace {

std::vector<float> initial(const Initializer& initializer, Shape shape) {
  const Backend be = cpu_backend(1);
  ParameterSet parameters;
  const Parameter p = parameters.add("p", shape, initializer);
  parameters.allocate(be, 11);
  return to_host(be, parameters.value(p));
}

/// Largest deviation of M M^T from the identity, M being (rows, columns) with the given strides.
double deviation(const std::vector<float>& m, int64_t rows, int64_t columns, int64_t row_stride,
                 int64_t column_stride) {
  double worst = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < rows; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < columns; ++c) {
        dot += static_cast<double>(m[i * row_stride + c * column_stride]) *
               m[j * row_stride + c * column_stride];
      }
      worst = std::max(worst, std::abs(dot - (i == j ? 1 : 0)));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("initial values depend on seed, name and shape, not on the other parameters") {
  const Backend be = cpu_backend(2);
  const auto values = [&](uint64_t seed, bool alone, const std::string& name) {
    ParameterSet parameters;
    if (!alone) parameters.add("before", {7, 3}, init::normal(1));
    const Parameter p = parameters.add(name, {5, 4}, init::normal(1));
    if (!alone) parameters.add("after", {100}, init::uniform(0, 1));
    parameters.allocate(be, seed);
    return to_host(be, parameters.value(p));
  };
  CHECK(values(1, true, "p") == values(1, false, "p"));
  CHECK(values(1, true, "p") != values(2, true, "p"));
  CHECK(values(1, true, "p") != values(1, true, "q"));
}

TEST_CASE("parameters are slices of one buffer, whose gaps and gradients are zero") {
  const Backend be = cpu_backend(1);
  ParameterSet parameters;
  const Parameter a = parameters.add("a", {3}, init::constant(2));
  const Parameter b = parameters.add("b", {17}, init::constant(3));
  parameters.allocate(be, 1);
  CHECK(parameters.count() == 16 + 32);
  CHECK(parameters.value(b).data() == parameters.values().data() + 16);
  CHECK(parameters.gradient(b).data() == parameters.gradients().data() + 16);
  CHECK(reinterpret_cast<uintptr_t>(parameters.value(b).data()) % 64 == 0);
  double sum = 0;
  for (const float value : to_host(be, parameters.values())) sum += value;
  CHECK(sum == 3 * 2 + 17 * 3);
  CHECK(to_host(be, parameters.gradients()) == std::vector<float>(48, 0.0F));
  CHECK(parameters.find("b").index == b.index);
  CHECK(parameters.find("a").index == a.index);
}

TEST_CASE("parameters refuse a name twice, a late one, and one that is not there") {
  const Backend be = cpu_backend(1);
  ParameterSet parameters;
  parameters.add("a", {3}, init::constant(2));
  CHECK_THROWS_WITH(parameters.add("a", {3}, init::constant(2)),
                    "[parameters] two parameters are named 'a'");
  parameters.allocate(be, 1);
  CHECK_THROWS_WITH(parameters.add("late", {3}, init::constant(2)),
                    "[parameters] 'late' was added after allocation");
  CHECK_THROWS_WITH(parameters.find("b"), "[parameters] no parameter is named 'b'");
}

TEST_CASE("fan_in is uniform within one over the root of the inputs") {
  const std::vector<float> values = initial(init::fan_in(25), {100, 100});
  const auto [low, high] = std::ranges::minmax(values);
  CHECK((low >= -0.2F && low < -0.199F));
  CHECK((high <= 0.2F && high > 0.199F));
  double squares = 0;
  for (const float value : values) squares += value * value;
  CHECK(squares / 10000 == Approx(0.04 / 3).epsilon(0.03));
}

TEST_CASE("normal and uniform initialisers have their spread") {
  double squares = 0;
  for (const float value : initial(init::normal(0.02F), {10000})) squares += value * value;
  CHECK(std::sqrt(squares / 10000) == Approx(0.02).epsilon(0.03));
  const auto [low, high] = std::ranges::minmax(initial(init::uniform(-0.5F, 2), {10000}));
  CHECK((low >= -0.5F && low < -0.49F && high <= 2 && high > 1.99F));
}

TEST_CASE("orthogonal values are orthonormal along the shorter direction") {
  // Rows of (first dimension, all others) where they are fewer...
  CHECK(deviation(initial(init::orthogonal(), {5, 3, 7}), 5, 21, 21, 1) < 1e-6);
  CHECK(deviation(initial(init::orthogonal(), {1, 9}), 1, 9, 9, 1) < 1e-6);
  CHECK(deviation(initial(init::orthogonal(), {8, 8}), 8, 8, 8, 1) < 1e-6);
  // ...columns otherwise.
  CHECK(deviation(initial(init::orthogonal(), {24, 2, 3}), 6, 24, 1, 6) < 1e-6);
  CHECK(deviation(initial(init::orthogonal(), {9, 1}), 1, 9, 1, 1) < 1e-6);
}

TEST_CASE("orthogonal values have no preferred sign") {
  int positive = 0;
  const Backend be = cpu_backend(1);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    ParameterSet parameters;
    const Parameter p = parameters.add("p", {3, 4}, init::orthogonal());
    parameters.allocate(be, seed);
    positive += to_host(be, parameters.value(p))[0] > 0 ? 1 : 0;
  }
  CHECK((positive > 70 && positive < 130));
}

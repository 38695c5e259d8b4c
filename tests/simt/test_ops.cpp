#include "tests/catch.h"
#include "tests/guarded_memory.h"
#include "tests/op_cases.h"
#include "tests/simt/runner.h"

// Every op case on the CUDA kernels, run on the host.

using namespace primal;
using namespace primal::testing;

namespace {

/// Largest difference relative to the largest element of `expected`, or to `least` where that is
/// larger.
double difference_of(const std::vector<float>& a, const std::vector<float>& expected,
                     double least) {
  if (a.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = least;
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(double{expected[i]}));
    difference = std::max(difference, std::abs(double{a[i]} - expected[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

/// Checks a case against the reference and, for gradients, the CPU; returns the result.
OpResult check_case(const OpCase& c, Backend& cpu, Backend& other) {
  const OpResult expected = run_op(c, cpu);
  OpResult result = run_op(c, other);
  std::vector<Values> values;
  for (const OpInput& input : c.inputs) values.push_back(input.values);
  CHECK(error_of(result.output, c.reference(values)) <= c.tolerance);
  REQUIRE(result.gradients.size() == expected.gradients.size());
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    INFO("input " << i);
    CHECK(difference_of(result.gradients[i], expected.gradients[i], c.gradient_terms) <=
          c.gradient_tolerance);
  }
  return result;
}

}  // namespace

TEST_CASE("simt: every op on the CUDA kernels agrees with the CPU, in any thread order") {
  const auto report = std::make_shared<GuardedMemory::Report>();
  Backend cpu = cpu_backend(1);
  Backend host = simt::host_backend(std::make_unique<GuardedMemory>(report));
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    simt::set_order(simt::Order::ascending);
    const OpResult result = check_case(c, cpu, host);
    for (const simt::Order order : {simt::Order::descending, simt::Order::shuffled}) {
      simt::set_order(order);
      const OpResult again = run_op(c, host);
      CHECK(again.output == result.output);
      CHECK(again.gradients == result.gradients);
    }
    CHECK(report->violations == 0);
  }
  CHECK(report->live == 0);
}

TEST_CASE("simt: in bf16 every op stays within its bound, on the CPU and on the CUDA kernels") {
  const double bound = 0.02, gradient_bound = 0.05, least = 0.05;
  Backend exact = cpu_backend(1);
  Backend cpu = cpu_backend(2);
  Backend host = simt::host_backend(host_memory());
  simt::set_order(simt::Order::shuffled);
  for (OpCase& c : op_cases()) {
    INFO(c.name);
    const OpResult expected = run_op(c, exact);
    for (Backend* backend : {&cpu, &host}) {
      INFO((backend == &cpu ? "cpu" : "simt"));
      backend->exec.precision = Precision::bf16;
      const OpResult result = run_op(c, *backend);
      const Values reference(expected.output.begin(), expected.output.end());
      CHECK(error_of(result.output, reference) <= bound);
      for (size_t i = 0; i < result.gradients.size(); ++i) {
        INFO("input " << i);
        CHECK(difference_of(result.gradients[i], expected.gradients[i],
                            std::max(c.gradient_terms, least)) <= gradient_bound);
      }
    }
  }
}

TEST_CASE(
    "simt: heads wider than the tiles of blockwise attention are an error that says what to do") {
  Backend host = simt::host_backend(host_memory());
  const OpCase wide = cases::attention({1, 3, 1, 129, false, {}}, 0, ops::AttentionForm::blockwise);
  CHECK_THROWS_WITH(run_op(wide, host), ContainsSubstring("heads 129 wide: at most 128 on a GPU"));
  const OpCase same =
      cases::attention({1, 3, 1, 129, false, {}}, 0, ops::AttentionForm::materialized);
  Backend cpu = cpu_backend(1);
  check_case(same, cpu, host);
}

TEST_CASE("cuda: every op on the GPU agrees with the CPU, and repeats its bits") {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) {
    WARN("skipped: " << obstacle);
    return;
  }
  Backend cpu = cpu_backend(0);
  Backend gpu = cuda_backend();
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    const OpResult result = check_case(c, cpu, gpu);
    const OpResult again = run_op(c, gpu);
    CHECK(again.output == result.output);
    CHECK(again.gradients == result.gradients);
  }
}

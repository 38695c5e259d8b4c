#include <bit>
#include <fstream>
#include <regex>
#include <set>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/guarded_memory.h"
#include "tests/op_cases.h"

using namespace primal;
using namespace primal::testing;

namespace {

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

bool finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

std::vector<Values> values_of(const OpCase& c) {
  std::vector<Values> values;
  for (const OpInput& input : c.inputs) values.push_back(input.values);
  return values;
}

/// d<weights, reference>/d(h) at h = 0 along `direction` of input `at`, by central differences.
double derivative(const OpCase& c, std::vector<Values>& values, size_t at, const Values& direction,
                  const Values& weights, double step) {
  const Values start = values[at];
  const auto moved = [&](double h) {
    for (size_t i = 0; i < start.size(); ++i) {
      if (direction[i] != 0) values[at][i] = start[i] + h * direction[i];
    }
    return c.reference(values);
  };
  const Values ahead = moved(step);
  const Values behind = moved(-step);
  values[at] = start;
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * (ahead[i] - behind[i]);
  return sum / (2 * step);
}

/// The elements to check: all, or first, last and an even spread of them.
std::vector<int64_t> sampled(int64_t count, int64_t samples) {
  std::set<int64_t> at;
  for (int64_t i = 0; i < std::min(count, samples); ++i) {
    at.insert(count <= samples ? i : i * (count - 1) / (samples - 1));
  }
  return {at.begin(), at.end()};
}

}  // namespace

TEST_CASE("every op declared in core/ops.h has cases") {
  std::ifstream file(PRIMAL_SOURCE_DIR "/core/ops.h");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(!text.empty());
  std::set<std::string> covered;
  std::set<std::string> names;
  for (const OpCase& c : op_cases()) {
    covered.insert(c.name.substr(0, c.name.find(':')));
    INFO(c.name);
    CHECK(names.insert(c.name).second);
  }
  const std::regex declaration(R"(\b(?:Var|CrossEntropy) (\w+)\(Context& ctx)");
  int ops = 0;
  for (std::sregex_iterator op(text.begin(), text.end(), declaration), end; op != end;
       ++op, ++ops) {
    INFO((*op)[1].str());
    CHECK(covered.count((*op)[1].str()) == 1);
  }
  CHECK(ops >= 18);
}

TEST_CASE("a token that the vocabulary has not is an error with its place") {
  const Backend be = cpu_backend(1);
  const auto make = [&](std::vector<int32_t> ids, const Shape& shape) {
    ops::Tokens(be, ids, shape, 5);
  };
  CHECK_THROWS_WITH(make({0, 4, 5}, {3}), "[embedding] token 2 is 5, the vocabulary has 0 to 4");
  CHECK_THROWS_WITH(make({0, -1}, {2}), "[embedding] token 1 is -1, the vocabulary has 0 to 4");
  CHECK_THROWS_WITH(make({0, 1, 2}, {2, 2}), "[embedding] 3 tokens do not fill (2, 2)");
}

TEST_CASE("every op's values agree with a double precision reference and stay within bounds") {
  const auto report = std::make_shared<GuardedMemory::Report>();
  Backend be = guarded_backend(1, report);
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    const int64_t before = report->violations;
    const OpResult result = run_op(c, be);
    const Values expected = c.reference(values_of(c));
    CHECK(std::ssize(result.output) == result.shape.count());
    CHECK(error_of(result.output, expected) <= c.tolerance);
    CHECK(report->violations == before);
    CHECK(report->live == 0);
  }
  CHECK(report->blocks > 1000);
}

TEST_CASE("every op's gradients agree with finite differences of a double precision reference") {
  const auto report = std::make_shared<GuardedMemory::Report>();
  Backend be = guarded_backend(1, report);
  for (const OpCase& c : op_cases()) {
    if (!c.differentiable) continue;
    INFO(c.name);
    const OpResult result = run_op(c, be);
    const Values weights = output_weights(c, std::ssize(result.output));
    std::vector<Values> values = values_of(c);
    for (size_t at = 0; at < values.size(); ++at) {
      INFO("input " << at);
      const std::vector<float>& gradient = result.gradients[at];
      const auto count = static_cast<int64_t>(gradient.size());
      CHECK(finite(gradient));
      if (count == 0 || c.gradient_samples == 0) continue;
      double largest = std::max(c.gradient_terms, largest_of(gradient));
      double difference = 0;
      Values direction(count, 0.0);
      for (const int64_t i : sampled(count, c.gradient_samples)) {
        direction[i] = 1;
        const double expected = derivative(c, values, at, direction, weights, c.step);
        direction[i] = 0;
        largest = std::max(largest, std::abs(expected));
        difference = std::max(difference, std::abs(expected - gradient[i]));
      }
      CHECK(difference / largest <= c.gradient_tolerance);
      // All elements at once, along random signs.
      RandomStream random(7, hash_name(c.name));
      double along = 0;
      for (int64_t i = 0; i < count; ++i) {
        direction[i] = random.bits() % 2 == 0 ? 1 : -1;
        along += direction[i] * gradient[i];
      }
      const double root = std::sqrt(static_cast<double>(count));
      const double expected = derivative(c, values, at, direction, weights, c.step / root);
      CHECK(std::abs(expected - along) / (root * largest) <= c.gradient_tolerance);
    }
  }
  CHECK(report->violations == 0);
}

TEST_CASE("every op adds its gradients to those that are there") {
  const auto report = std::make_shared<GuardedMemory::Report>();
  Backend be = guarded_backend(1, report);
  for (const OpCase& c : op_cases()) {
    if (!c.differentiable) continue;
    INFO(c.name);
    const OpResult alone = run_op(c, be);
    std::vector<Values> others;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      others.push_back(
          normal_values(std::ssize(c.inputs[i].values), c.name + " other " + std::to_string(i)));
    }
    const OpResult both = run_op(c, be, &others);
    for (size_t i = 0; i < others.size(); ++i) {
      INFO("input " << i);
      Values expected = others[i];
      for (size_t j = 0; j < expected.size(); ++j) expected[j] += alone.gradients[i][j];
      CHECK(error_of(both.gradients[i], expected) <= 1e-6);
    }
  }
  CHECK(report->violations == 0);
}

TEST_CASE("every op gives the same bits with one, two, three and four threads") {
  Backend one = cpu_backend(1);
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::ranges::equal(a, b, [](float x, float y) {
      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    });
  };
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    const OpResult expected = run_op(c, one);
    for (const int threads : {2, 3, 4}) {
      INFO(threads << " threads");
      Backend be = cpu_backend(threads);
      const OpResult result = run_op(c, be);
      CHECK(same(expected.output, result.output));
      REQUIRE(expected.gradients.size() == result.gradients.size());
      for (size_t i = 0; i < result.gradients.size(); ++i) {
        INFO("gradient of input " << i);
        CHECK(same(expected.gradients[i], result.gradients[i]));
      }
    }
  }
}

TEST_CASE("blockwise and materialized attention drop the same probabilities") {
  Backend be = cpu_backend(2);
  const reference::AttentionShape shape{2, 661, 2, 4, true, {661, 523}};
  const OpCase block = cases::attention(shape, 0.3, ops::AttentionForm::blockwise);
  OpCase whole = cases::attention(shape, 0.3, ops::AttentionForm::materialized);
  whole.inputs = block.inputs;
  const OpResult a = run_op(block, be);
  const OpResult b = run_op(whole, be);
  CHECK(error_of(a.output, {b.output.begin(), b.output.end()}) <= 1e-6);
}

TEST_CASE("attention drops other probabilities at another step") {
  Backend be = cpu_backend(2);
  const OpCase c = cases::attention({1, 37, 2, 4, false, {}}, 0.3, ops::AttentionForm::blockwise);
  const auto output = [&](uint64_t step) {
    ParameterSet none;
    Tape tape(be);
    Context ctx(be, none, tape, Rng(1, step));
    OpOperands operands;
    for (const OpInput& input : c.inputs) {
      operands.inputs.push_back({to_device(be, input.shape, input.values)});
    }
    return to_host(be, c.op(ctx, operands).value);
  };
  CHECK(output(1) == output(1));
  CHECK(output(1) != output(2));
}

TEST_CASE("GELU is accurate at each value by itself, far into its tails") {
  Backend be = cpu_backend(1);
  const OpCase c = cases::extreme_gelu();
  const OpResult result = run_op(c, be);
  const Values expected = c.reference(values_of(c));
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("gelu(" << c.inputs[0].values[i] << ")");
    CHECK(std::abs(result.output[i] - expected[i]) <= 4e-7 * std::max(1.0, std::abs(expected[i])));
  }
  const Values weights = output_weights(c, std::ssize(expected));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double x = c.inputs[0].values[i];
    INFO("gelu'(" << x << ")");
    const double slope = reference::gelu_slope(x);
    CHECK(std::abs(result.gradients[0][i] - weights[i] * slope) <= 1e-6 * std::abs(weights[i]));
  }
}

TEST_CASE("GELU deviates from the exact one by at most 3e-7 between -10 and 10") {
  Backend be = cpu_backend(1);
  OpCase c = cases::activation({200001}, Activation::gelu, 0);
  for (int i = 0; i <= 200000; ++i) c.inputs[0].values[i] = static_cast<float>((i - 100000) * 1e-4);
  const OpResult result = run_op(c, be);
  const Values weights = output_weights(c, 200001);
  double worst = 0;
  double worst_slope = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double x = c.inputs[0].values[i];
    const double expected = reference::gelu(x);
    worst = std::max(worst, std::abs(result.output[i] - expected) / std::max(1.0, std::abs(x)));
    if (std::abs(weights[i]) > 0.1) {
      const double slope =
          0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) * 0.3989422804014327;
      worst_slope = std::max(worst_slope, std::abs(result.gradients[0][i] / weights[i] - slope));
    }
  }
  CHECK(worst <= 3e-7);
  CHECK(worst_slope <= 5e-7);
}

TEST_CASE("rows of norm zero normalise to zero, and their gradient is finite") {
  Backend be = cpu_backend(1);
  OpCase c = cases::normalize_heads({1, 4, 6}, 2);
  Values& x = c.inputs[0].values;
  std::fill(x.begin(), x.begin() + 3, 0.0);                                   // norm 0
  for (int i = 3; i < 6; ++i) x[i] = static_cast<float>(1e-14);               // below the floor
  for (int i = 6; i < 9; ++i) x[i] = static_cast<float>(1e-6 * (i - 7.5));    // small
  for (int i = 9; i < 12; ++i) x[i] = static_cast<float>(1e12 * (i - 10.3));  // large
  const OpResult result = run_op(c, be);
  CHECK(error_of(result.output, c.reference({x})) <= 1e-6);
  for (int i = 0; i < 3; ++i) CHECK(result.output[i] == 0.0F);
  for (int i = 3; i < 6; ++i) CHECK(result.output[i] == Approx(0.01));
  // Below the floor the divisor is constant: dx = dy / 1e-12.
  const Values weights = output_weights(c, 24);
  for (int i = 0; i < 6; ++i) CHECK(result.gradients[0][i] == Approx(weights[i] * 1e12));
  CHECK(finite(result.gradients[0]));
}

TEST_CASE("layer norm of constant rows and of rows far from zero is finite and accurate") {
  Backend be = cpu_backend(1);
  OpCase constant = cases::layer_norm({3, 37}, 1e-5);
  std::fill(constant.inputs[0].values.begin(), constant.inputs[0].values.end(), 3.25);
  const OpResult flat = run_op(constant, be);
  CHECK(error_of(flat.output, constant.reference(values_of(constant))) <= 1e-6);
  CHECK(finite(flat.gradients[0]));
  // 1000 standard deviations from zero a float holds the deviation to 6e-5.
  const OpCase far = cases::layer_norm({3, 37}, 1e-5, 1000);
  CHECK(error_of(run_op(far, be).output, far.reference(values_of(far))) <= 6e-5);
}

TEST_CASE("sampled rows are evenly spaced from the first to the last") {
  const auto all = [](int64_t m, int64_t length) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < m; ++i) rows.push_back(ops::sample_index(i, m, length));
    return rows;
  };
  CHECK(all(1, 29) == std::vector<int64_t>{0});
  CHECK(all(2, 29) == std::vector<int64_t>{0, 28});
  CHECK(all(5, 5) == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(all(4, 2) == std::vector<int64_t>{0, 0, 0, 1});
  CHECK(all(3, 1) == std::vector<int64_t>{0, 0, 0});
  CHECK(all(3, 0) == std::vector<int64_t>{0, 0, 0});
  // Groups of four count on from their truncated first row, so that the last row may be missed...
  CHECK(all(8, 12) == std::vector<int64_t>{0, 1, 3, 4, 6, 7, 9, 10});
  // ...and the last m % 8 rows stand alone.
  CHECK(all(9, 12) == std::vector<int64_t>{0, 1, 2, 4, 5, 6, 7, 9, 11});
  for (const int64_t length : {2, 29, 405, 1751, 4096}) {
    for (const int64_t m : {2, 3, 100, 150, 200, 300}) {
      const std::vector<int64_t> rows = all(m, length);
      CHECK(rows.front() == 0);
      CHECK(rows.back() >= length - (m % 8 == 0 ? 2 : 1));
      CHECK(rows.back() < length);
      CHECK(std::ranges::is_sorted(rows));
    }
  }
}

TEST_CASE("the number of correct rows counts each row's largest logit") {
  Backend be = cpu_backend(1);
  ParameterSet none;
  Context ctx(be, none);
  const Var logits{to_device(be, {4, 3}, {1, 2, 0, 5, 1, 1, -1, -2, -3, 0, 0, 7})};
  const ops::CrossEntropy result =
      ops::cross_entropy(ctx, logits, to_device(be, std::vector<int32_t>{1, 0, 2, 2}));
  CHECK(to_host(be, result.correct) == std::vector<float>{3});
}

TEST_CASE("scores are computed again for the backward instead of kept") {
  Backend be = cpu_backend(1);
  ParameterSet none;
  const Shape shapes[] = {{2, 64, 8}, {2, 2, 4, 8}, {16, 16}, {2, 8}};  // g, W, map, lambda
  const auto value = [&](int i) { return normal_values(shapes[i].count(), "scores"); };
  const Tensor dy = to_device(be, {2, 64, 16}, normal_values(2048, "slope"));
  const auto gradients = [&](bool keep) {
    Tape tape(be);
    Context ctx(be, none, tape, Rng(1, 0));
    std::vector<Tensor> slopes;
    std::vector<Var> in;
    for (int i = 0; i < 4; ++i) {
      slopes.push_back(be.empty(shapes[i]));
      in.push_back({to_device(be, shapes[i], value(i)), tape.leaf(slopes[i])});
    }
    const int64_t before = be.memory->figures().allocated;
    const auto forward = [&] {
      Var scores = ops::project_scores(ctx, {{in[0], in[1]}});
      if (keep) scores.recomputed = nullptr;
      const Var y = ops::linear(ctx, scores, in[2], {});
      return std::pair{y, ops::ksvd_loss(ctx, {scores, scores}, in[3], in[1], in[1], {})};
    };
    const auto [y, loss] = forward();
    const int64_t held = be.memory->figures().allocated - before;
    const int64_t scores = 2 * 64 * 16 * int64_t{sizeof(float)};
    CHECK(held - scores < (keep ? 2 * scores : scores));  // y and the loss's few numbers
    CHECK(held - scores >= (keep ? scores : 0));
    const Var all = tape.record(be.empty({1}), [&, y = y, loss = loss](Tape& t, const Tensor& d) {
      t.give(y, dy);
      t.give(loss, d);
    });
    tape.backward(all);
    CHECK(be.memory->figures().allocated - before <= 2 * scores);
    std::vector<std::vector<float>> result;
    for (const Tensor& slope : slopes) result.push_back(to_host(be, slope));
    return result;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("in evaluation nothing is dropped") {
  Backend be = cpu_backend(1);
  ParameterSet none;
  Context ctx(be, none);
  const Values numbers = normal_values(300, "evaluation");
  const std::vector<float> floats(numbers.begin(), numbers.end());
  const Var x{to_device(be, {300}, numbers)};
  const Var zero{to_device(be, {300}, Values(300, 0.0))};
  CHECK(to_host(be, ops::dropout(ctx, x, 0.5).value) == floats);
  CHECK(to_host(be, ops::add_dropout(ctx, zero, x, 0.5).value) == floats);
}

TEST_CASE("ops refuse operands that do not fit and say what they expected") {
  Backend be = cpu_backend(1);
  ParameterSet none;
  Context ctx(be, none);
  const auto zeros = [&](Shape shape) {
    return Var{to_device(be, shape, Values(shape.count(), 0.0))};
  };
  const auto integers = [&](std::vector<int32_t> values) { return to_device(be, values); };
  CHECK_THROWS_WITH(ops::linear(ctx, zeros({2, 3}), zeros({5, 4}), Var()),
                    "[linear] input must be (..., 4), got (2, 3)");
  CHECK_THROWS_WITH(ops::linear(ctx, zeros({2, 4}), zeros({5, 4}), zeros({4})),
                    "[linear] bias must be (5), got (4)");
  CHECK_THROWS_WITH(ops::add_position(ctx, zeros({1, 5, 2}), zeros({4, 2}), 1),
                    "[add_position] position must be (at least 5, 2), got (4, 2)");
  for (const double p : {-0.1, 1.0, std::nan("")}) {
    CHECK_THROWS_WITH(ops::dropout(ctx, zeros({2}), p),
                      ContainsSubstring("[dropout] dropout must be in [0, 1), got"));
  }
  CHECK_THROWS_WITH(
      ops::add_dropout(ctx, zeros({2}), zeros({3}), 0),
      ContainsSubstring("[add_dropout]") && ContainsSubstring("must be (2), got (3)"));
  CHECK_THROWS_WITH(ops::layer_norm(ctx, zeros({2, 3}), zeros({2}), zeros({3}), 1e-5),
                    "[layer_norm] weight must be (3), got (2)");
  CHECK_THROWS_WITH(ops::reshape(ctx, zeros({2, 3}), {7}),
                    ContainsSubstring("[reshape] (2, 3) has 6 elements, (7) has 7"));
  CHECK_THROWS_WITH(ops::matmul(ctx, zeros({2, 3}), zeros({4, 5})),
                    "[matmul] right must be (3, 5), got (4, 5)");
  CHECK_THROWS_WITH(ops::repeat(ctx, zeros({2}), 0),
                    "[repeat] the number of copies must be at least 1, got 0");
  CHECK_THROWS_WITH(ops::mask_positions(ctx, zeros({1, 3, 2}), integers({1}), zeros({3})),
                    "[mask_positions] bias must be (2), got (3)");
  CHECK_THROWS_WITH(ops::mask_positions(ctx, zeros({2, 3, 1}), integers({1})),
                    "[mask_positions] lengths must be (2), got (1)");
  const Tensor one_length = integers({1});
  CHECK_THROWS_WITH(ops::mean_positions(ctx, zeros({2, 3, 1}), &one_length, true),
                    "[mean_positions] lengths must be (2), got (1)");
  CHECK_THROWS_WITH(ops::pair_features(ctx, zeros({3, 2})),
                    "[pair_features] input must have rows in twos, got (3, 2)");
  ops::AttentionOptions options;
  options.heads = 3;
  CHECK_THROWS_WITH(
      ops::attention(ctx, zeros({1, 2, 4}), zeros({1, 2, 4}), zeros({1, 2, 4}), options),
      "[attention] width 4 cannot be split into 3 heads");
  CHECK_THROWS_WITH(
      ops::attention(ctx, zeros({1, 2, 3}), zeros({1, 3, 3}), zeros({1, 2, 3}), options),
      "[attention] keys must be (1, 2, 3), got (1, 3, 3)");
  const Tensor too_many = integers({1, 1});
  options.lengths = &too_many;
  CHECK_THROWS_WITH(
      ops::attention(ctx, zeros({1, 2, 3}), zeros({1, 2, 3}), zeros({1, 2, 3}), options),
      "[attention] lengths must be (1), got (2)");
  CHECK_THROWS_WITH(ops::normalize_heads(ctx, zeros({1, 2, 4}), 3),
                    "[normalize_heads] width 4 cannot be split into 3 heads");
  CHECK_THROWS_WITH(ops::running_mean(ctx, zeros({2, 4})),
                    "[running_mean] input must have 3 dimensions, got (2, 4)");
  CHECK_THROWS_WITH(ops::sample_rows(ctx, zeros({1, 2, 4}), 0, {}),
                    "[sample_rows] at least one row must be sampled, got 0");
  const std::vector<int32_t> long_one{3};
  CHECK_THROWS_WITH(ops::sample_rows(ctx, zeros({1, 2, 4}), 2, long_one),
                    "[sample_rows] lengths must be from 0 to 2, got 3");
  CHECK_THROWS_WITH(ops::sample_rows(ctx, zeros({1, 0, 4}), 2, {}),
                    "[sample_rows] rows of no positions cannot be sampled: (1, 0, 4)");
  CHECK_THROWS_WITH(ops::data_projection(ctx, zeros({1, 2, 4}), zeros({2, 3, 1})),
                    "[data_projection] projection must be (2, 2, 1), got (2, 3, 1)");
  CHECK_THROWS_WITH(ops::project_scores(ctx, {{zeros({2, 2, 4}), zeros({3, 2, 2, 1})}}),
                    ContainsSubstring("[project_scores] projection must be (2, 2, 2, 1)"));
  CHECK_THROWS_WITH(ops::project_scores(ctx, {{zeros({2, 2, 4}), zeros({2, 2, 1})},
                                              {zeros({2, 3, 4}), zeros({2, 2, 1})}}),
                    "[project_scores] input must be (2, 2, 4), got (2, 3, 4)");
  CHECK_THROWS_WITH(ops::ksvd_loss(ctx, {zeros({1, 3, 16})}, zeros({2, 3}), zeros({2, 5, 4}),
                                   zeros({2, 5, 4}), {}),
                    "[ksvd_loss] scores must be (1, 3, 12), got (1, 3, 16)");
  CHECK_THROWS_WITH(ops::ksvd_loss(ctx, {zeros({1, 3, 16})}, zeros({2, 4}), zeros({2, 5, 3}),
                                   zeros({2, 5, 3}), {}),
                    "[ksvd_loss] projection must be (2, 5, 4), got (2, 5, 3)");
  CHECK_THROWS_WITH(ops::ksvd_loss(ctx, {zeros({1, 3, 8}), zeros({1, 3, 10})}, zeros({2, 4}),
                                   zeros({2, 5, 4}), zeros({2, 5, 4}), {}),
                    "[ksvd_loss] left scores must be (1, 3, 8), got (1, 3, 10)");
  CHECK_THROWS_WITH(ops::ksvd_loss(ctx, {}, zeros({2, 4}), zeros({2, 5, 4}), zeros({2, 5, 4}), {}),
                    "[ksvd_loss] scores must be one value or two, got 0");
  CHECK_THROWS_WITH(ops::ksvd_loss(ctx, {zeros({0, 3, 16})}, zeros({2, 4}), zeros({2, 5, 4}),
                                   zeros({2, 5, 4}), {}),
                    "[ksvd_loss] got no samples: (0, 3, 16)");
  CHECK_THROWS_WITH(ops::cross_entropy(ctx, zeros({0, 4}), integers({})),
                    "[cross_entropy] got no logits: (0, 4)");
  CHECK_THROWS_WITH(ops::cross_entropy(ctx, zeros({2, 4}), integers({1})),
                    "[cross_entropy] labels must be (2), got (1)");
  CHECK_THROWS_WITH(
      ops::add_scaled(ctx, zeros({2}), zeros({2, 1}), 1),
      ContainsSubstring("[add_scaled]") && ContainsSubstring("must be (2), got (2, 1)"));
}

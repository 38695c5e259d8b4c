#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "core/error.h"
#include "core/metrics.h"
#include "core/ops.h"
#include "core/task.h"

namespace primal {

/// A linear classifier with dropout on random points, small enough to train in no time.
class FakeTask final : public Task {
 public:
  static constexpr int64_t kFeatures = 4, kClasses = 3;

  FakeTask(Backend& backend, int64_t cases, std::vector<std::string> splits, uint64_t seed)
      : backend_(backend), splits_(std::move(splits)) {
    RandomStream random(seed, 99);
    for (int64_t i = 0; i < cases; ++i) {
      for (int64_t j = 0; j < kFeatures; ++j) x_.push_back(random.normal());
      labels_.push_back(static_cast<int32_t>(x_[i * kFeatures] > 0) +
                        static_cast<int32_t>(x_[i * kFeatures + 1] > 0));
    }
    weight_ = parameters_.add("linear.weight", {kClasses, kFeatures}, init::fan_in(kFeatures));
    bias_ = parameters_.add("linear.bias", {kClasses}, init::constant(0));
    parameters_.allocate(backend, seed);
  }

  ParameterSet& parameters() override { return parameters_; }
  int64_t train_size() const override { return std::ssize(labels_); }
  BatchLoss train_loss(Context& ctx, std::span<const int64_t> examples) override {
    if (before_step) before_step();
    visited.insert(visited.end(), examples.begin(), examples.end());
    const Batch batch = gather(examples);
    const auto result = ops::cross_entropy(ctx, logits(ctx, batch), batch.labels);
    BatchLoss loss;
    loss.total = result.loss;
    loss.task_loss = result.loss.value;
    loss.correct = result.correct;
    loss.count = std::ssize(examples);
    return loss;
  }

  std::vector<std::string> evaluation_splits() const override { return splits_; }
  nlohmann::json evaluate(Backend& backend, std::string_view,
                          const EvaluateOptions& options) override {
    ClassificationMetrics metrics(kClasses);
    for (int64_t begin = 0; begin < train_size(); begin += options.batch) {
      if (options.stop && options.stop()) throw Interrupted{};
      std::vector<int64_t> examples;
      for (int64_t i = begin; i < std::min(train_size(), begin + options.batch); ++i) {
        examples.push_back(i);
      }
      Context ctx(backend, parameters_);
      const Batch batch = gather(examples);
      const auto result = ops::cross_entropy(ctx, logits(ctx, batch), batch.labels);
      const auto all = result.probabilities.floats();
      for (size_t i = 0; i < examples.size(); ++i) {
        const auto row = all.subspan(i * kClasses, kClasses);
        const int32_t label = labels_[static_cast<size_t>(examples[i])];
        metrics.add(label, row, -std::log(static_cast<double>(row[label])));
      }
    }
    return metrics.to_json(std::vector<std::string>{"a", "b", "c"});
  }
  std::string metric() const override { return "accuracy"; }
  nlohmann::json state() const override { return {{"scale", 1.0}}; }
  nlohmann::json facts() const override { return {{"cases", train_size()}}; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

  std::vector<int64_t> visited;  ///< examples in the order they were trained on
  double dropout = 0.1;
  std::function<void()> before_step;  ///< called at the start of each training step

 private:
  struct Batch {
    Tensor x, labels;
  };

  Batch gather(std::span<const int64_t> examples) {
    const auto n = std::ssize(examples);
    Batch batch{backend_.empty({n, kFeatures}), backend_.empty({n}, DType::i32)};
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < kFeatures; ++j) {
        batch.x.floats()[i * kFeatures + j] = x_[examples[i] * kFeatures + j];
      }
      batch.labels.data<int32_t>()[i] = labels_[static_cast<size_t>(examples[i])];
    }
    return batch;
  }
  Var logits(Context& ctx, const Batch& batch) {
    const Var x = ops::dropout(ctx, {batch.x, kNoNode}, dropout);
    return ops::linear(ctx, x, ctx.use(weight_), ctx.use(bias_));
  }

  Backend& backend_;
  std::vector<std::string> splits_;
  std::vector<float> x_;
  std::vector<int32_t> labels_;
  ParameterSet parameters_;
  Parameter weight_, bias_;
  std::vector<std::string> warnings_;
};

class FakeConfig final : public TaskConfig {
 public:
  std::string_view kind() const override { return "fake"; }
  void fields(Fields& f) override { f.field("cases", cases, at_least(1), "points"); }
  std::unique_ptr<Task> make(Backend& backend, const TaskSetup& setup) const override {
    return std::make_unique<FakeTask>(backend, cases, std::vector<std::string>{"test"}, setup.seed);
  }
  std::vector<ForeignName> pytorch_names(const Task&) const override { return {}; }

  int64_t cases = 10;
};

}  // namespace primal

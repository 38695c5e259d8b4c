#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/task.h"

namespace primal {

/// What every task that gives each example one of some classes shares.

/// Mean cross entropy of logits (B, classes) + eta * mean over primal layers of the KSVD losses
/// that the forward pass left in ctx.aux. `labels` (B) int32.
BatchLoss classification_loss(Context& ctx, const Var& logits, const Tensor& labels, double eta);

/// The examples of a split to score.
struct ScoredSplit {
  struct Batch {
    Var logits;
    Tensor labels;                   ///< (B) int32
    std::vector<int32_t> on_host{};  ///< the same
  };

  std::string name;  ///< for messages: "uea: test split"
  int64_t size = 0;
  const std::vector<std::string>& classes;
  std::function<Batch(Context&, std::span<const int64_t> examples)> forward;
  std::function<std::string(int64_t example)> where;  ///< for messages: "line 7"
};

/// Accuracy and the rest of ClassificationMetrics::to_json(), and the mean KSVD loss where a layer
/// has one. Error when an output is not a number.
nlohmann::json score_classifier(Backend& backend, ParameterSet& parameters,
                                const ScoredSplit& split, const EvaluateOptions& options);

}  // namespace primal

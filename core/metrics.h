#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace primal {

/// Area under the ROC curve of `scores` for the positive class: the part of (positive, negative)
/// pairs in which the positive has the higher score, ties counting one half. NaN when either class
/// is absent or a score is NaN.
double auroc(std::span<const double> scores, const std::vector<bool>& positive);

/// Scores of a classifier, gathered example by example. Sums are taken in double precision in the
/// order of the examples, so that the same examples give the same digits.
class ClassificationMetrics {
 public:
  explicit ClassificationMetrics(int64_t classes);

  /// One example: its label, its probability per class (`classes` of them) and its loss. The
  /// prediction is the first of the largest probabilities; it is returned.
  int64_t add(int64_t label, std::span<const float> probabilities, double loss);

  int64_t count() const { return count_; }
  /// Part of the examples that were predicted right; 0 when there are none.
  double accuracy() const;
  double loss() const;
  /// Examples of class `label` that were predicted as `prediction`.
  int64_t confusion(int64_t label, int64_t prediction) const;

  /// {"accuracy", "loss", "count", "classes": [names], "per_class": [{"class", "precision",
  /// "recall", "count", "predicted"}], "confusion": [row per label: [column per prediction]],
  /// "auroc" (two classes; the second is the positive one)}. A ratio without examples is null.
  nlohmann::json to_json(std::span<const std::string> class_names) const;

 private:
  int64_t classes_;
  int64_t count_ = 0;
  double loss_sum_ = 0;
  std::vector<int64_t> confusion_;  // (classes, classes): label, prediction
  std::vector<double> scores_;      // probability of class 1, of two
  std::vector<bool> positive_;
};

}  // namespace primal

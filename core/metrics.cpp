#include "core/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace primal {
namespace {

nlohmann::json ratio(int64_t part, int64_t whole) {
  if (whole == 0) return nullptr;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double auroc(std::span<const double> scores, const std::vector<bool>& positive) {
  // NaN has no rank.
  if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return scores[i]; });
  // Twice the rank sum of the positives (Mann-Whitney U), which stays whole with ties.
  int64_t positives = 0;
  int64_t twice_ranks = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    int64_t tied = 0;
    while (end < order.size() && scores[order[end]] == scores[order[begin]]) {
      tied += positive[order[end++]] ? 1 : 0;
    }
    twice_ranks += tied * static_cast<int64_t>(begin + end + 1);
    positives += tied;
    begin = end;
  }
  const auto negatives = static_cast<int64_t>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  const int64_t twice_wins = twice_ranks - positives * (positives + 1);
  return static_cast<double>(twice_wins) /
         (2 * static_cast<double>(positives) * static_cast<double>(negatives));
}

ClassificationMetrics::ClassificationMetrics(int64_t classes)
    : classes_(classes), confusion_(static_cast<size_t>(classes * classes), 0) {
  if (classes < 1) fail("metrics: at least one class is needed, got {}", classes);
}

int64_t ClassificationMetrics::add(int64_t label, std::span<const float> probabilities,
                                   double loss) {
  if (label < 0 || label >= classes_) {
    fail("metrics: label {} is not from 0 to {}", label, classes_ - 1);
  }
  if (static_cast<int64_t>(probabilities.size()) != classes_) {
    fail("metrics: {} probabilities, expected {}", probabilities.size(), classes_);
  }
  const int64_t prediction = std::ranges::max_element(probabilities) - probabilities.begin();
  ++confusion_[static_cast<size_t>(label * classes_ + prediction)];
  ++count_;
  loss_sum_ += loss;
  if (classes_ == 2) {
    scores_.push_back(probabilities[1]);
    positive_.push_back(label == 1);
  }
  return prediction;
}

double ClassificationMetrics::accuracy() const {
  int64_t right = 0;
  for (int64_t c = 0; c < classes_; ++c) right += confusion(c, c);
  return count_ == 0 ? 0 : static_cast<double>(right) / static_cast<double>(count_);
}

double ClassificationMetrics::loss() const {
  return count_ == 0 ? 0 : loss_sum_ / static_cast<double>(count_);
}

int64_t ClassificationMetrics::confusion(int64_t label, int64_t prediction) const {
  return confusion_.at(static_cast<size_t>(label * classes_ + prediction));
}

nlohmann::json ClassificationMetrics::to_json(std::span<const std::string> class_names) const {
  if (static_cast<int64_t>(class_names.size()) != classes_) {
    fail("metrics: {} class names, expected {}", class_names.size(), classes_);
  }
  using nlohmann::json;
  json per_class = json::array();
  json table = json::array();
  for (int64_t c = 0; c < classes_; ++c) {
    int64_t labelled = 0;
    int64_t predicted = 0;
    json row = json::array();
    for (int64_t other = 0; other < classes_; ++other) {
      labelled += confusion(c, other);
      predicted += confusion(other, c);
      row.push_back(confusion(c, other));
    }
    per_class.push_back({{"class", class_names[static_cast<size_t>(c)]},
                         {"precision", ratio(confusion(c, c), predicted)},
                         {"recall", ratio(confusion(c, c), labelled)},
                         {"count", labelled},
                         {"predicted", predicted}});
    table.push_back(std::move(row));
  }
  json figures{{"accuracy", accuracy()},
               {"loss", loss()},
               {"count", count_},
               {"classes", class_names},
               {"per_class", std::move(per_class)},
               {"confusion", std::move(table)}};
  if (classes_ == 2) {
    const double area = auroc(scores_, positive_);
    figures["auroc"] = std::isnan(area) ? json(nullptr) : json(area);
  }
  return figures;
}

}  // namespace primal

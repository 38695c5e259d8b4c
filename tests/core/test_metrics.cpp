#include "core/metrics.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/rng.h"
#include "tests/catch.h"

using namespace primal;

TEST_CASE("accuracy, precision, recall and confusion count every case once") {
  ClassificationMetrics metrics(3);
  const auto add = [&](int64_t label, std::vector<float> p) { return metrics.add(label, p, 0.5); };
  REQUIRE(add(0, {0.8F, 0.1F, 0.1F}) == 0);
  REQUIRE(add(0, {0.1F, 0.8F, 0.1F}) == 1);
  REQUIRE(add(1, {0.1F, 0.8F, 0.1F}) == 1);
  REQUIRE(add(1, {0.2F, 0.6F, 0.2F}) == 1);
  const std::vector<std::string> names{"a", "b", "never"};
  const auto json = metrics.to_json(names);
  REQUIRE(json["count"] == 4);
  REQUIRE(json["accuracy"] == 0.75);
  REQUIRE(json["loss"] == 0.5);
  REQUIRE(json["confusion"] == nlohmann::json::parse("[[1,1,0],[0,2,0],[0,0,0]]"));
  REQUIRE(json["per_class"][0]["precision"] == 1.0);
  REQUIRE(json["per_class"][0]["recall"] == 0.5);
  REQUIRE(json["per_class"][1]["precision"].get<double>() == Approx(2.0 / 3));
  REQUIRE(json["per_class"][1]["recall"] == 1.0);
  // A ratio over no case is no number, not zero.
  REQUIRE(json["per_class"][2]["precision"].is_null());
  REQUIRE(json["per_class"][2]["recall"].is_null());
  REQUIRE(json["classes"] == names);
  REQUIRE_FALSE(json.contains("auroc"));
}

TEST_CASE("of equal probabilities the first class is predicted") {
  ClassificationMetrics metrics(3);
  REQUIRE(metrics.add(2, std::vector<float>{0.2F, 0.4F, 0.4F}, 0) == 1);
}

TEST_CASE("AUROC is the part of pairs in the right order, ties counting one half") {
  const auto pairs = [](const std::vector<double>& scores, const std::vector<bool>& positive) {
    double wins = 0, all = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      for (size_t j = 0; j < scores.size(); ++j) {
        if (!positive[i] || positive[j]) continue;
        all += 1;
        wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
    }
    return wins / all;
  };
  RandomStream random(1, 2);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> scores;
    std::vector<bool> positive;
    for (int i = 0; i < 30; ++i) {
      scores.push_back(static_cast<double>(random.below(8)) / 8);  // many ties
      positive.push_back(random.below(3) == 0);
    }
    positive[0] = true;
    positive[1] = false;
    REQUIRE(auroc(scores, positive) == Approx(pairs(scores, positive)));
  }
  REQUIRE(auroc(std::vector<double>{0.1, 0.2, 0.3}, {false, false, true}) == 1.0);
  REQUIRE(auroc(std::vector<double>{0.1, 0.2, 0.3}, {true, false, false}) == 0.0);
  REQUIRE(auroc(std::vector<double>{1, 1, 1}, {true, false, false}) == 0.5);
  REQUIRE(std::isnan(auroc(std::vector<double>{0.1, 0.2}, {true, true})));
}

TEST_CASE("two classes get an AUROC, of one class alone it is null") {
  ClassificationMetrics both(2), one(2);
  both.add(0, std::vector<float>{0.7F, 0.3F}, 0);
  both.add(1, std::vector<float>{0.6F, 0.4F}, 0);
  one.add(1, std::vector<float>{0.6F, 0.4F}, 0);
  const std::vector<std::string> names{"no", "yes"};
  REQUIRE(both.to_json(names)["auroc"] == 1.0);
  REQUIRE(one.to_json(names)["auroc"].is_null());
}

TEST_CASE("metrics of nothing are zero and not NaN") {
  const ClassificationMetrics metrics(2);
  REQUIRE(metrics.accuracy() == 0);
  REQUIRE(metrics.loss() == 0);
}

TEST_CASE("labels and probabilities that do not fit the classes are refused") {
  REQUIRE_THROWS_AS(ClassificationMetrics(0), Error);
  ClassificationMetrics metrics(2);
  REQUIRE_THROWS_AS(metrics.add(2, std::vector<float>{0.5F, 0.5F}, 0), Error);
  REQUIRE_THROWS_AS(metrics.add(-1, std::vector<float>{0.5F, 0.5F}, 0), Error);
  REQUIRE_THROWS_AS(metrics.add(0, std::vector<float>{1.0F}, 0), Error);
  REQUIRE_THROWS_AS(metrics.to_json(std::vector<std::string>{"a"}), Error);
}

TEST_CASE("a score that is NaN has no rank, and so no AUROC") {
  const std::vector<double> scores{0.1, std::numeric_limits<double>::quiet_NaN(), 0.3};
  REQUIRE(std::isnan(auroc(scores, {true, false, true})));
}

#pragma once

#include <memory>
#include <string>

#include "data/uea.h"
#include "experiments/recipe.h"
#include "experiments/uea/model.h"

namespace primal {

/// A UEA configuration: recipe, data, model, ksvd.
class UeaConfig : public TaskConfig {
 public:
  std::string_view kind() const override { return "uea"; }
  void fields(Fields& f) override;
  void check() const override;
  std::unique_ptr<Task> make(Backend& backend, const TaskSetup& setup) const override;
  std::vector<ForeignName> pytorch_names(const Task& task) const override;

  Recipe recipe = Recipe::none;
  UeaDataConfig data;
  UeaModelConfig model;
  KsvdConfig ksvd;

 private:
  void apply_published();

  std::string applied_;  // recipe and data set whose values were filled in
};

/// Classification of multivariate time series of the UEA archive.
class UeaTask : public Task {
 public:
  UeaTask(Backend& backend, const UeaConfig& config, const TaskSetup& setup);

  ParameterSet& parameters() override { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  int64_t train_size() const override { return data_.train.size(); }
  BatchLoss train_loss(Context& ctx, std::span<const int64_t> examples) override;
  bool couples_examples() const override { return couples_; }
  std::vector<std::string> evaluation_splits() const override;
  nlohmann::json evaluate(Backend&, std::string_view split, const EvaluateOptions&) override;
  std::string metric() const override { return "accuracy"; }
  nlohmann::json state() const override { return data_.statistics; }
  nlohmann::json facts() const override;
  const std::vector<std::string>& warnings() const override { return data_.warnings; }

 private:
  UeaInputs inputs(const UeaSplit& split, std::span<const int64_t> examples);
  const UeaSplit& split(std::string_view name) const;

  Backend& backend_;
  double eta_;
  bool couples_;   // KSVD means run over the batch
  bool has_ksvd_;  // some layer is primal
  bool exact_;     // padding
  UeaData data_;
  ParameterSet parameters_;
  std::unique_ptr<UeaClassifier> model_;
  UeaBatch host_;  // reused from batch to batch
};

}  // namespace primal

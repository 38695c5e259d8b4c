#pragma once

#include <memory>
#include <string>

#include "data/lra.h"
#include "experiments/lra/model.h"
#include "experiments/recipe.h"

namespace primal {

/// An LRA configuration: recipe, data, model, ksvd.
class LraConfig : public TaskConfig {
 public:
  LraConfig() { ksvd.mean = KsvdConfig::Mean::batch; }

  std::string_view kind() const override { return "lra"; }
  void fields(Fields& f) override;
  void check() const override;
  std::unique_ptr<Task> make(Backend& backend, const TaskSetup& setup) const override;
  std::vector<ForeignName> pytorch_names(const Task& task) const override;

  Recipe recipe = Recipe::none;
  LraDataConfig data;
  LraModelConfig model;
  KsvdConfig ksvd;

 private:
  void apply_published();

  std::string applied_;  // recipe and task whose values were filled in
};

/// rank, eta and rank_multi as published (Chen et al., NeurIPS 2023).
RecipeValues lra_recipe(LraTaskName task, Recipe recipe);

/// What a model needs to see data as it did in training.
struct LraState {
  std::string name;
  int64_t cut = 0;  ///< tokens kept of a sequence
  int64_t padded_length = 0;
  int64_t vocabulary = 0;
  std::vector<std::string> classes;
  bool pairs = false;
  uint64_t seed = 0;                            ///< of the split that is held out
  std::map<std::string, std::string> checksum;  ///< of the files of each split
};
void to_json(nlohmann::json& json, const LraState& state);
void from_json(const nlohmann::json& json, LraState& state);

/// Classification of long token sequences, or of pairs of them.
class LraTask : public Task {
 public:
  LraTask(Backend& backend, const LraConfig& config, const TaskSetup& setup);

  ParameterSet& parameters() override { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  int64_t train_size() const override { return data_.train.size(); }
  BatchLoss train_loss(Context& ctx, std::span<const int64_t> examples) override;
  std::vector<int64_t> train_order(uint64_t seed, int64_t epoch, int64_t batch) const override;
  bool couples_examples() const override { return couples_; }
  std::vector<std::string> evaluation_splits() const override;
  nlohmann::json evaluate(Backend&, std::string_view split, const EvaluateOptions&) override;
  std::string metric() const override { return "accuracy"; }
  nlohmann::json state() const override { return state_; }
  nlohmann::json facts() const override;
  const std::vector<std::string>& warnings() const override { return data_.warnings; }

 private:
  struct Batch {
    LraInputs inputs;
    std::vector<int32_t> labels;
  };
  Batch batch(const LraSplit& split, std::span<const int64_t> examples) const;
  const LraSplit& split(std::string_view name) const;

  Backend& backend_;
  double eta_;
  bool couples_;  // KSVD means run over the batch
  bool has_ksvd_;
  bool exact_;
  bool bucketing_;
  LraState state_;
  LraData data_;
  ParameterSet parameters_;
  std::unique_ptr<LraClassifier> model_;
};

}  // namespace primal

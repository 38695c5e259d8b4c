#include "experiments/uea/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"
#include "experiments/classification.h"
#include "experiments/uea/recipes.h"

namespace primal {
namespace {

/// Full-length cases of standard normal numbers, to time the model without the archive.
UeaData random_uea(const std::string& name, const nlohmann::json& sizes, uint64_t seed) {
  const UeaRecipe* published = find_uea_recipe(name);
  const auto size = [&](const char* key, int UeaRecipe::*known) -> int64_t {
    if (sizes.contains(key)) {
      const nlohmann::json& value = sizes.at(key);
      if (!value.is_number_integer() || value.get<int64_t>() < 1) {
        fail("uea: random data's {} must be an integer of at least 1, got {}", key, value.dump());
      }
      return value.get<int64_t>();
    }
    if (published == nullptr) {
      fail("uea: random data needs {}: '{}' is not one of the published data sets", key, name);
    }
    return published->*known;
  };
  for (const auto& [key, value] : sizes.items()) {
    if (key != "length" && key != "channels" && key != "classes" && key != "cases") {
      fail("uea: random data has length, channels, classes and cases, not '{}'", key);
    }
  }
  UeaData data;
  UeaStatistics& statistics = data.statistics;
  statistics.name = name;
  statistics.max_length = size("length", &UeaRecipe::length);
  statistics.channels = size("channels", &UeaRecipe::channels);
  const int64_t classes = size("classes", &UeaRecipe::classes);
  for (int64_t i = 0; i < classes; ++i) statistics.classes.push_back(std::to_string(i));
  statistics.means.assign(statistics.channels, 0.0);
  statistics.stds.assign(statistics.channels, 1.0);
  data.train.channels = statistics.channels;
  const int64_t cases = sizes.value("cases", int64_t{64});
  RandomStream random(seed, hash_name("uea.random"));
  for (int64_t i = 0; i < cases; ++i) {
    UeaSplit::Case example;
    example.length = statistics.max_length;
    example.values.resize(statistics.max_length * statistics.channels);
    for (float& value : example.values) value = random.normal();
    example.label = static_cast<int32_t>(random.below(static_cast<uint64_t>(classes)));
    data.train.cases.push_back(std::move(example));
  }
  return data;
}

/// The splits a caller wants, scaled and labelled as a checkpoint says.
UeaData stored_uea(const UeaDataConfig& config, const TaskSetup& setup) {
  UeaData data;
  data.statistics = setup.state->get<UeaStatistics>();
  const auto wanted = [&](std::string_view name) {
    return setup.splits.empty() || std::ranges::find(setup.splits, name) != setup.splits.end();
  };
  const auto load = [&](SplitName name, UeaSplit& split) {
    if (setup.stop && setup.stop()) throw Interrupted{};
    if (wanted(name_of(name))) {
      split = load_uea_split(config, data.statistics, name, data.warnings);
    }
  };
  load(SplitName::kTrain, data.train);
  if (data.statistics.protocol == Protocol::kValidation || !setup.splits.empty()) {
    load(SplitName::kValidation, data.validation);
  }
  load(SplitName::kTest, data.test);
  return data;
}

}  // namespace

std::unique_ptr<TaskConfig> make_uea_task() {
  return std::make_unique<UeaConfig>();
}

void UeaConfig::fields(Fields& f) {
  recipe_field(f, recipe);
  f.section("data", data, "which data set, where it is, and how it is prepared");
  apply_published();
  f.section("model", model, "the Transformer");
  f.section("ksvd", ksvd, "the KSVD loss of Primal-Attention layers");
}

void UeaConfig::check() const {
  check_recipe(recipe, model.encoder.layers);
}

void UeaConfig::apply_published() {
  const std::string wanted = std::to_string(static_cast<int>(recipe)) + data.name;
  if (recipe == Recipe::none || wanted == applied_) return;
  applied_ = wanted;
  const UeaRecipe* published = find_uea_recipe(data.name);
  if (published == nullptr && recipe != Recipe::canonical) {
    std::vector<std::string_view> known;
    for (const UeaRecipe& row : uea_recipes()) known.push_back(row.name);
    const std::string near = nearest(data.name, known);
    fail(
        "recipe: data.name '{}' has no published recipe{}; there is one for {}; for other data "
        "set recipe: none and list model.layers",
        data.name, near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
        fmt::join(known, ", "));
  }
  RecipeValues values;
  if (published != nullptr) {
    values = recipe == Recipe::primal_plus ? published->primal_plus : published->primal;
  }
  apply_recipe(recipe, values, model.encoder.layers, ksvd.eta);
}

std::unique_ptr<Task> UeaConfig::make(Backend& backend, const TaskSetup& setup) const {
  return std::make_unique<UeaTask>(backend, *this, setup);
}

std::vector<TaskConfig::ForeignName> UeaConfig::pytorch_names(const Task& task) const {
  for (const LayerConfig& layer : model.encoder.layers) {
    const std::string_view kind = layer.attention->kind();
    if (kind != "canonical" && kind != "primal") return {};
  }
  return uea_pytorch_names(dynamic_cast<const UeaTask&>(task).parameters());
}

UeaTask::UeaTask(Backend& backend, const UeaConfig& config, const TaskSetup& setup)
    : backend_(backend),
      eta_(config.ksvd.eta),
      couples_(eta_ > 0 && config.ksvd.mean == KsvdConfig::Mean::batch),
      has_ksvd_(std::ranges::any_of(
          config.model.encoder.layers,
          [](const LayerConfig& layer) { return layer.attention->kind() == "primal"; })),
      exact_(config.model.padding == UeaModelConfig::Padding::exact) {
  if (setup.random_data) {
    data_ = random_uea(config.data.name, *setup.random_data, setup.seed);
  } else if (setup.state != nullptr) {
    data_ = stored_uea(config.data, setup);
  } else {
    data_ = load_uea(config.data, setup.seed);
  }
  if (setup.stop && setup.stop()) throw Interrupted{};
  const UeaStatistics& statistics = data_.statistics;
  model_ = std::make_unique<UeaClassifier>(
      backend, parameters_, config.model, config.ksvd,
      UeaShape{statistics.channels, statistics.max_length, std::ssize(statistics.classes)});
  parameters_.allocate(backend, setup.seed);
}

BatchLoss UeaTask::train_loss(Context& ctx, std::span<const int64_t> examples) {
  const UeaInputs batch = inputs(data_.train, examples);
  BatchLoss loss = uea_loss(ctx, *model_, batch, eta_);
  if (exact_) loss.moments = std::reduce(batch.lengths.begin(), batch.lengths.end(), int64_t{0});
  return loss;
}

std::vector<std::string> UeaTask::evaluation_splits() const {
  std::vector<std::string> splits;
  if (data_.validation.size() > 0) splits.emplace_back("validation");
  if (data_.test.size() > 0) splits.emplace_back("test");
  return splits;
}

nlohmann::json UeaTask::evaluate(Backend& backend, std::string_view name,
                                 const EvaluateOptions& options) {
  const UeaSplit& cases = split(name);
  return score_classifier(
      backend, parameters_,
      {.name = fmt::format("uea: {} split", name),
       .size = cases.size(),
       .classes = data_.statistics.classes,
       .forward =
           [&](Context& ctx, std::span<const int64_t> examples) {
             const UeaInputs batch = inputs(cases, examples);
             return ScoredSplit::Batch{model_->forward(ctx, batch), batch.labels, host_.labels};
           },
       .where =
           [&](int64_t i) {
             return fmt::format("line {}", cases.cases[static_cast<size_t>(i)].line);
           }},
      options);
}

nlohmann::json UeaTask::facts() const {
  const UeaStatistics& statistics = data_.statistics;
  nlohmann::json facts{{"data_set", statistics.name},
                       {"train_cases", data_.train.size()},
                       {"channels", statistics.channels},
                       {"padded_length", statistics.max_length},
                       {"classes", statistics.classes}};
  if (has_ksvd_) facts["ksvd_weight"] = eta_;
  if (data_.validation.size() > 0) facts["validation_cases"] = data_.validation.size();
  if (data_.test.size() > 0) facts["test_cases"] = data_.test.size();
  if (!data_.train.file.is_null()) facts["files"]["train"] = data_.train.file;
  if (!data_.test.file.is_null()) facts["files"]["test"] = data_.test.file;
  return facts;
}

UeaInputs UeaTask::inputs(const UeaSplit& split, std::span<const int64_t> examples) {
  split.fill_batch(examples, data_.statistics.max_length, host_);
  UeaInputs inputs{backend_.empty({host_.size, host_.length, host_.channels}),
                   backend_.empty({host_.size}, DType::i32),
                   backend_.empty({host_.size}, DType::i32), host_.lengths};
  backend_.op->upload(backend_.exec, inputs.x.count(), host_.x.data(), inputs.x.data());
  backend_.op->upload_integers(backend_.exec, host_.size, host_.lengths.data(),
                               inputs.lengths_tensor.data<int32_t>());
  backend_.op->upload_integers(backend_.exec, host_.size, host_.labels.data(),
                               inputs.labels.data<int32_t>());
  return inputs;
}

const UeaSplit& UeaTask::split(std::string_view name) const {
  const SplitName wanted = split_named(name);
  const UeaSplit& split = wanted == SplitName::kTrain        ? data_.train
                          : wanted == SplitName::kValidation ? data_.validation
                                                             : data_.test;
  if (split.size() == 0) {
    fail("uea: {} has no {} split{}", data_.statistics.name, name,
         wanted == SplitName::kValidation ? "; protocol: paper trains on all of TRAIN" : "");
  }
  return split;
}

}  // namespace primal

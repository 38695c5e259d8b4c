#include "experiments/uea/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/metrics.h"
#include "core/rng.h"
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
  f.choice("recipe", recipe,
           {{"none", Recipe::none},
            {"canonical", Recipe::canonical},
            {"primal", Recipe::primal},
            {"primal_plus", Recipe::primal_plus}},
           "fills in layers and ksvd.eta as published for data.name; explicit keys win");
  f.section("data", data, "which data set, where it is, and how it is prepared");
  apply_recipe();
  f.section("model", model, "the Transformer");
  f.section("ksvd", ksvd, "the KSVD loss of Primal-Attention layers");
}

std::vector<std::string_view> UeaConfig::recipe_kinds() const {
  const std::string_view first = recipe == Recipe::primal ? "primal" : "canonical";
  return {first, recipe == Recipe::canonical ? "canonical" : "primal"};
}

// A run must not be recorded as a recipe that it is not.
void UeaConfig::check() const {
  if (recipe == Recipe::none) return;
  std::vector<std::string_view> kinds;
  for (const LayerConfig& layer : model.encoder.layers) kinds.push_back(layer.attention->kind());
  if (kinds == recipe_kinds()) return;
  fail("recipe: its layers are {}, but model.layers lists {}; leave one of the two out",
       fmt::join(recipe_kinds(), ", "), fmt::join(kinds, ", "));
}

void UeaConfig::apply_recipe() {
  const std::string wanted = std::to_string(static_cast<int>(recipe)) + data.name;
  if (recipe == Recipe::none || wanted == applied_) return;
  applied_ = wanted;
  model.encoder.layers.clear();
  for (const std::string_view kind : recipe_kinds()) model.encoder.layers.emplace_back(kind);
  if (recipe == Recipe::canonical) return;
  const UeaRecipe* published = find_uea_recipe(data.name);
  if (published == nullptr) {
    std::vector<std::string_view> known;
    for (const UeaRecipe& row : uea_recipes()) known.push_back(row.name);
    const std::string near = nearest(data.name, known);
    fail(
        "recipe: data.name '{}' has no published recipe{}; there is one for {}; for other data "
        "set recipe: none and list model.layers",
        data.name, near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
        fmt::join(known, ", "));
  }
  const UeaRecipe::Ksvd& row =
      recipe == Recipe::primal_plus ? published->primal_plus : published->primal;
  for (LayerConfig& layer : model.encoder.layers) {
    if (layer.attention->kind() != "primal") continue;
    read_config(ConfigSource::from_string(
                    fmt::format("attention: {{kind: primal, rank: {}, rank_multi: {}}}", row.rank,
                                row.rank_multi),
                    "recipe"),
                layer);
  }
  ksvd.eta = row.eta;
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
      has_ksvd_(std::ranges::any_of(config.model.encoder.layers, [](const LayerConfig& layer) {
        return layer.attention->kind() == "primal";
      })) {
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
  return uea_loss(ctx, *model_, inputs(data_.train, examples), eta_);
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
  const int64_t classes = std::ssize(data_.statistics.classes);
  ClassificationMetrics metrics(classes);
  double ksvd = 0;
  bool has_ksvd = false;
  std::vector<int64_t> examples;
  for (int64_t begin = 0; begin < cases.size(); begin += options.batch) {
    if (options.stop && options.stop()) throw Interrupted{};
    examples.resize(std::min(options.batch, cases.size() - begin));
    std::iota(examples.begin(), examples.end(), begin);
    Context ctx(backend, parameters_);
    const UeaInputs batch = inputs(cases, examples);
    const ops::CrossEntropy result =
        ops::cross_entropy(ctx, model_->forward(ctx, batch), batch.labels);
    std::vector<float> probabilities(result.probabilities.count());
    backend.op->download(backend.exec, result.probabilities.count(), result.probabilities.data(),
                         probabilities.data());
    for (const Var& term : ctx.aux.of("ksvd")) {
      float value = 0;
      backend.op->download(backend.exec, 1, term.value.data(), &value);
      has_ksvd = true;
      ksvd += static_cast<double>(value) * static_cast<double>(examples.size()) /
              static_cast<double>(ctx.aux.of("ksvd").size());
    }
    for (size_t i = 0; i < examples.size(); ++i) {
      const auto row = std::span(probabilities).subspan(i * classes, classes);
      const int32_t label = host_.labels[i];
      if (!std::ranges::all_of(row, [](float p) { return std::isfinite(p); })) {
        fail(
            "uea: {} split, line {}: the model's output is not a number: its weights have diverged "
            "(a lower optimizer.lr may help) or the case holds extreme values",
            name, cases.cases[static_cast<size_t>(examples[i])].line);
      }
      const double likelihood = std::max(static_cast<double>(row[label]), 1e-45);
      const int64_t prediction = metrics.add(label, row, -std::log(likelihood));
      if (options.prediction) {
        options.prediction({{"index", examples[i]},
                            {"label", data_.statistics.classes[label]},
                            {"prediction", data_.statistics.classes[prediction]},
                            {"probabilities", std::vector<float>(row.begin(), row.end())}});
      }
    }
  }
  nlohmann::json json = metrics.to_json(data_.statistics.classes);
  if (has_ksvd && cases.size() > 0) json["ksvd_loss"] = ksvd / static_cast<double>(cases.size());
  return json;
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

#include "experiments/lra/task.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/rng.h"
#include "experiments/classification.h"

namespace primal {
namespace {

using nlohmann::json;

/// Sequences of full length of random tokens, to time the model without the data.
LraData random_lra(const LraState& state, int64_t examples, uint64_t seed) {
  TokenWriter writer(state.pairs ? 2 : 1);
  RandomStream random(seed, hash_name("lra.random"));
  std::vector<uint8_t> tokens(static_cast<size_t>(state.cut));
  const auto symbols = static_cast<uint64_t>(std::min<int64_t>(state.vocabulary - 1, 256));
  for (int64_t i = 0; i < examples; ++i) {
    for (int part = 0; part < (state.pairs ? 2 : 1); ++part) {
      for (uint8_t& token : tokens) token = static_cast<uint8_t>(random.below(symbols));
      writer.add(tokens);
    }
    writer.label(static_cast<int32_t>(random.below(state.classes.size())));
  }
  LraData data;
  data.train = LraSplit(std::make_shared<const TokenStore>(writer.finish(json::object())));
  return data;
}

/// Reads one of random data's sizes; `known` where it is not given.
int64_t random_size(const json& sizes, const char* key, int64_t known) {
  if (!sizes.contains(key)) return known;
  const json& value = sizes.at(key);
  if (!value.is_number_integer() || value.get<int64_t>() < 1) {
    fail("lra: random data's {} must be an integer of at least 1, got {}", key, value.dump());
  }
  return value.get<int64_t>();
}

LraState new_state(const LraDataConfig& data, const TaskSetup& setup) {
  const LraTaskFacts& facts = facts_of(data.name);
  LraState state{.name = std::string(name_of(data.name)),
                 .cut = data.cut(),
                 .padded_length = data.padded_length(),
                 .vocabulary = facts.vocabulary,
                 .classes = facts.classes,
                 .pairs = facts.pairs,
                 .seed = setup.seed,
                 .checksum = {}};
  if (!setup.random_data) return state;
  for (const auto& [key, value] : setup.random_data->items()) {
    if (key != "length" && key != "vocabulary" && key != "classes" && key != "examples") {
      fail("lra: random data has length, vocabulary, classes and examples, not '{}'", key);
    }
  }
  state.cut = state.padded_length = random_size(*setup.random_data, "length", state.padded_length);
  state.vocabulary = random_size(*setup.random_data, "vocabulary", state.vocabulary);
  if (state.vocabulary < 2) fail("lra: random data's vocabulary must be at least 2");
  state.classes.resize(
      static_cast<size_t>(random_size(*setup.random_data, "classes", std::ssize(state.classes))));
  return state;
}

}  // namespace

std::unique_ptr<TaskConfig> make_lra_task() {
  return std::make_unique<LraConfig>();
}

RecipeValues lra_recipe(LraTaskName task, Recipe recipe) {
  static constexpr std::array<std::pair<RecipeValues, RecipeValues>, 5> kRows{{
      {{20, .1, 10}, {30, .05, 10}},  // listops
      {{20, .05, 10}, {30, .1, 10}},  // text
      {{30, 0, 10}, {20, .05, 10}},   // retrieval
      {{30, .1, 10}, {30, .1, 10}},   // image
      {{30, .1, 10}, {20, .05, 10}},  // pathfinder
  }};
  const auto& row = kRows[static_cast<size_t>(task)];
  return recipe == Recipe::primal_plus ? row.second : row.first;
}

void LraConfig::fields(Fields& f) {
  recipe_field(f, recipe);
  f.section("data", data, "which task, where its files are, and how they are read");
  apply_published();
  f.section("model", model, "the Transformer");
  f.section("ksvd", ksvd, "the KSVD loss of Primal-Attention layers");
}

void LraConfig::check() const {
  check_recipe(recipe, model.encoder.layers);
  if (data.bucketing && model.padding == LraModelConfig::Padding::published) {
    fail("data.bucketing saves nothing where model.padding is published: batches are equally long");
  }
}

void LraConfig::apply_published() {
  const std::string wanted = fmt::format("{} {}", static_cast<int>(recipe), name_of(data.name));
  if (recipe == Recipe::none || wanted == applied_) return;
  applied_ = wanted;
  apply_recipe(recipe, lra_recipe(data.name, recipe), model.encoder.layers, ksvd.eta);
}

std::unique_ptr<Task> LraConfig::make(Backend& backend, const TaskSetup& setup) const {
  return std::make_unique<LraTask>(backend, *this, setup);
}

std::vector<TaskConfig::ForeignName> LraConfig::pytorch_names(const Task& task) const {
  for (const LayerConfig& layer : model.encoder.layers) {
    const std::string_view kind = layer.attention->kind();
    if (kind != "canonical" && kind != "primal") return {};
  }
  return lra_pytorch_names(dynamic_cast<const LraTask&>(task).parameters());
}

void to_json(json& out, const LraState& s) {
  out = {{"name", s.name},
         {"cut", s.cut},
         {"padded_length", s.padded_length},
         {"vocabulary", s.vocabulary},
         {"classes", s.classes},
         {"pairs", s.pairs},
         {"seed", s.seed},
         {"checksum", s.checksum}};
}

void from_json(const json& in, LraState& s) {
  in.at("name").get_to(s.name);
  in.at("cut").get_to(s.cut);
  in.at("padded_length").get_to(s.padded_length);
  in.at("vocabulary").get_to(s.vocabulary);
  in.at("classes").get_to(s.classes);
  in.at("pairs").get_to(s.pairs);
  in.at("seed").get_to(s.seed);
  in.at("checksum").get_to(s.checksum);
}

LraTask::LraTask(Backend& backend, const LraConfig& config, const TaskSetup& setup)
    : backend_(backend),
      eta_(config.ksvd.eta),
      couples_(eta_ > 0 && config.ksvd.mean == KsvdConfig::Mean::batch),
      has_ksvd_(std::ranges::any_of(
          config.model.encoder.layers,
          [](const LayerConfig& layer) { return layer.attention->kind() == "primal"; })),
      exact_(config.model.padding == LraModelConfig::Padding::exact),
      bucketing_(config.data.bucketing) {
  state_ = setup.state != nullptr ? setup.state->get<LraState>() : new_state(config.data, setup);
  const auto tick = [&setup] {
    if (setup.stop && setup.stop()) throw Interrupted{};
  };
  if (setup.random_data) {
    data_ = random_lra(state_, random_size(*setup.random_data, "examples", 64), setup.seed);
  } else if (setup.splits != std::vector<std::string>{"none"}) {
    data_ = load_lra(config.data, state_.seed, setup.splits, tick);
  }
  for (const auto& [name, split] : {std::pair<std::string, const LraSplit*>{"train", &data_.train},
                                    {"validation", &data_.validation},
                                    {"test", &data_.test}}) {
    if (split->size() == 0 || setup.random_data) continue;
    const auto found = split->facts().at("checksum").get<std::string>();
    std::string& known = state_.checksum[name];
    if (!known.empty() && known != found) {
      data_.warnings.push_back(fmt::format("lra: {}: checksum {}, the training run saw {}",
                                           split->facts().at("path").get<std::string>(), found,
                                           known));
    }
    known = found;
  }
  tick();
  model_ = std::make_unique<LraClassifier>(
      backend, parameters_, config.model, config.ksvd,
      LraShape{state_.vocabulary, state_.padded_length, std::ssize(state_.classes), state_.pairs});
  parameters_.allocate(backend, setup.seed);
}

BatchLoss LraTask::train_loss(Context& ctx, std::span<const int64_t> examples) {
  const LraInputs inputs = batch(data_.train, examples).inputs;
  BatchLoss loss = lra_loss(ctx, *model_, inputs, eta_);
  if (exact_) loss.moments = std::reduce(inputs.lengths.begin(), inputs.lengths.end(), int64_t{0});
  return loss;
}

// A shuffled pool of many batches is sorted by length and cut into batches, which are shuffled.
std::vector<int64_t> LraTask::train_order(uint64_t seed, int64_t epoch, int64_t batch) const {
  std::vector<int64_t> order = epoch_order(seed, epoch, train_size());
  if (!bucketing_) return order;
  constexpr int64_t kPool = 64;  // batches
  const int64_t size = train_size();
  const auto length = [&](int64_t i) {
    return std::max(data_.train.length(i, 0, state_.cut),
                    data_.train.length(i, state_.pairs ? 1 : 0, state_.cut));
  };
  for (int64_t begin = 0; begin < size; begin += kPool * batch) {
    std::ranges::stable_sort(order.begin() + begin,
                             order.begin() + std::min(size, begin + kPool * batch), {}, length);
  }
  std::vector<int64_t> bucketed;
  // The last batch, which may be smaller, stays last.
  const int64_t whole = size / batch;
  for (const int64_t b : epoch_order(seed, epoch, whole)) {
    bucketed.insert(bucketed.end(), order.begin() + b * batch, order.begin() + (b + 1) * batch);
  }
  bucketed.insert(bucketed.end(), order.begin() + whole * batch, order.end());
  return bucketed;
}

std::vector<std::string> LraTask::evaluation_splits() const {
  std::vector<std::string> splits;
  if (data_.validation.size() > 0) splits.emplace_back("validation");
  if (data_.test.size() > 0) splits.emplace_back("test");
  return splits;
}

json LraTask::evaluate(Backend& backend, std::string_view name, const EvaluateOptions& options) {
  const LraSplit& examples = split(name);
  return score_classifier(backend, parameters_,
                          {.name = fmt::format("lra: {} split", name),
                           .size = examples.size(),
                           .classes = state_.classes,
                           .forward =
                               [&](Context& ctx, std::span<const int64_t> wanted) {
                                 Batch b = batch(examples, wanted);
                                 return ScoredSplit::Batch{model_->forward(ctx, b.inputs),
                                                           b.inputs.labels, std::move(b.labels)};
                               },
                           .where = [](int64_t i) { return fmt::format("example {}", i); }},
                          options);
}

json LraTask::facts() const {
  json facts{{"data_set", state_.name},
             {"cut_length", state_.cut},
             {"padded_length", state_.padded_length},
             {"vocabulary", state_.vocabulary},
             {"classes", state_.classes},
             {"train_examples", data_.train.size()}};
  if (has_ksvd_) facts["ksvd_weight"] = eta_;
  for (const auto& [name, split] : {std::pair<std::string, const LraSplit*>{"train", &data_.train},
                                    {"validation", &data_.validation},
                                    {"test", &data_.test}}) {
    if (split->size() == 0) continue;
    facts[name + "_examples"] = split->size();
    if (split->facts().contains("path")) {
      facts[name + "_source"] =
          fmt::format("{}, checksum {}", split->facts().at("path").get<std::string>(),
                      split->facts().at("checksum").get<std::string>());
    }
    int64_t cut = 0;
    const int64_t parts = state_.pairs ? 2 : 1;
    for (int64_t i = 0; i < split->size(); ++i) {
      for (int64_t part = 0; part < parts; ++part) {
        cut += split->length(i, part, state_.cut + 1) > state_.cut ? 1 : 0;
      }
    }
    facts[name + "_truncated"] =
        static_cast<double>(cut) / static_cast<double>(split->size() * parts);
  }
  return facts;
}

LraTask::Batch LraTask::batch(const LraSplit& split, std::span<const int64_t> examples) const {
  const int64_t parts = state_.pairs ? 2 : 1;
  std::vector<int32_t> lengths;
  std::vector<int32_t> labels;
  for (const int64_t i : examples) {
    labels.push_back(split.label(i));
    for (int64_t part = 0; part < parts; ++part) {
      lengths.push_back(static_cast<int32_t>(split.length(i, part, state_.cut)));
    }
  }
  // As published all are padded alike; else to the longest of the batch.
  const int64_t longest = lengths.empty() ? 1 : std::max<int64_t>(1, std::ranges::max(lengths));
  const int64_t length = exact_ ? longest : state_.padded_length;
  std::vector<int32_t> ids(lengths.size() * static_cast<size_t>(length));
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    split.tokens(
        examples[static_cast<size_t>(at / parts)], at % parts, state_.cut,
        std::span(ids).subspan(row * static_cast<size_t>(length), static_cast<size_t>(length)));
  }
  const auto upload = [&](std::span<const int32_t> values) {
    Tensor tensor = backend_.empty({std::ssize(values)}, DType::i32);
    backend_.op->upload_integers(backend_.exec, tensor.count(), values.data(),
                                 tensor.data<int32_t>());
    return tensor;
  };
  LraInputs inputs{{backend_, ids, {std::ssize(lengths), length}, state_.vocabulary},
                   upload(lengths),
                   upload(labels),
                   lengths};
  return {std::move(inputs), std::move(labels)};
}

const LraSplit& LraTask::split(std::string_view name) const {
  const LraSplit* split = name == "train"        ? &data_.train
                          : name == "validation" ? &data_.validation
                          : name == "test"       ? &data_.test
                                                 : nullptr;
  if (split == nullptr) {
    throw UsageError(fmt::format("split '{}' is not train, validation or test", name));
  }
  if (split->size() == 0) {
    fail("lra: {} has no {} split{}", state_.name, name,
         name == "validation" ? "; with protocol: paper it is judged on its test split" : "");
  }
  return *split;
}

}  // namespace primal

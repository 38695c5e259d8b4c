#include <filesystem>

#include "core/run_config.h"
#include "experiments/uea/recipes.h"
#include "experiments/uea/task.h"
#include "tests/catch.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChannels = 3;
const std::vector<int32_t> kLengths{7, 4, 9, 1};

/// A classifier on cases padded to `padded` steps. Parameters that exist at both sizes start alike,
/// as they are drawn by name.
struct Padded {
  Padded(const std::string& yaml, int64_t padded) : length(padded) {
    read_config(ConfigSource::from_string(yaml, "test"), config);
    model = std::make_unique<UeaClassifier>(be, parameters, config, KsvdConfig{},
                                            UeaShape{kChannels, padded, 2});
    parameters.allocate(be, 3);
    const auto cases = std::ssize(kLengths);
    inputs = {be.empty({cases, padded, kChannels}), be.empty({cases}, DType::i32),
              be.empty({cases}, DType::i32), kLengths};
    std::ranges::fill(inputs.x.floats(), 0.0F);
    for (int64_t b = 0; b < cases; ++b) {
      for (int64_t i = 0; i < kLengths[b] * kChannels; ++i) {
        inputs.x.data()[b * padded * kChannels + i] =
            static_cast<float>((i * 37 + b * 11) % 19 - 9) / 5;
      }
      inputs.lengths_tensor.data<int32_t>()[b] = kLengths[b];
      inputs.labels.data<int32_t>()[b] = static_cast<int32_t>(b % 2);
    }
  }

  Backend be = cpu_backend(2);
  ParameterSet parameters;
  UeaModelConfig config;
  std::unique_ptr<UeaClassifier> model;
  UeaInputs inputs;
  int64_t length;
};

struct Encoded {
  std::vector<float> real;  // encoder outputs at real positions, in order
  float ksvd = 0;
};

/// Encodes with the position vectors of `as`, so that only the padding differs.
Encoded encode(Padded& padded, const Padded& as) {
  const Tensor from = as.parameters.value(as.parameters.find("positions"));
  const Tensor to = padded.parameters.value(padded.parameters.find("positions"));
  std::copy_n(from.data(), std::min(from.count(), to.count()), to.data());
  Context ctx(padded.be, padded.parameters);
  const Var y = padded.model->encode(ctx, padded.inputs);
  Encoded encoded;
  const int64_t dim = y.shape()[2];
  for (size_t b = 0; b < kLengths.size(); ++b) {
    const float* row = y.value.data() + static_cast<int64_t>(b) * padded.length * dim;
    encoded.real.insert(encoded.real.end(), row, row + kLengths[b] * dim);
  }
  for (const Var& term : ctx.aux.of("ksvd")) encoded.ksvd += term.value.data()[0];
  return encoded;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

std::string model_yaml(const std::string& attention, const std::string& padding) {
  return "{dim: 16, heads: 2, feedforward: 24, padding: " + padding +
         ", layers: [{attention: " + attention + "}, {attention: " + attention + "}]}";
}

}  // namespace

TEST_CASE("exact padding: more padding changes neither encoder outputs nor the KSVD loss") {
  const std::string attention =
      GENERATE(as<std::string>{}, "canonical", "{kind: canonical, implementation: materialized}",
               "{kind: primal, rank: 3, rank_multi: 2}",
               "{kind: primal, rank: 3, rank_multi: 2, projection: static}",
               "{kind: primal, rank: 3, rank_multi: 2, scores: right}");
  INFO(attention);
  Padded tight(model_yaml(attention, "exact"), 9);
  const Encoded expected = encode(tight, tight);
  for (const int64_t length : {10, 16, 33}) {
    INFO("padded to " << length);
    Padded wide(model_yaml(attention, "exact"), length);
    const Encoded found = encode(wide, tight);
    CHECK(largest_difference(found.real, expected.real) <= 2e-6F);
    CHECK(found.ksvd == Approx(expected.ksvd).epsilon(1e-5));
  }
}

TEST_CASE("published padding: outputs depend on the padded length, as the published model's do") {
  const std::string attention =
      GENERATE(as<std::string>{}, "canonical", "{kind: primal, rank: 3, rank_multi: 2}");
  Padded tight(model_yaml(attention, "published"), 9);
  Padded wide(model_yaml(attention, "published"), 16);
  CHECK(largest_difference(encode(wide, tight).real, encode(tight, tight).real) > 1e-3F);
}

TEST_CASE("with eta 0 the KSVD loss is reported, but neither added nor differentiated") {
  Padded at(model_yaml("{kind: primal, rank: 3, rank_multi: 2}", "published"), 9);
  const auto lambda = at.parameters.find("layers.0.attention.lambda");
  for (const double eta : {0.0, 0.5}) {
    Tape tape(at.be);
    Context ctx(at.be, at.parameters, tape, Rng(1, 0));
    const BatchLoss loss = uea_loss(ctx, *at.model, at.inputs, eta);
    const float ksvd = loss.ksvd_loss.data()[0];
    CHECK(ksvd > 0);
    CHECK(loss.total.value.data()[0] ==
          Approx(loss.task_loss.data()[0] + eta * ksvd).epsilon(1e-5));
    tape.backward(loss.total);
    const auto gradient = at.parameters.gradient(lambda).floats();
    CHECK(std::ranges::any_of(gradient, [](float g) { return g != 0; }) == (eta > 0));
  }
}

TEST_CASE("every published recipe file has the published rank, eta and rank_multi") {
  const fs::path folder = fs::path(PRIMAL_SOURCE_DIR) / "experiments";
  int checked = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "uea")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path().filename().string());
    const std::string stem = entry.path().stem().string();
    const bool primal = stem.ends_with("_primal");
    const ConfigSource file = ConfigSource::from_file(entry.path());
    const UeaRecipe* recipe = find_uea_recipe(file.text_at("data.name"));
    REQUIRE(recipe != nullptr);
    const RecipeValues& row = primal ? recipe->primal : recipe->primal_plus;
    // Generic form: the same values by data set name.
    const ConfigSource generic = ConfigSource::from_file(
        folder / "uea.yaml", {"data.name=" + file.text_at("data.name"),
                              std::string("recipe=") + (primal ? "primal" : "primal_plus")});
    for (const ConfigSource& source : {file, generic}) {
      const RunConfig run = load_run_config(source);
      auto& uea = dynamic_cast<UeaConfig&>(*run.task);
      CHECK(uea.ksvd.eta == row.eta);
      CHECK(uea.data.protocol == Protocol::kPaper);
      REQUIRE(uea.model.encoder.layers.size() == 2);
      CHECK(uea.model.encoder.layers[0].attention->kind() == (primal ? "primal" : "canonical"));
      LayerConfig& last = uea.model.encoder.layers[1];
      CHECK(print_config(last).find(fmt::format("rank: {}", row.rank)) != std::string::npos);
      CHECK(print_config(last).find(fmt::format("rank_multi: {}", row.rank_multi)) !=
            std::string::npos);
    }
    ++checked;
  }
  CHECK(checked == 30);
}

TEST_CASE("a recipe for a data set that has none names those that have") {
  UeaConfig config;
  const auto source =
      ConfigSource::from_string("recipe: primal\ndata: {name: Unheard}", "test.yaml");
  try {
    read_config(source, config);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("'Unheard' has no published recipe") != std::string::npos);
    CHECK(std::string(error.what()).find("JapaneseVowels") != std::string::npos);
    CHECK(std::string(error.what()).find("for other data set recipe: none") != std::string::npos);
  }
}

TEST_CASE("a recipe whose layers the configuration contradicts is refused") {
  const std::string named = "data: {name: JapaneseVowels}\nmodel: {layers: [";
  const auto read = [](const std::string& text, std::vector<std::string> overrides = {}) {
    try {
      UeaConfig config;
      read_config(ConfigSource::from_string(text, "test.yaml", overrides), config);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string plus =
      named + "{attention: canonical}, {attention: {kind: primal, rank: 7}}]}\n";
  CHECK(read(plus).empty());
  CHECK(read(plus + "recipe: primal_plus").empty());  // another rank is a variation of it
  CHECK(
      read(plus, {"recipe=canonical"}) ==
      "--set recipe=canonical: recipe: its layers are canonical, canonical, but model.layers lists "
      "canonical, primal; leave one of the two out");
  CHECK(read(plus + "recipe: primal").find("test.yaml") == 0);
  CHECK(read(named + "{attention: canonical}]}\nrecipe: canonical").find("lists canonical;") !=
        std::string::npos);
}

TEST_CASE("keys that a configuration gives win over its recipe") {
  UeaConfig config;
  read_config(ConfigSource::from_string(
                  "recipe: primal_plus\ndata: {name: JapaneseVowels}\nksvd: {eta: 0.7}", "test"),
              config);
  CHECK(config.ksvd.eta == 0.7);
  UeaConfig again;
  read_config(ConfigSource::from_string(print_config(config), "printed"), again);
  CHECK(again.ksvd.eta == 0.7);
  CHECK(print_config(again) == print_config(config));
}

}  // namespace primal

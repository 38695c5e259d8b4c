#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "core/optimizer.h"
#include "core/run_config.h"
#include "core/safetensors.h"
#include "experiments/lra/model.h"
#include "experiments/uea/model.h"
#include "tests/catch.h"

// Tensors computed by the authors' PyTorch code: inputs, weights, outputs, losses, gradients and a
// short training run. Every file of a known kind in the folder is checked, and the models are built
// from each file's metadata.

namespace primal {
namespace {

namespace fs = std::filesystem;

/// Files in PRIMAL_REFERENCE (default tests/reference) that `known` accepts.
std::vector<fs::path> reference_files(const std::function<bool(const SafetensorsFile&)>& known) {
  const char* folder = std::getenv("PRIMAL_REFERENCE");
  const fs::path root =
      folder != nullptr ? fs::path(folder) : fs::path(PRIMAL_SOURCE_DIR) / "tests" / "reference";
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".safetensors" && known(SafetensorsFile::read(entry.path()))) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

bool has_keys(const SafetensorsFile& file, std::initializer_list<const char*> keys) {
  return std::ranges::all_of(keys, [&](const char* key) { return file.metadata().contains(key); });
}

double largest(std::span<const float> values) {
  double top = 0;
  for (const float value : values) top = std::max(top, std::abs(static_cast<double>(value)));
  return top;
}

/// Checks max |found - expected| <= bound * max(max |expected|, floor).
void check_close(const std::string& what, std::span<const float> found,
                 std::span<const float> expected, double bound, double floor = 0) {
  INFO(what);
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - expected[i]);
    worst = difference <= worst ? worst : difference;  // keeps NaN
  }
  const double scale = std::max(largest(expected), floor);
  INFO("largest difference " << worst << ", largest magnitude " << scale);
  CHECK(worst <= bound * scale);
}

/// A key's bias shifts all scores of a query alike: under softmax its gradient is zero, and what
/// either code has is rounding of the products it is summed from, which are as large as the
/// gradient of the key's weight. That is the floor of `name`, where it ends in `key_bias`.
double rounding_floor(const SafetensorsFile& file, const std::string& name,
                      std::string_view key_bias, std::span<const float> expected) {
  if (!name.ends_with(key_bias)) return 0;
  const std::string weight = name.substr(0, name.size() - 4) + "weight";
  const double of_weight = largest(file.floats("grad/" + weight));
  return largest(expected) < 1e-6 * of_weight ? of_weight : 0;
}

Tensor upload(const Backend& be, const Shape& shape, std::span<const float> values) {
  Tensor tensor = be.empty(shape);
  REQUIRE(tensor.count() == std::ssize(values));
  be.op->upload(be.exec, tensor.count(), values.data(), tensor.data());
  return tensor;
}

Tensor upload(const Backend& be, std::span<const int32_t> values) {
  Tensor tensor = be.empty({std::ssize(values)}, DType::i32);
  be.op->upload_integers(be.exec, tensor.count(), values.data(), tensor.data<int32_t>());
  return tensor;
}

int64_t number(const SafetensorsFile& file, const std::string& key) {
  return std::stoll(file.metadata().at(key));
}

/// A UEA file's model, inputs and figures.
struct UeaReference {
  explicit UeaReference(const fs::path& path) : file(SafetensorsFile::read(path)) {
    std::string yaml = "dropout: 0\nattention_dropout: 0\nlayers:\n";
    const std::string layer = "param/encoder.attn_layers.";
    for (int i = 0; file.find(layer + std::to_string(i) + ".conv1.weight") != nullptr; ++i) {
      const bool primal = file.find(layer + std::to_string(i) + ".attention.We") != nullptr;
      yaml += "  - attention: ";
      yaml += primal ? fmt::format("{{kind: primal, rank: {}, rank_multi: {}}}\n",
                                   number(file, "low_rank"), number(file, "rank_multi"))
                     : "canonical\n";
    }
    yaml += fmt::format("dim: {}\nheads: {}\nfeedforward: {}\n", number(file, "d_model"),
                        number(file, "heads"), number(file, "d_ff"));
    read_config(ConfigSource::from_string(yaml, path.filename().string()), config);
    shape = {number(file, "features"), number(file, "length"), number(file, "classes")};
    eta = std::stod(file.metadata().at("eta"));
    model = std::make_unique<UeaClassifier>(be, parameters, config, KsvdConfig{}, shape);
    parameters.allocate(be, 1);
    names = uea_pytorch_names(parameters);
    load_weights();
    x = file.floats("in/x");
    for (const int64_t label : file.integers("in/label")) {
      labels.push_back(static_cast<int32_t>(label));
    }
    const std::vector<int64_t> mask = file.integers("in/mask");
    for (size_t b = 0; b < labels.size(); ++b) {
      const auto row = mask.begin() + static_cast<int64_t>(b) * shape.max_length;
      lengths.push_back(static_cast<int32_t>(std::accumulate(row, row + shape.max_length, 0)));
    }
  }

  void load_weights() const {
    for (const TaskConfig::ForeignName& name : names) {
      INFO(name.foreign);
      CHECK(file.at("param/" + name.foreign).shape == name.foreign_shape);
      const std::vector<float> values = file.floats("param/" + name.foreign);
      const Tensor value = parameters.value(parameters.find(name.name));
      REQUIRE(value.count() == std::ssize(values));
      be.op->upload(be.exec, value.count(), values.data(), value.data());
    }
  }

  /// Samples [first, first + count).
  UeaInputs batch(int64_t first, int64_t count) const {
    const int64_t sample = shape.max_length * shape.channels;
    const auto cut = [&](const std::vector<int32_t>& values) {
      return std::vector<int32_t>(values.begin() + first, values.begin() + first + count);
    };
    return {upload(be, {count, shape.max_length, shape.channels},
                   std::span(x).subspan(first * sample, count * sample)),
            upload(be, cut(lengths)), upload(be, cut(labels)), cut(lengths)};
  }
  UeaInputs batch() const { return batch(0, std::ssize(labels)); }

  SafetensorsFile file;
  Backend be = cpu_backend();
  ParameterSet parameters;
  UeaModelConfig config;
  UeaShape shape;
  double eta = 0;
  std::unique_ptr<UeaClassifier> model;
  std::vector<TaskConfig::ForeignName> names;
  std::vector<float> x;
  std::vector<int32_t> labels;
  std::vector<int32_t> lengths;
};

std::vector<fs::path> uea_files() {
  const auto files = reference_files([](const SafetensorsFile& file) {
    return has_keys(file, {"features", "d_model", "d_ff", "classes", "length", "low_rank"}) &&
           file.find("param/encoder.attn_layers.0.conv1.weight") != nullptr;
  });
  REQUIRE_FALSE(files.empty());
  return files;
}

}  // namespace

TEST_CASE("reference: UEA outputs and losses equal the authors' code") {
  for (const fs::path& path : uea_files()) {
    INFO(path.filename().string());
    UeaReference reference(path);
    Context ctx(reference.be, reference.parameters);
    const Var logits = reference.model->forward(ctx, reference.batch());
    check_close("logits", logits.value.floats(), reference.file.floats("out/logits"), 1e-5);

    // Sample by sample, because the file has each sample's losses.
    std::vector<float> cross_entropy;
    std::vector<float> ksvd;
    std::vector<float> loss;
    for (int64_t b = 0; b < std::ssize(reference.labels); ++b) {
      Context one(reference.be, reference.parameters);
      const BatchLoss terms = uea_loss(one, *reference.model, reference.batch(b, 1), reference.eta);
      cross_entropy.push_back(terms.task_loss.floats()[0]);
      ksvd.push_back(terms.ksvd_loss.floats()[0]);
      loss.push_back(terms.total.value.floats()[0]);
    }
    check_close("cross entropy", cross_entropy, reference.file.floats("out/ce"), 1e-5);
    check_close("KSVD loss", ksvd, reference.file.floats("out/ksvd"), 1e-5);
    check_close("loss", loss, reference.file.floats("out/loss"), 1e-5);
  }
}

TEST_CASE("reference: UEA gradients equal the authors' code") {
  for (const fs::path& path : uea_files()) {
    INFO(path.filename().string());
    UeaReference reference(path);
    Tape tape(reference.be);
    Context ctx(reference.be, reference.parameters, tape, Rng(1, 0));
    const BatchLoss loss = uea_loss(ctx, *reference.model, reference.batch(), reference.eta);
    tape.backward(loss.total);
    for (const TaskConfig::ForeignName& name : reference.names) {
      const Tensor found = reference.parameters.gradient(reference.parameters.find(name.name));
      const std::vector<float> expected = reference.file.floats("grad/" + name.foreign);
      check_close(name.foreign, found.floats(), expected, 1e-5,
                  rounding_floor(reference.file, name.foreign, "key_projection.bias", expected));
    }
    double squares = 0;
    for (const float g : reference.parameters.gradients().floats()) {
      squares += static_cast<double>(g) * g;
    }
    const std::vector<float> norm{static_cast<float>(std::sqrt(squares))};
    check_close("gradient norm", norm, reference.file.floats("out/grad_norm"), 1e-5);
  }
}

TEST_CASE("reference: twelve RAdam steps on UEA equal the authors' code") {
  for (const fs::path& path : uea_files()) {
    INFO(path.filename().string());
    UeaReference reference(path);
    const std::vector<float> expected = reference.file.floats("out/loss_trajectory_radam");
    std::unique_ptr<OptimizerRule> rule = optimizer_kinds().front().make();
    for (const Kind<OptimizerRule>& kind : optimizer_kinds()) {
      if (kind.name == "radam") rule = kind.make();
    }
    rule->lr = 1e-3;
    rule->clip_norm = std::stod(reference.file.metadata().at("clip_norm"));
    Optimizer optimizer(*rule, reference.parameters, reference.be);
    std::vector<float> losses;
    for (size_t step = 0; step < expected.size(); ++step) {
      Tape tape(reference.be);
      Context ctx(reference.be, reference.parameters, tape, Rng(1, step));
      const BatchLoss loss = uea_loss(ctx, *reference.model, reference.batch(), reference.eta);
      losses.push_back(loss.total.value.floats()[0]);
      tape.backward(loss.total);
      optimizer.update(rule->lr);
    }
    check_close("losses", losses, expected, 1e-5);
    for (const TaskConfig::ForeignName& name : reference.names) {
      const Tensor found = reference.parameters.value(reference.parameters.find(name.name));
      check_close(name.foreign, found.floats(), reference.file.floats("after12/" + name.foreign),
                  1e-4);
    }
  }
}

namespace {

/// An LRA file's model, inputs and figures.
struct LraReference {
  explicit LraReference(const fs::path& path) : file(SafetensorsFile::read(path)) {
    std::string yaml = "dropout: 0\nattention_dropout: 0\nlayers:\n";
    for (int64_t i = 0; i < number(file, "num_layers"); ++i) {
      const bool primal = file.find(fmt::format("param/model.transformer_{}.mha.We", i)) != nullptr;
      yaml += "  - attention: ";
      yaml += primal ? fmt::format("{{kind: primal, rank: {}, rank_multi: {}}}\n",
                                   number(file, "low_rank"), number(file, "rank_multi"))
                     : "canonical\n";
    }
    yaml += fmt::format("dim: {}\nheads: {}\nfeedforward: {}\nhead: {}\n",
                        number(file, "transformer_dim"), number(file, "num_head"),
                        number(file, "transformer_hidden_dim"),
                        file.at("param/seq_classifer.mlpblock.0.bias").shape.at(0));
    read_config(ConfigSource::from_string(yaml, path.filename().string()), config);
    shape = {number(file, "vocab_size"), number(file, "max_seq_len"), number(file, "num_classes"),
             file.find("in/input_ids_1") != nullptr};
    eta = std::stod(file.metadata().at("eta"));
    KsvdConfig ksvd;
    ksvd.mean = KsvdConfig::Mean::batch;
    model = std::make_unique<LraClassifier>(be, parameters, config, ksvd, shape);
    parameters.allocate(be, 1);
    names = lra_pytorch_names(parameters);
    for (const TaskConfig::ForeignName& name : names) {
      INFO(name.foreign);
      CHECK(file.at("param/" + name.foreign).shape == name.foreign_shape);
      const std::vector<float> values = file.floats("param/" + name.foreign);
      const Tensor value = parameters.value(parameters.find(name.name));
      REQUIRE(value.count() == std::ssize(values));
      be.op->upload(be.exec, value.count(), values.data(), value.data());
    }
  }

  LraInputs batch() const {
    std::vector<int32_t> labels;
    for (const int64_t label : file.integers("in/label")) {
      labels.push_back(static_cast<int32_t>(label));
    }
    const int64_t parts = shape.pairs ? 2 : 1;
    std::vector<int32_t> ids;
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < std::ssize(labels); ++b) {
      for (int64_t part = 0; part < parts; ++part) {
        const auto tokens = file.integers(fmt::format("in/input_ids_{}", part));
        const auto mask = file.floats(fmt::format("in/mask_{}", part));
        int32_t length = 0;
        for (int64_t i = b * shape.max_length; i < (b + 1) * shape.max_length; ++i) {
          ids.push_back(static_cast<int32_t>(tokens[i]));
          length += mask[i] != 0 ? 1 : 0;
        }
        lengths.push_back(length);
      }
    }
    return {{be, ids, {std::ssize(lengths), shape.max_length}, shape.vocabulary},
            upload(be, lengths),
            upload(be, labels),
            lengths};
  }

  SafetensorsFile file;
  Backend be = cpu_backend();
  ParameterSet parameters;
  LraModelConfig config;
  LraShape shape;
  double eta = 0;
  std::unique_ptr<LraClassifier> model;
  std::vector<TaskConfig::ForeignName> names;
};

std::vector<fs::path> lra_files() {
  const auto files = reference_files([](const SafetensorsFile& file) {
    if (!has_keys(file, {"transformer_dim", "transformer_hidden_dim", "num_layers", "attention"}) ||
        file.find("param/model.transformer_0.norm1.weight") == nullptr) {
      return false;
    }
    const std::string& kind = file.metadata().at("attention");
    return kind == "primal_cos" || kind == "softmax";
  });
  REQUIRE_FALSE(files.empty());
  return files;
}

float mean_of(const std::vector<float>& values) {
  return static_cast<float>(std::accumulate(values.begin(), values.end(), 0.0) /
                            static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("reference: LRA outputs, losses and gradients equal the authors' code") {
  for (const fs::path& path : lra_files()) {
    INFO(path.filename().string());
    LraReference reference(path);
    const LraInputs batch = reference.batch();
    if (reference.file.find("out/token_out") != nullptr) {
      Context ctx(reference.be, reference.parameters);
      const Var out =
          ops::mask_positions(ctx, reference.model->encode(ctx, batch), batch.lengths_tensor);
      check_close("token outputs", out.value.floats(), reference.file.floats("out/token_out"),
                  1e-5);
      const Var logits = reference.model->forward(ctx, batch);
      check_close("logits", logits.value.floats(), reference.file.floats("out/logits"), 1e-5);
    }
    Tape tape(reference.be);
    Context ctx(reference.be, reference.parameters, tape, Rng(1, 0));
    const BatchLoss loss = lra_loss(ctx, *reference.model, batch, reference.eta);
    const std::vector<float> expected{mean_of(reference.file.floats("out/loss"))};
    check_close("loss", loss.total.value.floats(), expected, 1e-5);
    if (reference.file.find("out/loss_ksvd") != nullptr) {
      check_close("KSVD loss", loss.ksvd_loss.floats(), reference.file.floats("out/loss_ksvd"),
                  1e-5);
      const std::vector<float> entropy{mean_of(reference.file.floats("out/loss_ce"))};
      check_close("cross entropy", loss.task_loss.floats(), entropy, 1e-5);
    } else {
      CHECK_FALSE(loss.ksvd_loss.defined());
    }
    tape.backward(loss.total);
    for (const TaskConfig::ForeignName& name : reference.names) {
      const Tensor found = reference.parameters.gradient(reference.parameters.find(name.name));
      const std::vector<float> gradient = reference.file.floats("grad/" + name.foreign);
      check_close(name.foreign, found.floats(), gradient, 1e-5,
                  rounding_floor(reference.file, name.foreign, ".mha.W_k.bias", gradient));
    }
  }
}

TEST_CASE("reference: twenty AdamW steps on LRA, one cycle, equal the authors' code") {
  for (const fs::path& path : lra_files()) {
    INFO(path.filename().string());
    LraReference reference(path);
    const LraInputs batch = reference.batch();
    // AdamW lr 1e-3 betas .9,.999 eps 1e-6 wd 0; OneCycleLR max_lr 1e-3 pct_start .25 linear total
    // 20
    const RunConfig run =
        load_run_config(ConfigSource::from_string("task: uea\n"
                                                  "optimizer: {kind: adamw, lr: 1e-3, eps: 1e-6}\n"
                                                  "schedule: {kind: one_cycle, warmup_steps: 5}\n",
                                                  "reference"));
    Optimizer optimizer(*run.optimizer, reference.parameters, reference.be);
    const std::vector<float> expected = reference.file.floats("out/loss_trajectory_adamw_onecycle");
    std::vector<float> losses;
    std::vector<float> rates;
    for (size_t step = 0; step < expected.size(); ++step) {
      Tape tape(reference.be);
      Context ctx(reference.be, reference.parameters, tape, Rng(1, step));
      const BatchLoss loss = lra_loss(ctx, *reference.model, batch, reference.eta);
      losses.push_back(loss.total.value.floats()[0]);
      tape.backward(loss.total);
      const Rates now =
          run.schedule->rates(run.optimizer->lr, static_cast<int64_t>(step), std::ssize(expected));
      rates.push_back(static_cast<float>(now.lr));
      optimizer.update(now);
    }
    check_close("losses", losses, expected, 1e-5);
    check_close("learning rates", rates, reference.file.floats("out/lr"), 1e-5);
  }
}

TEST_CASE("reference: causal Primal-Attention equals the authors' code") {
  const std::vector<fs::path> files = reference_files([](const SafetensorsFile& file) {
    return has_keys(file, {"heads", "low_rank", "objective"}) &&
           file.find("param/concate_weight.weight") != nullptr;
  });
  REQUIRE_FALSE(files.empty());
  const std::pair<const char*, const char*> weight_names[] = {
      {"a.projection_e", "We"},
      {"a.projection_r", "Wr"},
      {"a.lambda", "Lambda"},
      {"a.mix.weight", "concate_weight.weight"},
      {"a.mix.bias", "concate_weight.bias"},
      {"a.query.weight", "query_projection.weight"},
      {"a.query.bias", "query_projection.bias"},
      {"a.key.weight", "key_projection.weight"},
      {"a.key.bias", "key_projection.bias"},
      {"a.output.weight", "out_projection.weight"},
      {"a.output.bias", "out_projection.bias"},
  };
  for (const fs::path& path : files) {
    INFO(path.filename().string());
    const SafetensorsFile file = SafetensorsFile::read(path);
    // objective: sum(y*upstream)+WEIGHT*mean(ksvd_per_sample)
    const std::string& objective = file.metadata().at("objective");
    const double eta = std::stod(objective.substr(objective.find('+') + 1));
    const Shape shape(file.at("in/x").shape);
    LayerConfig layer;
    read_config(ConfigSource::from_string(
                    fmt::format("attention: {{kind: primal, rank: {}, projection: static}}",
                                number(file, "low_rank")),
                    path.filename().string()),
                layer);
    AttentionSetup setup;
    setup.dim = shape[2];
    setup.heads = number(file, "heads");
    setup.max_length = shape[1];
    setup.causal = true;
    Backend be = cpu_backend();
    ParameterSet parameters;
    const auto attention = layer.attention->build(parameters, "a", setup);
    parameters.allocate(be, 1);
    REQUIRE(parameters.entries().size() == std::size(weight_names));
    for (const auto& [ours, theirs] : weight_names) {
      const std::vector<float> values = file.floats(std::string("param/") + theirs);
      const Tensor value = parameters.value(parameters.find(ours));
      INFO(theirs);
      REQUIRE(value.count() == std::ssize(values));
      be.op->upload(be.exec, value.count(), values.data(), value.data());
    }
    const Tensor x = upload(be, shape, file.floats("in/x"));

    const std::vector<float> per_sample = file.floats("out/ksvd_per_sample");
    for (int64_t b = 0; b < shape[0]; ++b) {
      Context one(be, parameters);
      attention->forward(one, {x.slice(b * shape[1] * shape[2], {1, shape[1], shape[2]})}, {});
      check_close("KSVD loss of sample " + std::to_string(b),
                  one.aux.of("ksvd").at(0).value.floats(),
                  std::span(per_sample).subspan(static_cast<size_t>(b), 1), 1e-5);
    }

    Tape tape(be);
    Context ctx(be, parameters, tape, Rng(1, 0));
    const Tensor dx = be.empty(shape);
    const Var y = attention->forward(ctx, {x, tape.leaf(dx)}, {});
    check_close("y", y.value.floats(), file.floats("out/y"), 1e-5);
    const Tensor upstream = upload(be, shape, file.floats("in/upstream"));
    const Var dot = tape.record(upload(be, {1}, std::vector<float>{0}),
                                [&](Tape& t, const Tensor&) { t.give(y, upstream); });
    tape.backward(ops::add_scaled(ctx, dot, ctx.aux.of("ksvd").at(0), eta));
    check_close("x", dx.floats(), file.floats("grad/x"), 1e-5);
    for (const auto& [ours, theirs] : weight_names) {
      check_close(theirs, parameters.gradient(parameters.find(ours)).floats(),
                  file.floats(std::string("grad/") + theirs), 1e-5);
    }
  }
}

TEST_CASE("reference: sampled rows are those of the authors' code") {
  const std::vector<fs::path> files = reference_files([](const SafetensorsFile& file) {
    return has_keys(file, {"note"}) && !file.tensors().empty() &&
           std::ranges::all_of(file.tensors(), [](const StoredTensor& tensor) {
             return tensor.name.starts_with('L') && tensor.name.find("_n") != std::string::npos;
           });
  });
  REQUIRE_FALSE(files.empty());
  for (const fs::path& path : files) {
    const SafetensorsFile file = SafetensorsFile::read(path);
    for (const StoredTensor& tensor : file.tensors()) {
      INFO(tensor.name);
      const int64_t length = std::stoll(tensor.name.substr(1));
      const int64_t m = std::stoll(tensor.name.substr(tensor.name.find("_n") + 2));
      std::vector<int64_t> found;
      for (int64_t i = 0; i < m; ++i) found.push_back(ops::sample_index(i, m, length));
      CHECK(found == file.integers(tensor.name));
    }
  }
}

}  // namespace primal

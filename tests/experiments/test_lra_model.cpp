#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "core/run_config.h"
#include "core/trainer.h"
#include "experiments/lra/task.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTexts = 32;

/// Texts of 3 to 60 bytes with a label each.
void write_texts(const fs::path& folder) {
  for (const char* split : {"train.tsv", "test.tsv"}) {
    std::ofstream file(folder / split);
    for (int64_t i = 0; i < kTexts; ++i) {
      std::string text;
      for (int64_t t = 0; t < 3 + i * 37 % 58; ++t) {
        text += static_cast<char>('a' + (i * 7 + t * t * 3) % 26);
      }
      file << i % 2 << '\t' << text << '\n';
    }
  }
}

struct Setup {
  Setup(const fs::path& folder, const std::string& model, const std::string& ksvd = "{eta: 0.5}")
      : config(load_run_config(ConfigSource::from_string(
            fmt::format("task: lra\n"
                        "data: {{name: text, root: {}, length: 60, protocol: paper, cache: none}}\n"
                        "model: {}\nksvd: {}\noptimizer: {{kind: adamw, eps: 1e-6}}\n",
                        folder.string(), model, ksvd),
            "test.yaml"))) {
    TaskSetup setup;
    task = config.task->make(be, setup);
  }

  /// Losses of steps on all texts, computed in so many parts. The optimizer is the published one
  /// with ten times its rate. AdamW's first steps take the sign of a gradient rather than its size,
  /// so that at a much larger rate, or without the published eps, the rounding of gradients near
  /// zero shows in the losses.
  std::vector<StepFigures> train(int64_t parts) {
    Optimizer optimizer(*config.optimizer, task->parameters(), be);
    std::vector<StepFigures> figures;
    for (int64_t step = 0; step < 6; ++step) {
      const auto order = epoch_order(1, step, kTexts);
      figures.push_back(train_step(be, *task, optimizer, 1, step, 1e-3, order, parts));
    }
    return figures;
  }

  Backend be = cpu_backend(2);
  RunConfig config;
  std::unique_ptr<Task> task;
};

std::string model_of(std::string_view first, std::string_view second, std::string_view rest) {
  const auto layer = [](std::string_view kind) {
    return kind == "primal" ? "{attention: {kind: primal, rank: 4, rank_multi: 3}}"
                            : fmt::format("{{attention: {}}}", kind);
  };
  return fmt::format("{{dim: 32, heads: 2, feedforward: 64, head: 16, layers: [{}, {}], {}}}",
                     layer(first), layer(second), rest);
}

}  // namespace

TEST_CASE("LRA: accumulation over parts gives the large batch's losses") {
  const TemporaryFolder folder("lra_accumulate");
  write_texts(folder.path);
  for (const auto& [first, second] :
       {std::pair{"canonical", "canonical"}, {"primal", "primal"}, {"canonical", "primal"}}) {
    for (const char* rest : {"dropout: 0.1", "padding: exact, dropout: 0, attention_dropout: 0"}) {
      for (const char* mean : {"batch", "sample"}) {
        CAPTURE(first, second, rest, mean);
        const std::string model = model_of(first, second, rest);
        const std::string ksvd = fmt::format("{{eta: 0.5, mean: {}}}", mean);
        const auto whole = Setup(folder.path, model, ksvd).train(1);
        for (const int64_t parts : {2, 5, 8}) {
          const auto split = Setup(folder.path, model, ksvd).train(parts);
          for (size_t step = 0; step < whole.size(); ++step) {
            CAPTURE(parts, step);
            CHECK(std::abs(split[step].loss - whole[step].loss) < 1e-6 * whole[step].loss);
            CHECK(std::abs(split[step].task_loss - whole[step].task_loss) <
                  1e-6 * whole[step].task_loss);
            CHECK(std::abs(split[step].gradient_norm - whole[step].gradient_norm) <
                  1e-4 * whole[step].gradient_norm);
            if (whole[step].ksvd_loss) {
              CHECK(std::abs(*split[step].ksvd_loss - *whole[step].ksvd_loss) <
                    1e-5 * std::max(1e-3, *whole[step].ksvd_loss));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("LRA: with padding exact, other company in a batch gives the same logits and KSVD loss") {
  const TemporaryFolder folder("lra_exact");
  write_texts(folder.path);
  for (const auto& [first, second] :
       {std::pair{"canonical", "canonical"}, {"primal", "primal"}, {"canonical", "primal"}}) {
    CAPTURE(first, second);
    Setup setup(folder.path, model_of(first, second, "padding: exact"), "{mean: sample}");
    const auto score = [&](int64_t batch) {
      std::vector<double> all;
      EvaluateOptions options;
      options.batch = batch;
      options.prediction = [&](const nlohmann::json& line) {
        for (const double p : line.at("probabilities")) all.push_back(p);
      };
      const nlohmann::json figures = setup.task->evaluate(setup.be, "test", options);
      all.push_back(figures.value("ksvd_loss", 0.0));
      return all;
    };
    const auto alone = score(1);
    for (const int64_t batch : {3, 32}) {
      const auto together = score(batch);
      REQUIRE(together.size() == alone.size());
      for (size_t i = 0; i < alone.size(); ++i) {
        CHECK(std::abs(together[i] - alone[i]) < 1e-6 * std::max(1.0, std::abs(alone[i])));
      }
    }
  }
}

TEST_CASE("LRA: bucketing visits every text once, in batches of like length") {
  const TemporaryFolder folder("lra_buckets");
  write_texts(folder.path);
  const auto config = [&](const char* data, const char* padding) {
    return load_run_config(ConfigSource::from_string(
        fmt::format("task: lra\ndata: {{name: text, root: {}, length: 60, protocol: paper, cache: "
                    "none, {}}}\nmodel: {{dim: 8, heads: 2, padding: {}}}\n",
                    folder.path.string(), data, padding),
        "test.yaml"));
  };
  Backend be = cpu_backend(1);
  const RunConfig run = config("bucketing: true", "exact");
  const auto task = run.task->make(be, {});
  const auto order = task->train_order(1, 0, 5);
  CHECK(order == task->train_order(1, 0, 5));
  CHECK(order != task->train_order(1, 1, 5));
  CHECK(std::set<int64_t>(order.begin(), order.end()).size() == kTexts);
  REQUIRE(std::ssize(order) == kTexts);
  // All texts fit one pool: sorted, cut and shuffled, batches do not overlap in length.
  const auto length = [](int64_t i) { return 3 + i * 37 % 58; };
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (int64_t b = 0; b < kTexts / 5; ++b) {
    int64_t low = 1000;
    int64_t high = 0;
    for (int64_t i = 5 * b; i < 5 * b + 5; ++i) {
      low = std::min(low, length(order[i]));
      high = std::max(high, length(order[i]));
    }
    spans.emplace_back(low, high);
  }
  const auto shuffled = spans;
  std::ranges::sort(spans);
  CHECK(spans != shuffled);
  for (size_t i = 1; i < spans.size(); ++i) CHECK(spans[i - 1].second <= spans[i].first);
  CHECK_THROWS_WITH(config("bucketing: true", "published"),
                    ContainsSubstring("data.bucketing saves nothing"));
}

TEST_CASE("LRA: every recipe file can be read") {
  int files = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(PRIMAL_SOURCE_DIR) / "experiments" / "lra")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path().string());
    CHECK_NOTHROW(load_run_config(ConfigSource::from_file(entry.path())));
    ++files;
  }
  CHECK(files >= 16);
}

TEST_CASE("LRA: every published recipe file has the published values") {
  const fs::path folder = fs::path(PRIMAL_SOURCE_DIR) / "experiments" / "lra";
  struct Row {
    const char* name;
    int64_t cut, padded, vocabulary, batch, warmup, steps;
    std::pair<int, double> primal, plus;
  };
  const Row rows[] = {
      {"listops", 2000, 2048, 32, 32, 1000, 5000, {20, .1}, {30, .05}},
      {"text", 4000, 4096, 512, 32, 8000, 20000, {20, .05}, {30, .1}},
      {"retrieval", 4000, 4096, 512, 32, 800, 30000, {30, 0}, {20, .05}},
      {"image", 1024, 1024, 512, 256, 175, 35000, {30, .1}, {30, .1}},
      {"pathfinder", 1024, 1024, 512, 256, 312, 62400, {30, .1}, {20, .05}},
  };
  for (const Row& row : rows) {
    for (const std::string kind : {"", "_primal", "_primal_plus"}) {
      const fs::path path = folder / (row.name + kind + ".yaml");
      CAPTURE(path.string());
      const RunConfig run = load_run_config(ConfigSource::from_file(path));
      auto& lra = dynamic_cast<LraConfig&>(*run.task);
      CHECK(name_of(lra.data.name) == row.name);
      CHECK(lra.data.cut() == row.cut);
      CHECK(lra.data.padded_length() == row.padded);
      CHECK(facts_of(lra.data.name).vocabulary == row.vocabulary);
      CHECK(run.train.batch == row.batch);
      CHECK(run.train.max_steps == row.steps);
      CHECK(run.optimizer->kind() == "adamw");
      CHECK(run.optimizer->lr == 1e-4);
      CHECK(run.optimizer->eps == 1e-6);
      CHECK(run.schedule->rate(1e-4, row.warmup - 1, row.steps) == 1e-4);
      CHECK(run.schedule->rate(1e-4, 0, row.steps) == 1e-4 / 25);
      CHECK(lra.model.encoder.dim == 64);
      CHECK(lra.model.encoder.heads == 2);
      CHECK(lra.model.encoder.norm == NormPlace::pre);
      CHECK(lra.ksvd.mean == KsvdConfig::Mean::batch);
      REQUIRE(lra.model.encoder.layers.size() == 2);
      const bool primal = kind == "_primal";
      CHECK(lra.model.encoder.layers[0].attention->kind() == (primal ? "primal" : "canonical"));
      CHECK(lra.model.encoder.layers[1].attention->kind() ==
            (kind.empty() ? "canonical" : "primal"));
      if (kind.empty()) continue;
      const auto& [rank, eta] = primal ? row.primal : row.plus;
      CHECK(lra.ksvd.eta == eta);
      const std::string layer = print_config(lra.model.encoder.layers[1]);
      CHECK(layer.find(fmt::format("rank: {}", rank)) != std::string::npos);
      CHECK(layer.find("rank_multi: 10") != std::string::npos);
    }
  }
}

TEST_CASE("LRA: random data has the configured or given sizes") {
  Backend be = cpu_backend(1);
  const RunConfig run = load_run_config(ConfigSource::from_string(
      "task: lra\ndata: {name: retrieval, length: 30}\nmodel: {dim: 8, heads: 2}", "test.yaml"));
  TaskSetup setup;
  setup.random_data = nlohmann::json{{"examples", 3}};
  const auto task = run.task->make(be, setup);
  CHECK(task->train_size() == 3);
  CHECK(task->facts().at("padded_length") == 32);
  setup.random_data = nlohmann::json{{"length", 40}, {"classes", 5}, {"vocabulary", 7}};
  const auto other = run.task->make(be, setup);
  CHECK(other->facts().at("padded_length") == 40);
  CHECK(other->facts().at("classes").size() == 5);
  setup.random_data = nlohmann::json{{"width", 40}};
  CHECK_THROWS_WITH(run.task->make(be, setup),
                    "lra: random data has length, vocabulary, classes and examples, not 'width'");
}

}  // namespace primal

#include <fmt/format.h>

#include "apps/command_line.h"
#include "core/files.h"
#include "core/saved_model.h"

namespace {

using namespace primal;
namespace fs = std::filesystem;
using nlohmann::json;

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string split = "test";
  std::string json;
  std::string predictions;
  int threads = 0;
};

/// `text` as a field of a CSV file (RFC 4180).
std::string csv_field(const json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

/// One line per example: of JSON, or comma-separated with a column per class's probability.
class Predictions {
 public:
  explicit Predictions(const fs::path& path) : path_(path), csv_(path.extension() == ".csv") {
    if (!csv_ && path.extension() != ".jsonl") {
      throw UsageError("--predictions " + path.string() +
                       ": expected a name ending in .csv or .jsonl");
    }
  }
  void add(const json& row) {
    if (csv_) {
      rows_.push_back(row);
    } else {
      text_ += row.dump() + "\n";
    }
  }
  void write(const json& classes) {
    if (csv_) {
      text_ = "index,label,prediction";
      for (const auto& name : classes) text_ += ",p_" + csv_field(name);
      text_ += "\n";
      for (const json& row : rows_) {
        text_ += fmt::format("{},{},{}", row.at("index").dump(), csv_field(row.at("label")),
                             csv_field(row.at("prediction")));
        for (const auto& p : row.at("probabilities")) text_ += "," + p.dump();
        text_ += "\n";
      }
    }
    write_file_atomically(path_, text_);
  }

 private:
  fs::path path_;
  bool csv_;
  std::vector<json> rows_;
  std::string text_;
};

std::string percent(const json& ratio) {
  return ratio.is_number() ? fmt::format("{:6.2f} %", 100 * ratio.get<double>()) : "       -";
}

void print(const json& figures) {
  for (const auto& [key, value] : figures.items()) {
    if (value.is_number()) fmt::print("{}: {}\n", key, value.dump());
  }
  if (figures.contains("per_class")) {
    fmt::print("\n{:<24} {:>8} {:>8} {:>7}\n", "class", "precision", "recall", "cases");
    for (const auto& row : figures.at("per_class")) {
      fmt::print("{:<24} {} {} {:>7}\n", row.at("class").get<std::string>(),
                 percent(row.at("precision")), percent(row.at("recall")),
                 row.at("count").get<int64_t>());
    }
  }
  if (figures.contains("confusion")) {
    fmt::print("\nconfusion (rows: label, columns: prediction)\n");
    for (const auto& row : figures.at("confusion")) {
      for (const auto& n : row) fmt::print("{:>6}", n.get<int64_t>());
      fmt::print("\n");
    }
  }
}

int evaluate(const Arguments& a) {
  check_override_keys(a.overrides, {"data.root", "train.evaluate_batch"}, "when a model is scored");
  std::optional<Predictions> predictions;
  if (!a.predictions.empty()) predictions.emplace(a.predictions);
  for (const std::string& file : {a.json, a.predictions}) {
    if (!file.empty()) check_output_file(file);
  }
  if (!a.json.empty() && !a.predictions.empty() &&
      fs::weakly_canonical(fs::absolute(a.json)) ==
          fs::weakly_canonical(fs::absolute(a.predictions))) {
    throw UsageError("--json and --predictions name the same file, " + a.json);
  }
  const auto model = load_model(a.checkpoint, a.overrides, a.threads, {a.split});
  for (const auto& warning : model->warnings) std::cerr << "warning: " << warning << "\n";

  EvaluateOptions options;
  options.batch = model->config.train.evaluate_batch;
  if (predictions) options.prediction = [&](const json& row) { predictions->add(row); };
  json figures = model->task->evaluate(model->backend, a.split, options);
  if (predictions) predictions->write(figures.value("classes", json::array()));
  figures["split"] = a.split;
  figures["checkpoint"] = model->directory.string();
  figures["step"] = model->step;
  if (!a.json.empty()) write_file_atomically(a.json, figures.dump(1) + "\n");
  fmt::print("checkpoint: {}{}\nsplit: {}\n", model->directory.string(),
             model->best ? " (best of the run)" : "", a.split);
  print(figures);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Scores a checkpoint. Needs nothing but the checkpoint and the data.",
               "primal-eval"};
  add_path_option(app, "--checkpoint", a.checkpoint, "DIR",
                  "A step-N folder, or a run folder: its best checkpoint, else its last")
      ->required();
  app.add_option("--split", a.split, "What to score")
      ->check(CLI::IsMember({"test", "validation", "train"}))
      ->capture_default_str();
  add_path_option(app, "--json", a.json, "FILE", "Write the figures to this file");
  add_path_option(app, "--predictions", a.predictions, "FILE",
                  "Write one line per case: .csv or .jsonl");
  app.add_option("--threads", a.threads, "Threads; default: all usable cores")
      ->check(CLI::Range(1, 1024));
  add_set_option(app, a.overrides);
  return run_program(app, argc, argv, true, [&] { return evaluate(a); });
}

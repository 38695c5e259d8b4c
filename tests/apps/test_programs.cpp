#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "core/checkpoint.h"
#include "core/run_folder.h"
#include "core/safetensors.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// A folder with generated data and a small configuration, config.yaml.
struct Workplace {
  TemporaryFolder folder{"programs"};
  const fs::path& path = folder.path;

  Workplace() {
    const Finished made = run(
        "primal-data", {"generate", "uea", "--output", "data", "--train", "40", "--test", "40"});
    if (made.code != 0) throw std::runtime_error(made.text);
    std::ofstream(path / "config.yaml") << R"(
task: uea
data: {root: data, name: Generated, protocol: validation}
model:
  dim: 16
  heads: 2
  feedforward: 32
  dropout: 0.1
  layers:
    - attention: canonical
    - attention: {kind: primal, rank: 4, rank_multi: 2}
ksvd: {eta: 0.1, mean: sample}
optimizer: {kind: radam, lr: 3e-3, clip_norm: 4.0}
train: {epochs: 6, batch: 8, save_every: 2}
)";
  }
  /// One thread unless the arguments say otherwise, so that tests that run at a time do not wait
  /// for one another.
  Finished run(const std::string& program, std::vector<std::string> arguments,
               rlim_t file_limit = RLIM_INFINITY) const {
    if (program != "primal-data" && std::ranges::find(arguments, "--threads") == arguments.end()) {
      arguments.insert(arguments.end(), {"--threads", "1"});
    }
    return run_program(program, std::move(arguments), path, file_limit);
  }
  std::vector<std::string> train(const std::string& output,
                                 std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"--config", "config.yaml", "--output",
                                       output,     "--threads",   "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// metrics.jsonl without what depends on the clock or the machine.
  std::vector<json> metrics(const std::string& run) const {
    std::ifstream file(path / run / "metrics.jsonl");
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) {
      json object = json::parse(line);
      for (const char* key : {"step_ms", "samples_per_s", "seconds", "memory_allocated",
                              "memory_peak", "memory_reserved", "memory_process"}) {
        object.erase(key);
      }
      lines.push_back(std::move(object));
    }
    return lines;
  }
  /// The bytes of the last checkpoint's tensors.
  std::string weights(const std::string& run) const {
    const fs::path directory = load_checkpoint(path / run).directory;
    return read(directory / "model.safetensors") + read(directory / "optimizer.safetensors");
  }
  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  json result(const std::string& run) const {
    return json::parse(read(path / run / "result.json"));
  }
};

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

}  // namespace

TEST_CASE(
    "primal-train ends with the place of the model, and the folder holds all that is promised") {
  const Workplace work;
  const Finished done = work.run("primal-train", work.train("run"));
  CAPTURE(done.text);
  REQUIRE(done.code == 0);
  REQUIRE_THAT(last_line(done.text), ContainsSubstring("model: run/checkpoints/step-"));
  for (const char* name : {"config.yaml", "environment.json", "metrics.jsonl", "result.json"}) {
    REQUIRE(fs::exists(work.path / "run" / name));
  }
  REQUIRE_THAT(done.text, ContainsSubstring("parameters: "));
  REQUIRE_THAT(done.text, ContainsSubstring("device: cpu, 1 of "));
  const json result = work.result("run");
  for (const char* key : {"best_test_accuracy", "last_test_accuracy", "best_validation_accuracy",
                          "test_accuracy_at_best_validation", "ksvd_loss", "seconds"}) {
    CAPTURE(key);
    REQUIRE(result.contains(key));
  }
  for (const json& line : work.metrics("run")) {
    if (line.at("event") != "step") continue;
    for (const char* key : {"step", "epoch", "loss", "task_loss", "ksvd_loss", "ksvd_weight", "lr",
                            "grad_norm", "accuracy"}) {
      CAPTURE(key);
      REQUIRE(line.contains(key));
    }
    REQUIRE(line.at("loss").get<double>() ==
            Approx(line.at("task_loss").get<double>() + 0.1 * line.at("ksvd_loss").get<double>()));
  }
}

TEST_CASE("losses and weights are the same bits with 1, 2 and 4 threads") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("one")).code == 0);
  for (const std::string threads : {"2", "4"}) {
    CAPTURE(threads);
    REQUIRE(work.run("primal-train",
                     {"--config", "config.yaml", "--output", threads, "--threads", threads})
                .code == 0);
    REQUIRE(work.metrics(threads) == work.metrics("one"));
    REQUIRE(work.weights(threads) == work.weights("one"));
  }
}

TEST_CASE("a run killed at random moments and resumed ends bit for bit as an uninterrupted one") {
  const Workplace work;
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(work.run("primal-train", work.train("whole")).code == 0);
  const std::chrono::duration<double, std::milli> length = std::chrono::steady_clock::now() - start;
  std::mt19937 random(20);
  for (int i = 0; i < 20; ++i) {
    const std::string run = "killed" + std::to_string(i);
    const auto delay =
        static_cast<int>(length.count() * std::uniform_real_distribution<>(0, 1)(random));
    CAPTURE(i, delay);
    {
      Process process("primal-train", work.train(run), work.path);
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      process.send(SIGKILL);
      process.wait();
    }
    // The configuration is for a run that was killed before it wrote its own.
    const Finished resumed =
        work.run("primal-train", {"--config", "config.yaml", "--resume", run, "--threads", "1"});
    CAPTURE(resumed.text);
    REQUIRE(resumed.code == 0);
    REQUIRE(work.metrics(run) == work.metrics("whole"));
    REQUIRE(work.weights(run) == work.weights("whole"));
    REQUIRE(work.result(run).at("best_test_accuracy") ==
            work.result("whole").at("best_test_accuracy"));
  }
}

TEST_CASE("SIGINT, SIGTERM and SIGHUP finish the step, save, and end with 130, 143 and 129") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("whole", {"--set", "train.epochs=60"})).code == 0);
  for (const auto& [signal, name] :
       {std::pair(SIGINT, "SIGINT"), std::pair(SIGTERM, "SIGTERM"), std::pair(SIGHUP, "SIGHUP")}) {
    const std::string run = std::to_string(signal);
    Process process("primal-train", work.train(run, {"--set", "train.epochs=60"}), work.path);
    REQUIRE(process.wait_until([&] { return work.metrics(run).size() > 20; }));
    process.send(signal);
    REQUIRE(process.wait() == 128 + signal);
    REQUIRE_THAT(process.text(), ContainsSubstring("a second signal ends at once"));
    REQUIRE_THAT(process.text(), ContainsSubstring(std::string("stopped by ") + name));
    REQUIRE_THAT(last_line(process.text()),
                 ContainsSubstring("model: " + run + "/checkpoints/step-"));
    const size_t written = work.metrics(run).size();
    REQUIRE(load_checkpoint(work.path / run).step > 0);
    const Finished resumed = work.run("primal-train", {"--resume", run, "--threads", "1"});
    REQUIRE(resumed.code == 0);
    REQUIRE(written < work.metrics(run).size());
    REQUIRE(work.metrics(run) == work.metrics("whole"));
    REQUIRE(work.weights(run) == work.weights("whole"));
    // An epoch's seconds are those of all its updates, also of those before the interruption.
    std::ifstream file(work.path / run / "metrics.jsonl");
    double seconds = 0;
    for (std::string text; std::getline(file, text);) {
      const json line = json::parse(text);
      if (line.at("event") == "step") seconds += line.at("step_ms").get<double>() / 1e3;
      if (line.at("event") != "epoch") continue;
      REQUIRE(line.at("seconds").get<double>() == Approx(seconds));
      seconds = 0;
    }
  }
}

TEST_CASE("a second signal ends the program at once and leaves every checkpoint whole") {
  const Workplace work;
  Process process("primal-train", work.train("run", {"--set", "train.epochs=5000"}), work.path);
  REQUIRE(process.wait_until([&] { return fs::exists(work.path / "run/checkpoints/best.json"); }));
  process.send(SIGTERM);
  process.send(SIGINT);
  const int code = process.wait();
  REQUIRE((code == 128 + SIGTERM || code == 128 + SIGINT));
  const LoadedCheckpoint last = load_checkpoint(work.path / "run");
  REQUIRE(last.step > 0);
  REQUIRE(last.warnings.empty());
}

TEST_CASE("a run folder in which another trainer is at work is refused") {
  const Workplace work;
  {
    const RunLock other(work.path / "run");
    const Finished refused = work.run("primal-train", work.train("run"));
    CAPTURE(refused.text);
    REQUIRE(refused.code == 1);
    REQUIRE_THAT(last_line(refused.text), ContainsSubstring("another primal-train is at work"));
    REQUIRE_FALSE(fs::exists(work.path / "run" / "config.yaml"));
  }
  REQUIRE(work.run("primal-train", work.train("run")).code == 0);
}

TEST_CASE("overwriting a run refuses to remove what no run wrote") {
  const Workplace work;
  for (const char* name : {"run/config.yaml", "run/metrics.jsonl", "run/checkpoints/mine.pt",
                           "run/checkpoints/step-5/w.bin"}) {
    CAPTURE(name);
    const fs::path foreign = work.path / name;
    fs::create_directories(foreign.parent_path());
    std::ofstream(foreign) << "mine";
    const Finished refused = work.run("primal-train", work.train("run", {"--overwrite"}));
    CAPTURE(refused.text);
    REQUIRE(refused.code == 1);
    REQUIRE_THAT(last_line(refused.text), ContainsSubstring("was not written by primal-train"));
    REQUIRE(Workplace::read(foreign) == "mine");
    fs::remove_all(work.path / "run");
  }
  fs::create_directories(work.path / "run" / ".notes.tmp-2024");
  std::ofstream(work.path / "run" / "thesis.txt") << "mine";
  REQUIRE(work.run("primal-train", work.train("run", {"--overwrite"})).code == 0);
  REQUIRE(fs::exists(work.path / "run" / ".notes.tmp-2024"));
  REQUIRE(fs::exists(work.path / "run" / "thesis.txt"));
}

TEST_CASE("resuming a checkpoint, or a run without its checkpoints, changes nothing") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run")).code == 0);
  const fs::path step = load_checkpoint(work.path / "run").directory;
  const std::string before = Workplace::read(step / "config.yaml");
  for (const fs::path& folder : {step, step.parent_path()}) {
    const Finished refused =
        work.run("primal-train", {"--resume", folder.string(), "--set", "train.epochs=9"});
    CAPTURE(refused.text);
    REQUIRE(refused.code == 1);
    REQUIRE_THAT(last_line(refused.text), ContainsSubstring("--resume takes the run's folder"));
  }
  REQUIRE(Workplace::read(step / "config.yaml") == before);
  const std::string metrics = Workplace::read(work.path / "run" / "metrics.jsonl");
  fs::rename(work.path / "run" / "checkpoints", work.path / "elsewhere");
  const Finished refused = work.run("primal-train", {"--resume", "run"});
  REQUIRE(refused.code == 1);
  REQUIRE_THAT(last_line(refused.text), ContainsSubstring("no checkpoints"));
  REQUIRE(Workplace::read(work.path / "run" / "metrics.jsonl") == metrics);
}

TEST_CASE("weights that have diverged are an error when a split is scored") {
  const Workplace work;
  const Finished done =
      work.run("primal-train",
               work.train("run", {"--set", "optimizer.kind=adam", "--set", "optimizer.lr=1e30",
                                  "--set", "train.batch=1000", "--set", "train.epochs=1"}));
  CAPTURE(done.text);
  REQUIRE(done.code == 1);
  REQUIRE_THAT(last_line(done.text), ContainsSubstring("the model's output is not a number"));
}

TEST_CASE("a failing save, as on a full disk, is one line and keeps the earlier checkpoints") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("probe", {"--set", "train.epochs=1"})).code == 0);
  const auto optimizer =
      fs::file_size(load_checkpoint(work.path / "probe").directory / "optimizer.safetensors");
  const Finished none = work.run("primal-train", work.train("none"), optimizer / 2);
  CAPTURE(none.text);
  REQUIRE(none.code == 1);
  REQUIRE_THAT(last_line(none.text), ContainsSubstring("was not saved"));
  const Finished full = work.run("primal-train", work.train("full", {"--set", "train.epochs=5000"}),
                                 optimizer + 4096);
  CAPTURE(full.text);
  REQUIRE(full.code == 1);
  REQUIRE_THAT(last_line(full.text), ContainsSubstring("primal-train: "));
  REQUIRE(load_checkpoint(work.path / "full").step > 0);
  REQUIRE(load_checkpoint(work.path / "full").warnings.empty());
  // With room again, the run goes on from there.
  const int64_t more = load_checkpoint(work.path / "full").step + 10;
  REQUIRE(work.run("primal-train",
                   {"--resume", "full", "--set", fmt::format("train.max_steps={}", more)})
              .code == 0);
}

TEST_CASE("an output that cannot be written is one line and exit code 1") {
  const Workplace work;
  const Finished done = work.run("primal-train", work.train("/proc/nowhere/run"));
  CAPTURE(done.text);
  REQUIRE(done.code == 1);
  REQUIRE_THAT(last_line(done.text), ContainsSubstring("/proc/nowhere"));
  std::ofstream(work.path / "file") << "not a folder";
  REQUIRE(work.run("primal-train", work.train("file")).code == 1);
}

TEST_CASE("an existing run is refused, replaced with --overwrite, and not lost when that fails") {
  const Workplace work;
  const std::vector<std::string> quick{"--set", "train.epochs=1"};
  REQUIRE(work.run("primal-train", work.train("run", quick)).code == 0);
  std::ofstream(work.path / "run" / "notes.txt") << "mine";
  const std::string before = work.weights("run");
  const Finished refused = work.run("primal-train", work.train("run", quick));
  REQUIRE(refused.code == 1);
  REQUIRE_THAT(refused.text, ContainsSubstring("--overwrite"));
  REQUIRE(work.weights("run") == before);
  // Broken configuration, broken data: the old run must survive both.
  REQUIRE(
      work.run("primal-train", work.train("run", {"--overwrite", "--set", "train.epoch=1"})).code ==
      2);
  REQUIRE(work.run("primal-train", work.train("run", {"--overwrite", "--set", "data.name=Nothing"}))
              .code == 1);
  REQUIRE(work.weights("run") == before);
  REQUIRE(work.run("primal-train",
                   work.train("run", {"--overwrite", "--set", "seed=2", "--set", "train.epochs=1"}))
              .code == 0);
  REQUIRE(work.weights("run") != before);
  REQUIRE(Workplace::read(work.path / "run" / "notes.txt") == "mine");
}

TEST_CASE("wrong usage ends with code 2 and says what was meant") {
  const Workplace work;
  const auto check = [&](std::vector<std::string> arguments, const std::string& expected) {
    const Finished done = work.run("primal-train", std::move(arguments));
    CAPTURE(done.text, expected);
    REQUIRE(done.code == 2);
    REQUIRE_THAT(done.text, ContainsSubstring(expected));
    REQUIRE(std::count(done.text.begin(), done.text.end(), '\n') == 1);
  };
  check({"--config", "config.yaml", "--epoch", "5"},
        "'--epoch'; did you mean --set train.epochs=VALUE?");
  check({"--config", "config.yaml", "--epochs=5"}, "did you mean --set train.epochs=VALUE?");
  check({"--config", "config.yaml", "--min-delta", "1"},
        "did you mean --set train.early_stopping.min_delta=VALUE?");
  check({"--confg", "config.yaml"}, "'--confg'; did you mean --config?");
  check({"--config", "config.yaml", "--set", "train.epoch=5"}, "did you mean 'train.epochs'?");
  check({"--config", "config.yaml", "stray"}, "unknown argument 'stray' (");
  check({"config.yaml"}, "unknown argument 'config.yaml'; did you mean --config config.yaml?");
  check({"--config", "config.yaml", "--set", "seed=1", "train.epochs=2"},
        "unknown argument 'train.epochs=2'; did you mean --set train.epochs=2?");
  check({"--config", "config.yaml", "--threads", "0"}, "--threads");
  check({"--config", "config.yaml", "--device", "gpu"}, "--device");
  check({"--config", "config.yaml", "--set", "precision=fp16"}, "--set precision=fp16: ");
  check({"--config", "config.yaml", "--set", "model.heads=3"},
        "--set model.heads=3: model.dim 16 cannot be split into model.heads 3");
  check({"--config", "config.yaml", "--output", ""}, "--output: the name is empty");
  check({"--config", "config.yaml", "--output", "r\xFFn"}, "not UTF-8");
  check({"--resume", "x", "--output", "y"}, "--resume");
  check({}, "--config FILE or --resume DIR is needed");
}

TEST_CASE("every program says its version, which its runs record") {
  const Workplace work;
  std::string said;
  for (const char* program : {"primal-train", "primal-eval", "primal-bench", "primal-data"}) {
    const Finished done = work.run(program, {"--version"});
    CAPTURE(program, done.text);
    REQUIRE(done.code == 0);
    REQUIRE_THAT(done.text, ContainsSubstring("primal 0."));
    said = done.text;
  }
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  const json starts = json::parse(Workplace::read(work.path / "run" / "environment.json"));
  REQUIRE("primal " + starts.at(0).at("version").get<std::string>() + "\n" == said);
}

TEST_CASE("a run without Primal-Attention has no KSVD figures") {
  const Workplace work;
  const Finished done =
      work.run("primal-train", work.train("run", {"--set", "train.epochs=1", "--set",
                                                  "model.layers=[{attention: canonical}]"}));
  CAPTURE(done.text);
  REQUIRE(done.code == 0);
  REQUIRE(done.text.find("ksvd") == std::string::npos);
  REQUIRE(Workplace::read(work.path / "run" / "metrics.jsonl").find("ksvd") == std::string::npos);
}

TEST_CASE("an output file that cannot be written is refused before the work") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  fs::create_directory(work.path / "folder");
  const auto check = [&](const std::string& program, std::vector<std::string> arguments, int code,
                         const std::string& expected) {
    const Finished done = work.run(program, std::move(arguments));
    CAPTURE(done.text, expected);
    REQUIRE(done.code == code);
    REQUIRE(done.text == program + ": " + expected + "\n");
  };
  const std::string missing = "no/x.json: cannot create: No such file or directory";
  check("primal-eval", {"--checkpoint", "run", "--json", "no/x.json"}, 1, missing);
  check("primal-eval", {"--checkpoint", "run", "--predictions", "no/x.csv"}, 1,
        "no/x.csv: cannot create: No such file or directory");
  check("primal-eval", {"--checkpoint", "run", "--json", "folder"}, 1,
        "folder: is a folder; the name of a file is needed");
  check("primal-eval",
        {"--checkpoint", "run", "--json", "a.csv", "--predictions", "folder/../a.csv"}, 2,
        "--json and --predictions name the same file, a.csv");
  check("primal-bench", {"step", "--config", "config.yaml", "--json", "no/x.json"}, 1, missing);
  check("primal-data", {"export", "--checkpoint", "run", "--pytorch-names", "no/x.json"}, 1,
        missing);
  check("primal-bench", {"stepp", "--config", "config.yaml"}, 2,
        "unknown command 'stepp'; did you mean 'step'? (--help lists the commands)");
}

TEST_CASE("printing to a full disk ends with code 1") {
  if (!fs::exists("/dev/full")) {
    WARN("skipped: no /dev/full");
    return;
  }
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  for (const std::string command :
       {"primal-train --config config.yaml --print-config", "primal-train --describe-config uea",
        "primal-eval --checkpoint run", "primal-data inspect data", "primal-data --help"}) {
    CAPTURE(command);
    const std::string shell = fmt::format("cd '{}' && '{}'/{} > /dev/full 2> full.txt",
                                          work.path.string(), PRIMAL_BINARY_DIR, command);
    const int status = std::system(shell.c_str());
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 1);
    const std::string text = Workplace::read(work.path / "full.txt");
    REQUIRE_THAT(text, ContainsSubstring(command.substr(0, command.find(' ')) + ": "));
    REQUIRE(std::count(text.begin(), text.end(), '\n') == 1);
  }
}

TEST_CASE("resuming a complete run with fewer epochs leaves its folder as it was") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=3"})).code == 0);
  const auto contents = [&] {
    std::string all;
    for (const char* name : {"config.yaml", "environment.json", "metrics.jsonl", "result.json"}) {
      all += Workplace::read(work.path / "run" / name);
    }
    return all;
  };
  const std::string before = contents();
  const Finished again = work.run("primal-train", {"--resume", "run", "--set", "train.epochs=2"});
  CAPTURE(again.text);
  REQUIRE(again.code == 0);
  REQUIRE_THAT(again.text, ContainsSubstring("raise train.epochs to go on"));
  REQUIRE(contents() == before);
}

TEST_CASE("a run stopped early says which key lets it go on") {
  const Workplace work;
  const std::vector<std::string> stop{"--set", "train.early_stopping.patience=1", "--set",
                                      "train.early_stopping.min_delta=1"};
  REQUIRE(work.run("primal-train", work.train("run", stop)).code == 0);
  REQUIRE(work.result("run").at("stopped_by") == "early_stopping");
  REQUIRE_THAT(work.run("primal-train", {"--resume", "run"}).text,
               ContainsSubstring("raise train.early_stopping.patience to go on"));
}

TEST_CASE("a resumed run records the data files as the first start did") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  const json facts = work.result("run").at("facts");
  REQUIRE(facts.at("files").at("test").contains("checksum"));
  REQUIRE(work.run("primal-train", {"--resume", "run", "--set", "train.epochs=2"}).code == 0);
  REQUIRE(work.result("run").at("facts") == facts);
}

TEST_CASE("a run that had not begun starts with the given configuration and its overrides") {
  const Workplace work;
  const Finished done =
      work.run("primal-train", {"--resume", "new", "--config", "config.yaml", "--set",
                                "model.dim=8", "--set", "train.epochs=1"});
  CAPTURE(done.text);
  REQUIRE(done.code == 0);
  REQUIRE_THAT(Workplace::read(work.path / "new" / "config.yaml"), ContainsSubstring("dim: 8"));
}

TEST_CASE("errors before training end with code 1 and one line") {
  const Workplace work;
  const auto check = [&](std::vector<std::string> arguments, const std::string& expected) {
    const Finished done = work.run("primal-train", std::move(arguments));
    CAPTURE(done.text, expected);
    REQUIRE(done.code == 1);
    REQUIRE_THAT(done.text, ContainsSubstring(expected));
    REQUIRE_FALSE(fs::exists(work.path / "runs"));
  };
  check({"--config", "missing.yaml"}, "missing.yaml");
  check({"--config", "config.yaml", "--device", "cuda"}, "device: cuda: ");
  check({"--config", "config.yaml", "--set", "task=ueaa"}, "did you mean 'uea'?");
  check({"--config", "config.yaml", "--set", "data.root=nowhere"}, "nowhere");
  check({"--resume", "nowhere"}, "there is no run");
}

TEST_CASE("a printed configuration reads back as the same, and --check saves nothing") {
  const Workplace work;
  const Finished printed =
      work.run("primal-train", {"--config", "config.yaml", "--set", "seed=5", "--print-config"});
  REQUIRE(printed.code == 0);
  std::ofstream(work.path / "printed.yaml") << printed.text;
  REQUIRE(work.run("primal-train", {"--config", "printed.yaml", "--print-config"}).text ==
          printed.text);
  REQUIRE_THAT(printed.text, ContainsSubstring("seed: 5"));
  const Finished checked = work.run("primal-train", {"--config", "config.yaml", "--check"});
  REQUIRE(checked.code == 0);
  REQUIRE_THAT(last_line(checked.text), ContainsSubstring("OK"));
  REQUIRE_FALSE(fs::exists(work.path / "runs"));
}

TEST_CASE("a run without --output gets a portable name") {
  const Workplace work;
  fs::rename(work.path / "config.yaml", work.path / "my config: a.yaml");
  REQUIRE(
      work.run("primal-train", {"--config", "my config: a.yaml", "--set", "train.epochs=1"}).code ==
      0);
  REQUIRE(fs::exists(work.path / "runs" / "my_config__a-1" / "result.json"));
}

TEST_CASE("output that is no terminal is flushed line by line, without control characters") {
  const Workplace work;
  Process process("primal-train", work.train("run", {"--set", "train.epochs=500"}), work.path);
  REQUIRE(
      process.wait_until([&] { return process.text().find("epoch 2/500") != std::string::npos; }));
  REQUIRE(process.text().find('\r') == std::string::npos);
  REQUIRE(process.text().find('\033') == std::string::npos);
  REQUIRE_THAT(process.text(), ContainsSubstring("step 1/"));
}

TEST_CASE(
    "a resumed run reports changed settings, refuses others, and leaves a complete run alone") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  const std::string before = work.weights("run");
  const Finished complete = work.run("primal-train", {"--resume", "run"});
  REQUIRE(complete.code == 0);
  REQUIRE_THAT(complete.text, ContainsSubstring("complete already"));
  REQUIRE(work.weights("run") == before);
  REQUIRE(work.run("primal-train", {"--resume", "run", "--set", "optimizer.lr=1"}).code == 2);
  const Finished more = work.run(
      "primal-train", {"--resume", "run", "--set", "train.epochs=2", "--set", "train.batch=4"});
  REQUIRE(more.code == 0);
  REQUIRE_THAT(more.text, ContainsSubstring("train.epochs was 1, is now 2"));
  REQUIRE_THAT(more.text, ContainsSubstring("train.batch was 8, is now 4"));
  REQUIRE(work.result("run").at("epochs") == 2);
}

TEST_CASE("a damaged newest checkpoint is passed over with a warning") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("whole")).code == 0);
  REQUIRE(work.run("primal-train", work.train("run")).code == 0);
  const fs::path newest = load_checkpoint(work.path / "run").directory / "model.safetensors";
  fs::resize_file(newest, fs::file_size(newest) / 2);
  const Finished resumed = work.run("primal-train", {"--resume", "run", "--threads", "1"});
  CAPTURE(resumed.text);
  REQUIRE(resumed.code == 0);
  REQUIRE_THAT(resumed.text, ContainsSubstring("falling back"));
}

TEST_CASE("primal-eval needs the checkpoint alone and gives the same digits as the training did") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run")).code == 0);
  const std::string step = load_checkpoint(work.path / "run").directory;
  const auto evaluate = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"--checkpoint", step, "--json", name + ".json", "--predictions", name + ".csv"});
    const Finished done = work.run("primal-eval", more);
    CAPTURE(done.text);
    REQUIRE(done.code == 0);
    return Workplace::read(work.path / (name + ".json")) +
           Workplace::read(work.path / (name + ".csv"));
  };
  const std::string first = evaluate("a", {});
  REQUIRE(first == evaluate("b", {}));
  REQUIRE(first == evaluate("c", {"--threads", "2"}));
  const json figures = json::parse(Workplace::read(work.path / "a.json"));
  json last;
  for (const json& line : work.metrics("run")) {
    if (line.at("event") == "evaluate" && line.at("split") == "test") last = line;
  }
  REQUIRE(figures.at("accuracy") == last.at("accuracy"));
  REQUIRE(figures.at("loss") == last.at("loss"));
  REQUIRE(figures.at("confusion") == last.at("confusion"));
  const std::string csv = Workplace::read(work.path / "a.csv");
  REQUIRE(std::count(csv.begin(), csv.end(), '\n') == 41);
  REQUIRE(csv.starts_with("index,label,prediction,p_"));
  for (const std::string split : {"train", "validation"}) {
    REQUIRE(work.run("primal-eval", {"--checkpoint", "run", "--split", split}).code == 0);
  }
  const Finished rows =
      work.run("primal-eval", {"--checkpoint", "run", "--predictions", "p.jsonl"});
  REQUIRE(rows.code == 0);
  std::ifstream lines(work.path / "p.jsonl");
  std::string line;
  std::getline(lines, line);
  REQUIRE(json::parse(line).contains("probabilities"));
  REQUIRE(work.run("primal-eval", {"--checkpoint", "run", "--predictions", "p.txt"}).code == 2);
  REQUIRE(work.run("primal-eval", {"--checkpoint", "nowhere"}).code == 1);
  REQUIRE(work.run("primal-eval", {"--checkpoint", "run", "--split", "tset"}).code == 2);
  REQUIRE(work.run("primal-eval", {"--checkpoint", "run", "--set", "model.dim=8"}).code == 2);
}

TEST_CASE("data that moved since training are found with --set data.root") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  fs::rename(work.path / "data", work.path / "moved");
  REQUIRE(work.run("primal-eval", {"--checkpoint", "run"}).code == 1);
  REQUIRE(work.run("primal-eval", {"--checkpoint", "run", "--set", "data.root=moved"}).code == 0);
}

TEST_CASE("weights exported under the PyTorch names load again with --init-from") {
  const Workplace work;
  REQUIRE(work.run("primal-train", work.train("run", {"--set", "train.epochs=1"})).code == 0);
  fs::rename(work.path / "data", work.path / "hidden");  // exporting needs no data
  const Finished exported = work.run(
      "primal-data", {"export", "--checkpoint", "run", "--pytorch-names", "theirs.safetensors"});
  CAPTURE(exported.text);
  REQUIRE(exported.code == 0);
  fs::rename(work.path / "hidden", work.path / "data");
  const SafetensorsFile theirs = SafetensorsFile::read(work.path / "theirs.safetensors");
  REQUIRE(theirs.at("encoder.attn_layers.0.conv1.weight").shape == std::vector<int64_t>{32, 16, 1});
  REQUIRE(theirs.find("encoder.attn_layers.1.attention.inner_attention.Lambda") != nullptr);
  const std::string ours = load_checkpoint(work.path / "run").directory / "model.safetensors";
  for (const std::string& file : {std::string("theirs.safetensors"), ours}) {
    const std::string run = "from" + std::to_string(file.size());
    REQUIRE(work.run("primal-train", work.train(run, {"--init-from", file, "--set",
                                                      "optimizer.lr=0", "--set", "train.epochs=1"}))
                .code == 0);
    REQUIRE(Workplace::read(load_checkpoint(work.path / run).directory / "model.safetensors") ==
            Workplace::read(ours));
  }
  const Finished wrong = work.run(
      "primal-train",
      work.train("wrong", {"--init-from", "theirs.safetensors", "--set", "model.feedforward=64"}));
  REQUIRE(wrong.code == 1);
  REQUIRE_THAT(wrong.text, ContainsSubstring("conv1.weight ([32, 16, 1], expected [64, 16, 1])"));
}

TEST_CASE(
    "primal-bench times the configured data, random data of a given size, and ends by itself") {
  const Workplace work;
  const auto bench = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"step", "--config", "config.yaml", "--steps", "3", "--warmup", "1",
                               "--json", "bench.json"});
    const Finished done = work.run("primal-bench", more);
    CAPTURE(done.text);
    REQUIRE(done.code == 0);
    return json::parse(Workplace::read(work.path / "bench.json"));
  };
  const json report = bench({"--threads", "1"});
  const json& ms = report.at("step_ms");
  REQUIRE(ms.at("min") <= ms.at("median"));
  REQUIRE(ms.at("median") <= ms.at("max"));
  REQUIRE(report.at("samples_per_s").get<double>() ==
          Approx(8 / ms.at("median").get<double>() * 1e3));
  REQUIRE(report.at("product_share").get<double>() > 0);
  REQUIRE(report.at("product_share").get<double>() <= 1);
  REQUIRE(report.at("product_gflops").get<double>() > 0);
  REQUIRE(report.at("machine_product_gflops").get<double>() >
          report.at("product_gflops").get<double>());
  REQUIRE(report.at("peak_allocated_bytes") <= report.at("peak_reserved_bytes"));
  REQUIRE(report.at("peak_reserved_bytes") < report.at("peak_process_bytes"));
  REQUIRE(bench({"--random", "length=8,channels=2,classes=2"}).at("facts").at("channels") == 2);
  fs::rename(work.path / "data", work.path / "hidden");
  REQUIRE(bench({"--set", "data.name=JapaneseVowels"}).at("facts").at("channels") == 12);
  REQUIRE(
      work.run("primal-bench", {"step", "--config", "config.yaml", "--random", "length=x"}).code ==
      2);
  REQUIRE(work.run("primal-bench", {"step", "--config", "config.yaml"}).code == 1);
}

TEST_CASE("generated ListOps train, go on, are scored and exported from the command line") {
  const TemporaryFolder folder("programs_lra");
  const TemporaryFolder cache("programs_lra_cache");
  setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
  const auto run = [&](const std::string& program, std::vector<std::string> arguments) {
    const Finished done = run_program(program, std::move(arguments), folder.path);
    CAPTURE(done.text);
    REQUIRE(done.code == 0);
    return done.text;
  };
  run("primal-data", {"generate", "listops", "--output", "data", "--train", "24", "--validation",
                      "8", "--test", "8"});
  const json facts =
      json::parse(run("primal-data", {"inspect", "data", "--task", "listops", "--json"}));
  REQUIRE(facts.at("splits").size() == 3);
  REQUIRE(facts.at("splits")[0].at("examples") == 24);
  REQUIRE(facts.at("splits")[0].at("length").at("min") > 500);
  REQUIRE(facts.at("splits")[0].at("truncated") == 0.0);
  CHECK_THAT(run("primal-data", {"inspect", "data", "--task", "listops"}),
             ContainsSubstring("test: data/listops-1000/basic_test.tsv\n  examples   8\n"));
  std::ofstream(folder.path / "config.yaml") << R"(
task: lra
recipe: primal_plus
data: {root: data, name: listops, length: 96, cache: cache}
model: {dim: 16, feedforward: 16, head: 8}
optimizer: {kind: adamw, lr: 1e-3}
schedule: {kind: one_cycle, warmup_steps: 2}
train: {epochs: 0, max_steps: 8, batch: 6, evaluate_every_steps: 3, save_every_steps: 4}
)";
  const auto train = [&](const std::string& output, std::vector<std::string> more) {
    std::vector<std::string> arguments{"--config", "config.yaml", "--threads",
                                       "1",        "--output",    output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("primal-train", arguments);
  };
  const std::string text = train("whole", {});
  for (const char* fact :
       {"cut_length: 96", "padded_length: 128", "train_truncated: 1.0", "vocabulary: 32",
        "train_source: data/listops-1000/basic_train.tsv, checksum "}) {
    CHECK_THAT(text, ContainsSubstring(fact));
  }
  const auto result = [&](const std::string& output) {
    return json::parse(Workplace::read(folder.path / output / "result.json"));
  };
  const json whole = result("whole");
  REQUIRE(whole.at("steps") == 8);
  REQUIRE(whole.at("ksvd_loss").get<double>() > 0);

  // Stopped half way and resumed; and computed in parts, of the same masks.
  train("half", {"--set", "train.max_steps=4"});
  run("primal-train", {"--resume", "half", "--set", "train.max_steps=8", "--threads", "2"});
  REQUIRE(result("half").at("steps") == 8);
  train("parts", {"--set", "train.accumulate=3"});
  const json parts = result("parts");
  REQUIRE(parts.at("ksvd_loss").get<double>() ==
          Approx(whole.at("ksvd_loss").get<double>()).epsilon(1e-4));
  REQUIRE(parts.at("last_test_accuracy") == whole.at("last_test_accuracy"));

  run("primal-eval", {"--checkpoint", "whole", "--json", "score.json"});
  const json figures = json::parse(Workplace::read(folder.path / "score.json"));
  REQUIRE(figures.at("count") == 8);
  run("primal-data", {"export", "--checkpoint", "whole", "--pytorch-names", "weights.safetensors"});
  const SafetensorsFile file = SafetensorsFile::read(folder.path / "weights.safetensors");
  REQUIRE(file.find("model.transformer_1.mha.attn.concate_weight.weight") != nullptr);
  CHECK_THAT(train("again", {"--init-from", "weights.safetensors"}),
             ContainsSubstring("weights: from weights.safetensors"));
}

TEST_CASE("primal-bench table measures its cells once, each in a process, and writes four forms") {
  const TemporaryFolder folder("programs_table");
  const auto table = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"table", "--attention", "canonical,primal", "--tasks", "image", "--batch", "1",
                 "--steps", "1", "--warmup", "0", "--threads", "1", "--output", "out"});
    return run_program("primal-bench", more, folder.path);
  };
  const auto read = [&](const char* name) { return Workplace::read(folder.path / "out" / name); };
  const Finished first = table({});
  CAPTURE(first.text);
  REQUIRE(first.code == 0);
  const json cells = json::parse(read("table.json")).at("cells");
  REQUIRE(cells.size() == 2);
  for (const json& cell : cells) {
    CHECK(cell.at("length") == 1024);
    CHECK(cell.at("batch") == 1);
    CHECK(cell.at("seconds_per_1000_steps").get<double>() > 0);
    CHECK(cell.at("peak_process_bytes") > cell.at("peak_reserved_bytes"));
    CHECK(cell.at("peak_reserved_bytes") >= cell.at("peak_allocated_bytes"));
    CHECK(cell.at("step_ms_min") <= cell.at("seconds_per_1000_steps"));
    CHECK(cell.at("step_ms_max") >= cell.at("seconds_per_1000_steps"));
    CHECK(cell.at("steps") == 1);
    CHECK(cell.at("warmup") == 0);
  }
  CHECK(cells[0].at("time_ratio") == 1.0);
  CHECK(cells[1].at("time_ratio").get<double>() ==
        Approx(cells[1].at("step_ms_median").get<double>() /
               cells[0].at("step_ms_median").get<double>()));
  CHECK(cells[1].at("attention") == "primal");
  CHECK(cells[1].at("paper_seconds_per_1000_steps") == 142.9);
  CHECK(cells[1].at("paper_peak_gb") == 1.39);
  CHECK_THAT(read("table.md"), ContainsSubstring("**Primal.**"));
  CHECK_THAT(read("table.md"), ContainsSubstring("medians of 1 steps after 0 of warm-up"));
  CHECK_THAT(read("table.tex"), ContainsSubstring("\\begin{tabular}"));
  CHECK_THAT(read("table.csv"), ContainsSubstring("\nprimal,image,1,1024,"));
  // The same settings are not measured again, others are.
  const std::string report = read("cells/primal-image.json");
  REQUIRE(table({}).code == 0);
  CHECK(read("cells/primal-image.json") == report);
  REQUIRE(table({"--steps", "2"}).code != 0);  // given twice
  REQUIRE(table({"--overwrite"}).code == 0);
  CHECK(read("cells/primal-image.json") != report);
  // What cannot run is a cell that says so.
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const Finished failed = table({"--device", "cuda"});
  unsetenv("CUDA_VISIBLE_DEVICES");
  REQUIRE(failed.code == 0);
  CHECK_THAT(failed.text, ContainsSubstring("primal, image: did not run: "));
  CHECK_THAT(read("table.md"), ContainsSubstring("did not run: "));
}

TEST_CASE("primal-bench scaling measures each length once and draws time and memory") {
  const TemporaryFolder folder("programs_scaling");
  const auto scaling = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"scaling", "--attention", "primal,canonical_materialized", "--steps",
                               "1", "--warmup", "0", "--threads", "1", "--output", "out"});
    return run_program("primal-bench", more, folder.path);
  };
  const auto read = [&](const char* name) { return Workplace::read(folder.path / "out" / name); };
  // Without a program that draws, the measurements are kept and the message says what is missing.
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const Finished undrawn = scaling({"--lengths", "32..64"});
  setenv("PATH", path.c_str(), 1);
  CHECK(undrawn.code == 1);
  CHECK_THAT(undrawn.text,
             ContainsSubstring("the pictures are missing: gnuplot: cannot be started: "
                               "No such file or directory; 'gnuplot scaling.gp' in "
                               "out draws them"));
  const json cells = json::parse(read("scaling.json")).at("cells");
  REQUIRE(cells.size() == 4);
  const char* const names[] = {"primal", "primal", "canonical_materialized",
                               "canonical_materialized"};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(cells[i].at("attention") == names[i]);
    CHECK(cells[i].at("length") == (i % 2 == 0 ? 32 : 64));
    CHECK(cells[i].at("batch") == 1);
    const double ms = cells[i].at("step_ms_median");
    CHECK(ms > 0);
    CHECK(cells[i].at("us_per_token") == Approx(ms * 1000 / cells[i].at("length").get<double>()));
    CHECK(cells[i].at("peak_process_bytes") > cells[i].at("peak_allocated_bytes"));
  }
  CHECK_THAT(read("scaling.md"), ContainsSubstring("| Primal. | 64 | 1 |"));
  CHECK_THAT(read("scaling.csv"), ContainsSubstring("\ncanonical_materialized,32,1,"));

  const std::string report = read("cells/primal-64.json");
  const Finished more = scaling({"--lengths", "32,64,128"});
  CHECK(read("cells/primal-64.json") == report);
  CHECK(json::parse(read("scaling.json")).at("cells").size() == 6);
  if (more.code != 0) {
    REQUIRE_THAT(more.text, ContainsSubstring("gnuplot: cannot be started"));
    WARN("skipped: gnuplot is not installed");
  } else {
    CHECK_THAT(read("scaling.svg"), ContainsSubstring("Canonical, materialised"));
    CHECK(read("scaling.png").starts_with("\x89PNG"));
  }

  // A cell that did not run is marked, and drawn without.
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const Finished failed = scaling({"--lengths", "32", "--device", "cuda"});
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK_THAT(failed.text, ContainsSubstring("primal, N = 32: did not run: "));
  CHECK_THAT(read("scaling.md"), ContainsSubstring("| Primal. | 32 | | did not run: "));
}

TEST_CASE("primal-bench scaling refuses lengths that are none") {
  const TemporaryFolder folder("programs_scaling_lengths");
  for (const char* lengths :
       {"", "x", "512,", "1", "512..", "64..32", "32...64", "2000000", "-4"}) {
    CAPTURE(lengths);
    const Finished run =
        run_program("primal-bench", {"scaling", std::string("--lengths=") + lengths}, folder.path);
    CHECK(run.code == 2);
    CHECK(run.text.starts_with("primal-bench: --lengths"));
    CHECK(std::ranges::count(run.text, '\n') == 1);
  }
  CHECK(!fs::exists(folder.path / "runs"));
}

TEST_CASE("generated Pathfinder pictures are inspected and trained on from the command line") {
  const TemporaryFolder folder("programs_pathfinder");
  const auto data = [&](std::vector<std::string> arguments) {
    return run_program("primal-data", std::move(arguments), folder.path);
  };
  const Finished made = data({"generate", "pathfinder", "--output", "data", "--examples", "40",
                              "--difficulty", "intermediate"});
  CAPTURE(made.text);
  REQUIRE(made.code == 0);
  CHECK(made.text == "wrote data/pathfinder32/curv_contour_length_9\n");
  const Finished again =
      data({"generate", "pathfinder", "--output", "data", "--difficulty", "intermediate"});
  CHECK(again.code == 1);
  CHECK(again.text ==
        "primal-data: generate: data/pathfinder32/curv_contour_length_9 is there already; "
        "--overwrite replaces it\n");
  CHECK(data({"generate", "pathfinder", "--output", "data", "--difficulty", "x"}).code == 2);
  CHECK(data({"generate", "pathfinder", "--output", "data", "--resolution", "31"}).code == 2);
  const Finished trained = run_program(
      "primal-train",
      {"--config", std::string(PRIMAL_SOURCE_DIR) + "/experiments/lra/pathfinder_primal.yaml",
       "--set", "data.root=data", "--set", "data.difficulty=intermediate", "--set",
       "data.cache=none", "--set", "train.batch=2", "--check"},
      folder.path);
  CAPTURE(trained.text);
  CHECK(trained.code == 0);
  // Another difficulty is not there: the message lists where it was looked for.
  const Finished missing = data({"inspect", "data", "--task", "pathfinder"});
  CHECK(missing.code == 1);
  CHECK_THAT(missing.text, ContainsSubstring("data/pathfinder32/curv_contour_length_14"));
}

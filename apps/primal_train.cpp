#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>

#include "apps/command_line.h"
#include "core/checkpoint.h"
#include "core/log.h"
#include "core/run_folder.h"
#include "core/signals.h"
#include "core/trainer.h"
#include "core/weights.h"

namespace {

using namespace primal;
namespace fs = std::filesystem;
using nlohmann::json;

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string output;
  std::string resume;
  std::string init_from;
  bool overwrite = false;
  bool print_config = false;
  bool check = false;
  std::string describe_config;
  std::string device;
  int threads = 0;
  std::vector<std::string> all;
};

/// What to train, where, and from which checkpoint, if any.
struct Plan {
  RunConfig config;
  fs::path directory;
  std::optional<LoadedCheckpoint> checkpoint;
};

Plan plan_new_run(const Arguments& a, const std::string& output) {
  Plan plan{.config = load_run_config(ConfigSource::from_file(a.config, a.overrides)),
            .directory = output,
            .checkpoint = {}};
  if (output.empty()) plan.directory = default_run_directory(a.config, plan.config.seed);
  return plan;
}

/// The latest checkpoint of a run; its beginning when it was killed before it saved any; and when
/// it was killed before it wrote anything, the configuration that is given again.
Plan plan_resumed_run(const Arguments& a, Log& log) {
  const fs::path directory = a.resume;
  std::error_code none;
  const fs::path real = fs::canonical(directory, none);
  const bool is_step = fs::exists(directory / "state.json", none);
  if (is_step || real.filename() == "checkpoints") {
    const fs::path run = is_step ? real.parent_path().parent_path() : real.parent_path();
    fail("resume: {}: is {}; --resume takes the run's folder, {}", a.resume,
         is_step ? "a checkpoint" : "where a run keeps its checkpoints", run.string());
  }
  const bool from_checkpoint = holds_checkpoints(directory);
  if (!from_checkpoint && !holds_run(directory)) {
    if (a.config.empty()) {
      fail("resume: {}: there is no run; start one with --config FILE --output {}", a.resume,
           a.resume);
    }
    log.info("resume: the run had not begun; starting it");
    return plan_new_run(a, a.resume);
  }
  check_override_keys(a.overrides, {"train.", "data.root", "device"}, "when a run goes on");
  if (!a.config.empty()) log.info("resume: the run's own configuration is used, not --config");
  Plan plan{.config = {}, .directory = directory, .checkpoint = {}};
  if (from_checkpoint) {
    plan.checkpoint = load_checkpoint(directory);
    for (const auto& warning : plan.checkpoint->warnings) log.warn(warning);
    const std::string name = (plan.checkpoint->directory / "config.yaml").string();
    const auto before = ConfigSource::from_string(plan.checkpoint->config_yaml, name);
    plan.config =
        load_run_config(ConfigSource::from_string(plan.checkpoint->config_yaml, name, a.overrides));
    const auto after = ConfigSource::from_string(print_config(plan.config), name);
    for (const std::string& text : a.overrides) {
      const std::string key = text.substr(0, text.find('='));
      if (before.text_at(key) != after.text_at(key)) {
        log.info(fmt::format("resume: {} was {}, is now {}", key, before.text_at(key),
                             after.text_at(key)));
      }
    }
    log.info(fmt::format("resume: from step {}", plan.checkpoint->step));
  } else {
    if (fs::exists(directory / "result.json", none)) {
      fail("resume: {}: the run has a result but no checkpoints; put its checkpoints folder back",
           a.resume);
    }
    plan.config = load_run_config(ConfigSource::from_file(directory / "config.yaml", a.overrides));
    log.info("resume: the run had saved no checkpoint; starting it again");
  }
  return plan;
}

std::string plain(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return value.dump();
  std::string text;
  for (const auto& [key, part] : value.items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, plain(part));
  }
  return text;
}

void describe(Log& log, const Backend& backend, Task& task) {
  const std::string_view products = backend.exec.precision == Precision::bf16   ? ", bf16 products"
                                    : backend.exec.precision == Precision::tf32 ? ", tf32 products"
                                                                                : "";
  if (backend.device == Device::cuda) {
    log.info(fmt::format("device: cuda, {}, float32{}", backend.device_name, products));
  } else {
    log.info(fmt::format("device: cpu, {} of {} usable cores, float32{}", backend.exec.threads,
                         usable_cores(), products));
  }
  if (!has_openmp()) log.warn("this build has no OpenMP: one thread is used");
  int64_t parameters = 0;
  for (const auto& entry : task.parameters().entries()) parameters += entry.shape.count();
  log.info(fmt::format("parameters: {}", parameters));
  const json facts = task.facts();
  for (const auto& [key, value] : facts.items()) {
    // Long ones are in result.json.
    if (const std::string text = plain(value); text.size() <= 200) {
      log.info(fmt::format("{}: {}", key, text));
    }
  }
  for (const auto& warning : task.warnings()) log.warn(warning);
}

void check(const RunConfig& config, Backend& backend, Task& task, Log& log) {
  Optimizer optimizer(*config.optimizer, task.parameters(), backend);
  const auto seed = static_cast<uint64_t>(config.seed);
  auto examples = task.train_order(seed, 0, config.train.batch);
  examples.resize(std::min(examples.size(), static_cast<size_t>(config.train.batch)));
  const StepFigures figures = train_step(backend, task, optimizer, seed, 0, config.optimizer->lr,
                                         examples, config.train.accumulate);
  log.info(fmt::format("one update: loss {:.4f}, gradient norm {:.4f}, {} MiB at its peak",
                       figures.loss, figures.gradient_norm,
                       backend.memory->figures().peak_allocated >> 20));
  log.info("OK: configuration, data and model fit; nothing was saved");
}

json environment(const Backend& backend, const Arguments& a, int64_t step) {
  json facts = environment_facts(backend);
  std::array<char, 32> now{};
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  std::strftime(now.data(), now.size(), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &utc));
  facts["started"] = now.data();
  facts["from_step"] = step;
  facts["arguments"] = a.all;
  return facts;
}

void report(const TrainOutcome& outcome, Log& log) {
  if (outcome.was_complete) {
    const std::string by = outcome.result.value("stopped_by", "epochs");
    log.info(fmt::format("the run is complete already; raise train.{} to go on",
                         by == "early_stopping" ? "early_stopping.patience" : by));
  }
  for (const auto& [key, value] : outcome.result.items()) {
    if (key.starts_with("best_") || key.starts_with("last_") || key.find("_at_best_") != key.npos) {
      if (value.is_number()) log.info(fmt::format("{}: {}", key, value.dump()));
    }
  }
  log.info(fmt::format("model: {}", outcome.checkpoint.string()));
}

int train(const Arguments& a) {
  Log log = Log::standard();
  catch_stop_signals();
  if (!a.describe_config.empty()) {
    RunConfig config = RunConfig::for_task(a.describe_config);
    std::cout << document_config(config);
    return 0;
  }
  if (a.resume.empty() && a.config.empty())
    throw UsageError("--config FILE or --resume DIR is needed");
  if (!a.resume.empty() && (!a.output.empty() || a.overwrite || !a.init_from.empty() || a.check)) {
    throw UsageError("--resume DIR takes no --output, --overwrite, --init-from or --check");
  }
  Plan plan = a.resume.empty() ? plan_new_run(a, a.output) : plan_resumed_run(a, log);
  RunConfig& config = plan.config;
  if (a.print_config) {
    std::cout << print_config(config);
    return 0;
  }
  if (a.resume.empty() && !a.check) check_new_run(plan.directory, a.overwrite);

  Backend backend = make_backend(config, a.threads);
  TaskSetup setup;
  setup.seed = static_cast<uint64_t>(config.seed);
  if (plan.checkpoint) setup.state = &plan.checkpoint->state.at("task");
  setup.stop = [] { return stop_signal() != 0; };
  std::unique_ptr<Task> task;
  try {
    task = config.task->make(backend, setup);
  } catch (const Interrupted&) {
    log.info("stopped while the data were read; nothing was changed");
    return 128 + stop_signal();
  }
  if (!a.init_from.empty()) {
    load_weights(backend, task->parameters(), SafetensorsFile::read(a.init_from),
                 config.task->pytorch_names(*task));
    log.info(fmt::format("weights: from {}", a.init_from));
  }
  describe(log, backend, *task);
  if (a.check) {
    check(config, backend, *task, log);
    return stop_signal() == 0 ? 0 : 128 + stop_signal();
  }

  const RunLock lock(plan.directory);
  // Again, now that nobody else can begin a run there.
  if (a.resume.empty()) check_new_run(plan.directory, a.overwrite);
  const std::string resolved = print_config(config);
  if (!plan.checkpoint) begin_run(plan.directory, resolved);
  Trainer trainer({.backend = backend,
                   .task = *task,
                   .config = config,
                   .run_directory = plan.directory,
                   .log = log,
                   .stop_signal = stop_signal});
  if (plan.checkpoint) {
    for (const auto& warning : trainer.restore(*plan.checkpoint)) log.warn(warning);
    plan.checkpoint.reset();
  }
  if (!trainer.complete()) {
    write_file_atomically(plan.directory / "config.yaml", resolved);
    record_environment(plan.directory, environment(backend, a, trainer.state().step));
  }
  const TrainOutcome outcome = trainer.run();
  report(outcome, log);
  return outcome.signal == 0 ? 0 : 128 + outcome.signal;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  a.all.assign(argv, argv + argc);
  CLI::App app{"Trains a model as a configuration says.", "primal-train"};
  add_path_option(app, "--config", a.config, "FILE", "Configuration (YAML)");
  add_set_option(app, a.overrides);
  add_path_option(app, "--output", a.output, "DIR", "Run folder; default runs/CONFIG-SEED");
  add_path_option(app, "--resume", a.resume, "DIR", "Go on with the run in this folder");
  app.add_flag("--overwrite", a.overwrite, "Replace the run that --output holds");
  add_path_option(
      app, "--init-from", a.init_from, "FILE",
      "First weights: a safetensors file with this program's or the published PyTorch names");
  app.add_option("--device", a.device, "Overrides the configuration's device")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_option("--threads", a.threads, "Threads; default: all usable cores")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--print-config", a.print_config, "Print the resolved configuration and end");
  app.add_option("--describe-config", a.describe_config,
                 "Print every key of a task's configurations, as Markdown, and end")
      ->type_name("TASK");
  app.add_flag("--check", a.check, "Read configuration and data, take one step, save nothing");
  return run_program(app, argc, argv, true, [&] {
    if (!a.device.empty()) a.overrides.push_back("device=" + a.device);
    return train(a);
  });
}

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/optimizer.h"
#include "core/schedule.h"
#include "core/task.h"

namespace primal {

enum class DeviceChoice : uint8_t { automatic, cpu, cuda };

struct EarlyStopping {
  int64_t patience = 0;
  double min_delta = 0;

  void fields(Fields& f);
};

struct TrainConfig {
  int64_t epochs = 100;
  int64_t max_steps = 0;
  int64_t batch = 16;
  int64_t accumulate = 1;
  int64_t evaluate_batch = 32;
  int64_t evaluate_every = 1;
  int64_t evaluate_every_steps = 0;
  int64_t log_every = 1;
  int64_t save_every = 5;
  int64_t save_every_steps = 0;
  int64_t keep_last = 2;
  EarlyStopping early_stopping;

  void fields(Fields& f);
  void check() const;
};

/// All that decides a run. Move-only.
struct RunConfig {
  std::unique_ptr<TaskConfig> task;
  int64_t seed = 1;
  DeviceChoice device = DeviceChoice::automatic;
  Precision precision = Precision::float32;
  std::unique_ptr<OptimizerRule> optimizer;
  std::unique_ptr<Schedule> schedule;
  TrainConfig train;

  /// Defaults for one of task_kinds(). Error that names the known tasks when there is no such one.
  static RunConfig for_task(std::string_view task);

  void fields(Fields& f);
  void check() const;
};

/// Reads and checks a configuration; its key `task` decides which keys there are.
RunConfig load_run_config(const ConfigSource& source);

/// The dotted names of all keys that hold a single value, over all tasks, e.g. `train.epochs`; of
/// variants the keys of the default kind. To recognise a key that was typed elsewhere.
std::vector<std::string> known_config_keys();

/// Whether kernels can use more than one thread.
bool has_openmp();

/// The backend that the configuration asks for, computing in its precision. Throws Error when this
/// build has none.
Backend make_backend(const RunConfig& config, int threads);

/// "0.1.0 (1a2b3c4d5e6f)": the version and, for a build from a clone, its commit.
std::string version();

/// Facts of the build and the machine, for the record of a run: version, compiler, processor,
/// threads.
nlohmann::json environment_facts(const Backend& backend);

}  // namespace primal

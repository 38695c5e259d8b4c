#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "core/files.h"
#include "core/log.h"
#include "core/run_config.h"

namespace primal {

// What a run writes into its folder:
//
//   config.yaml      the resolved configuration
//   environment.json build and machine, one entry per start
//   metrics.jsonl    one object per line: {"event": "step" | "epoch" | "evaluate", ...}
//   result.json      once the run is complete
//   checkpoints/     see core/checkpoint.h
//
// All of metrics.jsonl but step_ms, samples_per_s, seconds and memory_* is the same for every run
// of a configuration on the CPU of one build and machine, for any number of threads, interrupted or
// not.

/// What one update gives to read.
struct StepFigures {
  double loss = 0;                  ///< task loss + eta * KSVD loss
  double task_loss = 0;             ///< mean over the examples
  std::optional<double> ksvd_loss;  ///< unweighted
  std::optional<double> correct;    ///< examples predicted right
  int64_t count = 0;
  double gradient_norm = 0;  ///< before clipping
};

/// The figures of an update that the device may still be working on.
struct PendingFigures {
  int64_t step = 0;  ///< 0, 1, ...
  double lr = 0;
  int64_t count = 0;
  bool has_ksvd = false, has_correct = false;
  Tensor values;  ///< (5): loss, task loss, gradient norm, KSVD loss, correct
};

/// One training update, number `step` (0, 1, ...): forward, backward, clip, update; in `parts` of
/// the examples, one after the other, whose gradients add up to those of the whole. Does not wait
/// for the device, unless there are parts and Task::couples_examples(): then the parts' forward
/// passes run twice. A gradient that is not finite changes no parameter.
PendingFigures start_step(Backend& backend, Task& task, Optimizer& optimizer, uint64_t seed,
                          int64_t step, const Rates& rates, std::span<const int64_t> examples,
                          int64_t parts = 1);
/// Waits for the figures. Error when the loss or the gradient is not finite.
StepFigures read_figures(const Backend& backend, const PendingFigures& pending);

/// Both in one.
StepFigures train_step(Backend& backend, Task& task, Optimizer& optimizer, uint64_t seed,
                       int64_t step, const Rates& rates, std::span<const int64_t> examples,
                       int64_t parts = 1);

/// Where a run stands; all of it is kept in checkpoints.
struct TrainState {
  /// Sums over the updates of the epoch in progress.
  struct Sums {
    int64_t steps = 0, examples = 0;
    double loss = 0, task_loss = 0, gradient_norm = 0;  // losses times examples
    double seconds = 0;
    std::optional<double> ksvd_loss, correct;
  };
  /// The best value of a split and the values of all splits at that evaluation.
  struct Best {
    int64_t epoch = 0, step = 0;
    std::map<std::string, double> metric;
  };

  int64_t step = 0;         ///< updates done
  int64_t epoch = 0;        ///< epochs done
  int64_t offset = 0;       ///< examples of the epoch in progress that are done
  int64_t order_batch = 0;  ///< batch that the epoch's order was made for
  Sums sums;
  int64_t evaluated_step = -1;
  int64_t evaluations_without_improvement = 0;
  std::optional<double> to_improve;    ///< what early stopping compares with
  std::map<std::string, double> last;  ///< metric of each split at the last evaluation
  std::map<std::string, Best> best;    ///< by split; of equals the first
  std::optional<int64_t> best_step;    ///< checkpoint of the best by the deciding split
  std::optional<double> ksvd_loss;     ///< mean over the last whole epoch
  double seconds = 0;                  ///< of wall clock, over all starts
};
void to_json(nlohmann::json& json, const TrainState& state);
void from_json(const nlohmann::json& json, TrainState& state);

/// How a run ended.
struct TrainOutcome {
  int signal = 0;                    ///< that stopped it, or 0
  bool was_complete = false;         ///< there was nothing left to do
  nlohmann::ordered_json result;     ///< of result.json; empty when a signal stopped the run
  std::filesystem::path checkpoint;  ///< the model to use: the best, else the last
};

/// Trains a task through its epochs and keeps the run folder.
class Trainer {
 public:
  struct Setup {
    Backend& backend;
    Task& task;
    RunConfig& config;
    std::filesystem::path run_directory;  ///< exists
    Log& log;
    std::function<int()> stop_signal;  ///< polled between steps and evaluation batches
  };
  explicit Trainer(Setup setup);

  /// Goes on from a checkpoint of this run instead of from the start. Returns warnings.
  std::vector<std::string> restore(const LoadedCheckpoint& checkpoint);
  /// Trains to the end or until a signal; a complete() run is left as it is.
  TrainOutcome run();
  /// The outcome of a run that has its result and no more to do.
  std::optional<TrainOutcome> complete() const;

  const TrainState& state() const { return state_; }

 private:
  std::string deciding_split() const;
  std::string stop_reason() const;
  int64_t steps_in_run() const;
  /// The epoch that the last update belongs to: 1, 2, ...
  int64_t current_epoch() const { return state_.epoch + (state_.offset > 0 ? 1 : 0); }
  Rates rates(int64_t step) const;

  void run_epoch(Progress& progress);
  /// Scores and saves in the middle of an epoch where the step is one to do so.
  void do_what_is_due();
  /// ", test accuracy 0.9500 (best 0.9600)" and so on.
  std::string scores_text() const;
  /// "epoch 3/10"
  std::string epoch_text() const;
  void take_step(std::span<const int64_t> examples, Progress& progress);
  /// Reads the figures of the updates since the last time: the one place that waits for the device
  /// between evaluations.
  void read_pending();
  void finish_epoch();
  /// Scores every split and notes what is best; returns whether the deciding split is at its best.
  /// An interruption takes back what it wrote.
  bool evaluate();
  void write_step(const PendingFigures& step, const StepFigures& figures, double seconds);
  void write_epoch();
  void put_memory(nlohmann::ordered_json& line) const;
  nlohmann::ordered_json result(const std::string& stopped_by);

  void save();
  std::filesystem::path step_directory(int64_t step) const;
  std::filesystem::path chosen_checkpoint() const;
  void count_time();

  Setup s_;
  Optimizer optimizer_;
  CheckpointStore store_;
  AppendLog metrics_;
  TrainState state_;
  std::vector<std::string> splits_;
  nlohmann::json facts_;
  std::optional<int64_t> saved_step_;
  std::vector<PendingFigures> pending_;
  std::chrono::steady_clock::time_point pending_since_;
  std::chrono::steady_clock::time_point counted_ = std::chrono::steady_clock::now();
};

}  // namespace primal

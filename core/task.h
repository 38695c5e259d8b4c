#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/context.h"

namespace primal {

/// What one training batch gives: the loss to differentiate and single numbers for the log, which
/// stay on the device until somebody reads them.
struct BatchLoss {
  Var total;          ///< task loss + eta * KSVD loss
  Tensor task_loss;   ///< mean over the batch
  Tensor ksvd_loss;   ///< mean over primal layers, not weighted; undefined when the model has none
  Tensor correct;     ///< number of right predictions; undefined when the task has no such thing
  int64_t count = 0;  ///< examples in the batch
  /// What the KSVD moments of the batch ran over, for batches of other sizes to be weighed by:
  /// positions, or examples where these are all alike.
  int64_t moments = 0;
};

struct EvaluateOptions {
  int64_t batch = 16;
  /// Called between batches; returns true to stop early (a signal arrived): evaluate() then throws
  /// Interrupted.
  std::function<bool()> stop;
  /// When set, gets one JSON object per example: {"index", "label", "prediction", "probabilities",
  /// ...}.
  std::function<void(const nlohmann::json&)> prediction;
};

/// Thrown by TaskConfig::make() and Task::evaluate() when their `stop` asked for it.
struct Interrupted {};

/// A model on its data, for one trainer to train: what a task folder in experiments/ provides.
class Task {
 public:
  virtual ~Task() = default;
  virtual ParameterSet& parameters() = 0;

  virtual int64_t train_size() const = 0;
  /// The order in which an epoch visits the examples 0 .. train_size() - 1, a function of the
  /// arguments and the data alone. `batch` of them in a row will be an update.
  virtual std::vector<int64_t> train_order(uint64_t seed, int64_t epoch, int64_t batch) const;
  /// The loss of these training examples, of a batch or a part of one. ctx.tape may be null.
  virtual BatchLoss train_loss(Context& ctx, std::span<const int64_t> examples) = 0;
  /// Whether the loss of a batch is more than the mean of its examples' losses, by way of
  /// BatchPart::objectives.
  virtual bool couples_examples() const { return false; }

  /// Splits to score after each epoch, e.g. {"validation", "test"}; "train" can always be scored
  /// too.
  virtual std::vector<std::string> evaluation_splits() const = 0;
  /// Figures of a split, flat enough to be one line of metrics.jsonl: {"accuracy": 0.98, "loss":
  /// ..., "count": ..., "classes": [...], "per_class": [...], "confusion": [[...]], ...}.
  /// `metric()` names the one that decides what is best.
  virtual nlohmann::json evaluate(Backend&, std::string_view split, const EvaluateOptions&) = 0;
  virtual std::string metric() const = 0;  ///< higher is better

  /// What a checkpoint must keep of the data: normalisation statistics, class names, lengths.
  virtual nlohmann::json state() const = 0;
  /// Facts of data and model for the log's first lines and the run record.
  virtual nlohmann::json facts() const = 0;
  /// Notes of the loaders for the user, one line each.
  virtual const std::vector<std::string>& warnings() const = 0;
};

/// 0 .. size - 1, shuffled: a function of the arguments alone.
std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size);

/// Settings every task shares and hands to make_task().
struct TaskSetup {
  uint64_t seed = 1;
  /// Null when training starts from the data; else Task::state() of a checkpoint, whose statistics
  /// and class names are to be used as they are.
  const nlohmann::json* state = nullptr;
  /// Splits needed by the caller; a task loads no file it does not need for them. Empty: all;
  /// {"none"}: the model is made from `state` alone.
  std::vector<std::string> splits;
  /// When set, random examples take the place of the data, to time the model: an object of sizes in
  /// the task's terms, e.g. {"length": 29, "channels": 12, "classes": 9}. What it leaves out is the
  /// published size of the configured data set; Error when there is none. facts() tells the sizes.
  std::optional<nlohmann::json> random_data;
  /// Called while data are read; make() throws Interrupted when it returns true. May be empty.
  std::function<bool()> stop;
};

/// The task's part of a configuration: sections `data`, `model`, `ksvd`.
class TaskConfig {
 public:
  virtual ~TaskConfig() = default;
  virtual std::string_view kind() const = 0;
  virtual void fields(Fields& fields) = 0;
  /// Error when fields that are each allowed do not go together.
  virtual void check() const {}
  virtual std::unique_ptr<Task> make(Backend& backend, const TaskSetup& setup) const = 0;
  /// Parameter names of the authors' PyTorch code: {ours, theirs, their shape}. Empty when there is
  /// no such code.
  struct ForeignName {
    std::string name;
    std::string foreign;
    std::vector<int64_t> foreign_shape;
  };
  virtual std::vector<ForeignName> pytorch_names(const Task& task) const = 0;
};

/// One line per task (experiments/registry.cpp): {name, help, factory}.
std::span<const Kind<TaskConfig>> task_kinds();

}  // namespace primal

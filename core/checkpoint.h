#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/safetensors.h"

namespace primal {

// RUN/checkpoints/step-N/  model.safetensors, optimizer.safetensors, config.yaml, state.json
// RUN/checkpoints/best.json  {"step": N, "metric": ...}
//
// A step folder appears as a whole (DirectoryTransaction), and state.json keeps size and CRC-32 of
// each of its files. The latest checkpoint is the one with the highest N.

/// What a step folder is made of. Tensors are views of the caller's numbers.
struct CheckpointContents {
  int64_t step = 0;
  std::vector<StoredTensor> model;
  std::vector<StoredTensor> optimizer;          // none: no optimizer.safetensors is written
  std::map<std::string, std::string> metadata;  // of model.safetensors
  std::string config_yaml;
  /// Whatever the trainer needs beside the tensors. Numbers must be finite: JSON has no others.
  nlohmann::json state = nlohmann::json::object();
};

struct BestCheckpoint {
  int64_t step = 0;
  nlohmann::json metric;
};

/// The checkpoints of one run. Nothing is created before the first save().
class CheckpointStore {
 public:
  explicit CheckpointStore(const std::filesystem::path& run_directory);

  /// Writes step-N, replacing one of that name. A failure loses no earlier checkpoint and says so.
  void save(const CheckpointContents& contents);
  /// Steps with a folder, ascending; whether it is intact shows when it is loaded.
  std::vector<int64_t> steps() const;

  /// Marks a saved step as the best so far; `metric` says in what.
  void set_best(int64_t step, const nlohmann::json& metric);
  /// Nothing when no step was marked yet. Error when best.json cannot be understood.
  std::optional<BestCheckpoint> best() const;

  /// Removes all but the `keep_last` (>= 1) highest steps and the best. Returns warnings: a
  /// checkpoint that cannot be removed is no reason to stop a run.
  std::vector<std::string> prune(int64_t keep_last);

 private:
  std::filesystem::path directory_;
};

struct LoadedCheckpoint {
  std::filesystem::path directory;  // the step folder
  int64_t step = 0;
  SafetensorsFile model;
  std::optional<SafetensorsFile> optimizer;
  nlohmann::json state;
  std::string config_yaml;
  std::vector<std::string> warnings;  // e.g. a damaged newer checkpoint that was passed over
};

struct LoadRequest {
  bool best = false;      // of a run: the step marked as best instead of the latest
  bool optimizer = true;  // false: optimizer.safetensors may be missing and is not read
};

/// Reads and verifies a checkpoint. `path` is a step folder, a checkpoints folder or a run folder.
/// Of a run the latest intact checkpoint is taken, with a warning for each damaged one after it; a
/// step that is named, by `path` or as best, must be intact.
/// Errors: `checkpoint: FILE: expected, found`.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& path, LoadRequest request = {});

}  // namespace primal

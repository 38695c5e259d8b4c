#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "core/run_config.h"

namespace primal {

/// A model as a checkpoint keeps it, ready to be used: configuration, statistics of the data and
/// parameters all come from there.
struct SavedModel {
  std::filesystem::path directory;  ///< the step folder
  int64_t step = 0;
  bool best = false;  ///< chosen as the best of its run
  RunConfig config;
  Backend backend;
  std::unique_ptr<Task> task;
  std::vector<std::string> warnings;
};

/// Loads the step folder `path`, or of a run folder the best checkpoint, else the latest. Only the
/// data of `splits` are read. Error when the checkpoint lacks anything.
std::unique_ptr<SavedModel> load_model(const std::filesystem::path& path,
                                       const std::vector<std::string>& overrides, int threads,
                                       const std::vector<std::string>& splits);

/// Writes the parameters as safetensors under the names and shapes of the published PyTorch code.
/// Error when that code has no such model.
void export_pytorch(const SavedModel& model, const std::filesystem::path& output);

}  // namespace primal

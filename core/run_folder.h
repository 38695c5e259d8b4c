#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace primal {

/// The folder name of a run that was given none: `runs/CONFIG-SEED`, of portable characters only.
std::filesystem::path default_run_directory(std::string_view config_name, int64_t seed);

/// Refuses a folder that holds anything, unless `overwrite`. Changes nothing.
void check_new_run(const std::filesystem::path& directory, bool overwrite);

/// Keeps other trainers out of a run folder, which it creates, until the process ends, however it
/// ends. Error when another one is at work there. File systems that know no locks have none.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& directory);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

 private:
  int folder_;
};

/// Creates the folder, removes what an earlier run left there (and nothing else), and writes
/// config.yaml.
void begin_run(const std::filesystem::path& directory, std::string_view config_yaml);

/// Whether a run began there: config.yaml is what it writes first.
bool holds_run(const std::filesystem::path& directory);
bool holds_checkpoints(const std::filesystem::path& directory);

/// Adds `facts` to the list in environment.json, one entry per start of the run.
void record_environment(const std::filesystem::path& directory, const nlohmann::json& facts);

}  // namespace primal

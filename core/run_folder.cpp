#include "core/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>

#include "core/checkpoint.h"
#include "core/error.h"
#include "core/files.h"

namespace primal {
namespace fs = std::filesystem;

fs::path default_run_directory(std::string_view config_name, int64_t seed) {
  std::string name = fs::path(config_name).stem().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return fs::path("runs") / fmt::format("{}-{}", name.empty() ? "run" : name, seed);
}

namespace {

constexpr std::array<std::string_view, 4> kFiles = {"result.json", "metrics.jsonl",
                                                    "environment.json", "config.yaml"};
constexpr std::string_view kCheckpoints = "checkpoints";

/// Refuses a folder in which something that no run wrote has a name of what begin_run() removes.
void check_is_run(const fs::path& directory) {
  const auto foreign = [](const fs::path& path) {
    fail("output: {}: was not written by primal-train; move it away or choose another --output",
         path.string());
  };
  std::error_code error;
  const fs::path config = directory / "config.yaml";
  const bool has_config = fs::is_regular_file(config, error);
  if (has_config && !read_text_file(config).starts_with("task:")) foreign(config);
  for (const std::string_view name : kFiles) {
    const fs::file_status status = fs::symlink_status(directory / name, error);
    if (fs::exists(status) && (!fs::is_regular_file(status) || !has_config)) {
      foreign(directory / name);
    }
  }
  const fs::path checkpoints = directory / kCheckpoints;
  const fs::file_status status = fs::symlink_status(checkpoints, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) foreign(checkpoints);
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    const bool step =
        name.starts_with("step-") && (fs::exists(entry.path() / "state.json", error) ||
                                      fs::exists(entry.path() / "model.safetensors", error) ||
                                      fs::is_empty(entry.path(), error));
    if (!step && name != "best.json" && !name.starts_with(".step-") &&
        !name.starts_with(".best.json.")) {
      foreign(entry.path());
    }
  }
}

}  // namespace

void check_new_run(const fs::path& directory, bool overwrite) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) fail("output: {}: is not a folder", directory.string());
  const bool empty = fs::is_empty(directory, error);
  if (error) fail("output: {}: {}", directory.string(), error.message());
  if (!empty && !overwrite) {
    fail(
        "output: {}: the folder is not empty; go on with --resume, replace the run with "
        "--overwrite, or "
        "choose another --output",
        directory.string());
  }
  check_is_run(directory);
}

RunLock::RunLock(const fs::path& directory) {
  make_directories(directory);
  folder_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ >= 0 && flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(folder_);
    fail("output: {}: another primal-train is at work there", directory.string());
  }
}

RunLock::~RunLock() {
  if (folder_ >= 0) close(folder_);
}

void begin_run(const fs::path& directory, std::string_view config_yaml) {
  make_directories(directory);
  check_is_run(directory);
  clean_transactions(directory, {"checkpoints", "result.json", "environment.json", "config.yaml"});
  // Checkpoints go first, so that a kill in between leaves none beside a configuration they are not
  // of.
  std::error_code missing;
  if (fs::exists(directory / kCheckpoints, missing)) {
    remove_directory_atomically(directory / kCheckpoints);
  }
  for (const std::string_view name : kFiles) {
    std::error_code error;
    fs::remove(directory / name, error);
    if (error) fail("output: {}: cannot remove: {}", (directory / name).string(), error.message());
  }
  write_file_atomically(directory / "config.yaml", config_yaml);
}

bool holds_run(const fs::path& directory) {
  std::error_code error;
  return fs::is_regular_file(directory / "config.yaml", error);
}

bool holds_checkpoints(const fs::path& directory) {
  return !CheckpointStore(directory).steps().empty();
}

void record_environment(const fs::path& directory, const nlohmann::json& facts) {
  const fs::path path = directory / "environment.json";
  nlohmann::json starts = nlohmann::json::array();
  if (std::error_code error; fs::exists(path, error)) {
    const auto earlier = nlohmann::json::parse(read_text_file(path), nullptr, false);
    if (earlier.is_array()) starts = earlier;
  }
  starts.push_back(facts);
  write_file_atomically(path, starts.dump(1) + "\n");
}

}  // namespace primal

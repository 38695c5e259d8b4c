#include "core/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/files.h"

namespace primal {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kConfig = "config.yaml";
constexpr const char* kState = "state.json";
constexpr const char* kBest = "best.json";
constexpr int kFormat = 1;

std::string step_name(int64_t step) {
  return fmt::format("step-{}", step);
}

// N of a folder's name step-N, as step_name() writes it.
std::optional<int64_t> step_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const size_t prefix = std::string_view("step-").size();
  if (!name.starts_with("step-")) return std::nullopt;
  int64_t step = 0;
  std::from_chars(name.data() + prefix, name.data() + name.size(), step);
  if (step < 0 || name != step_name(step)) return std::nullopt;
  return step;
}

std::vector<int64_t> steps_in(const fs::path& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::optional<int64_t> step = step_of(entry->path());
    if (std::error_code ignored; step && entry->is_directory(ignored)) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail("checkpoint: {}: cannot list: {}", checkpoints.string(), error.message());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string hex(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

// state.json begins with the CRC-32 of the text after it, so that it vouches for itself, too.
std::string seal(const json& document) {
  const std::string rest = document.dump(1).substr(1);  // without its '{'
  return fmt::format("{{\n \"crc32\": \"{}\",{}\n", hex(crc32(bytes_of(rest + "\n"))), rest);
}

json unseal(const std::string& text) {
  constexpr std::string_view kOpening = "{\n \"crc32\": \"";
  constexpr size_t kRest = kOpening.size() + 8 + 2;  // eight digits, quote and comma
  if (text.size() < kRest || !text.starts_with(kOpening)) {
    fail("{} bytes that are not a checkpoint's state: cut off or overwritten", text.size());
  }
  const std::string expected = text.substr(kOpening.size(), 8);
  const std::string found = hex(crc32(bytes_of(std::string_view(text).substr(kRest))));
  if (found != expected) fail("CRC-32 {}, expected {}: damaged or edited", found, expected);
  return json::parse(text);
}

// Reads a file of a step folder and holds it against its line in state.json.
std::vector<std::byte> read_verified(const fs::path& directory, const char* name,
                                     const json& files) {
  const fs::path path = directory / name;
  const auto bytes = files.at(name).at("bytes").get<uint64_t>();
  const auto expected = files.at(name).at("crc32").get<std::string>();
  std::vector<std::byte> contents = read_file(path);
  if (contents.size() != bytes) {
    fail("{}: {} bytes, expected {}", path.string(), contents.size(), bytes);
  }
  if (const std::string found = hex(crc32(contents)); found != expected) {
    fail("{}: CRC-32 {}, expected {}: damaged or edited", path.string(), found, expected);
  }
  return contents;
}

LoadedCheckpoint load_step(const fs::path& directory, bool with_optimizer) {
  const fs::path state_path = directory / kState;
  LoadedCheckpoint loaded;
  loaded.directory = directory;
  try {
    const std::string state_text = read_text_file(state_path);
    json document;
    try {
      document = unseal(state_text);
    } catch (const Error& error) {
      fail("{}: {}", state_path.string(), error.what());
    }
    if (const int format = document.at("format").get<int>(); format != kFormat) {
      fail("{}: format {}, this program reads format {}", state_path.string(), format, kFormat);
    }
    loaded.step = document.at("step").get<int64_t>();
    if (step_of(directory).value_or(loaded.step) != loaded.step) {
      fail("{}: step {}, the folder's name says otherwise", state_path.string(), loaded.step);
    }
    loaded.state = document.at("state");
    const json& files = document.at("files");
    const auto config = read_verified(directory, kConfig, files);
    loaded.config_yaml.assign(reinterpret_cast<const char*>(config.data()), config.size());
    const auto tensors = [&](const char* name) {
      return SafetensorsFile::parse(read_verified(directory, name, files),
                                    (directory / name).string());
    };
    loaded.model = tensors(kModel);
    if (with_optimizer && files.contains(kOptimizer)) loaded.optimizer = tensors(kOptimizer);
  } catch (const Error& error) {
    fail("checkpoint: {}", error.what());
  } catch (const json::exception& error) {
    fail("checkpoint: {}: {}", state_path.string(), error.what());
  }
  return loaded;
}

LoadedCheckpoint load_latest(const fs::path& checkpoints, bool with_optimizer) {
  std::vector<int64_t> steps = steps_in(checkpoints);
  if (steps.empty()) fail("checkpoint: {}: no checkpoint was saved there", checkpoints.string());
  std::vector<std::string> damages;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      LoadedCheckpoint loaded = load_step(checkpoints / step_name(*step), with_optimizer);
      for (const std::string& damage : damages) {
        loaded.warnings.push_back(fmt::format("{}; falling back to step {}", damage, *step));
      }
      return loaded;
    } catch (const Error& error) {
      damages.emplace_back(error.what());
    }
  }
  fail("{}; none of the {} checkpoints in {} is intact", damages.front(), steps.size(),
       checkpoints.string());
}

std::optional<BestCheckpoint> read_best(const fs::path& checkpoints) {
  const fs::path path = checkpoints / kBest;
  if (std::error_code ignored; !fs::exists(path, ignored)) return std::nullopt;
  try {
    const json document = json::parse(read_text_file(path));
    return BestCheckpoint{document.at("step").get<int64_t>(), document.at("metric")};
  } catch (const Error& error) {
    fail("checkpoint: {}", error.what());
  } catch (const json::exception& error) {
    fail("checkpoint: {}: {}", path.string(), error.what());
  }
}

}  // namespace

CheckpointStore::CheckpointStore(const fs::path& run_directory)
    : directory_(run_directory / kCheckpoints) {}

void CheckpointStore::save(const CheckpointContents& contents) {
  try {
    if (contents.step < 0) fail("the step is negative");
    make_directories(directory_);
    clean_transactions(directory_);
    DirectoryTransaction transaction(directory_ / step_name(contents.step));
    json files = json::object();
    const auto note = [&](const char* name, WrittenFile written) {
      files[name] = {{"bytes", written.bytes}, {"crc32", hex(written.crc32)}};
    };
    note(kModel, transaction.write(
                     kModel, encode_safetensors(contents.model, contents.metadata, kModel).parts));
    if (!contents.optimizer.empty()) {
      note(kOptimizer,
           transaction.write(kOptimizer,
                             encode_safetensors(contents.optimizer, {}, kOptimizer).parts));
    }
    note(kConfig, transaction.write(kConfig, contents.config_yaml));
    const std::string state_text = seal({{"format", kFormat},
                                         {"step", contents.step},
                                         {"files", files},
                                         {"state", contents.state}});
    // Infinities and NaN turn into null in JSON, which a resumed run would stumble over.
    if (unseal(state_text).at("state") != contents.state) {
      fail("{}: holds a number that is not finite", kState);
    }
    transaction.write(kState, state_text);
    transaction.commit();
  } catch (const Error& error) {
    fail("checkpoint: step {} was not saved: {}; earlier checkpoints are intact", contents.step,
         error.what());
  } catch (const json::exception& error) {
    fail("checkpoint: step {} was not saved: {}: {}; earlier checkpoints are intact", contents.step,
         kState, error.what());
  }
}

std::vector<int64_t> CheckpointStore::steps() const {
  return steps_in(directory_);
}

void CheckpointStore::set_best(int64_t step, const json& metric) {
  if (std::error_code ignored; !fs::is_directory(directory_ / step_name(step), ignored)) {
    fail("checkpoint: {}: step {} cannot be the best: it was not saved", directory_.string(), step);
  }
  try {
    write_file_atomically(directory_ / kBest,
                          json{{"step", step}, {"metric", metric}}.dump(1) + "\n");
  } catch (const Error& error) {
    fail("checkpoint: step {} was not marked as best: {}; earlier checkpoints are intact", step,
         error.what());
  }
}

std::optional<BestCheckpoint> CheckpointStore::best() const {
  return read_best(directory_);
}

std::vector<std::string> CheckpointStore::prune(int64_t keep_last) {
  if (keep_last < 1) fail("checkpoint: at least one checkpoint must be kept, not {}", keep_last);
  std::vector<std::string> warnings;
  try {
    const std::optional<BestCheckpoint> best_checkpoint = best();
    std::vector<int64_t> old = steps();
    old.resize(old.size() - std::min(old.size(), static_cast<size_t>(keep_last)));
    for (const int64_t step : old) {
      if (best_checkpoint && best_checkpoint->step == step) continue;
      try {
        remove_directory_atomically(directory_ / step_name(step));
      } catch (const Error& error) {
        warnings.push_back(fmt::format("checkpoint: {}", error.what()));
      }
    }
  } catch (const Error& error) {
    warnings.push_back(fmt::format("{}; no old checkpoint was removed", error.what()));
  }
  return warnings;
}

LoadedCheckpoint load_checkpoint(const fs::path& path, LoadRequest request) {
  std::error_code error;
  const fs::path directory = fs::canonical(path, error);  // so that "." and "run/" have a name
  if (error) fail("checkpoint: {}: {}", path.string(), error.message());
  if (!fs::is_directory(directory, error)) {
    fail("checkpoint: {}: is not a folder; expected a run, its checkpoints or one step-N",
         path.string());
  }
  const bool is_step = step_of(directory).has_value() || fs::exists(directory / kState, error);
  if (is_step) return load_step(directory, request.optimizer);

  const bool is_run = fs::is_directory(directory / kCheckpoints, error);
  const fs::path checkpoints = is_run ? directory / kCheckpoints : directory;
  if (!request.best) return load_latest(checkpoints, request.optimizer);
  const std::optional<BestCheckpoint> best = read_best(checkpoints);
  if (!best) fail("checkpoint: {}: no checkpoint was marked as best", checkpoints.string());
  return load_step(checkpoints / step_name(best->step), request.optimizer);
}

}  // namespace primal

#include "experiments/bench_cells.h"

#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/process.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

/// What went wrong in a cell: the last line that it wrote.
std::string last_line(const fs::path& log) {
  std::string text = read_text_file(log);
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  const std::string_view name = "primal-bench: ";
  return text.starts_with(name) ? text.substr(name.size()) : text;
}

}  // namespace

BenchCell measure_cell(const CellOptions& options, const std::string& name,
                       const std::string& config) {
  const fs::path folder = fs::path(options.output) / "cells";
  make_directories(folder);
  const auto file = [&](const char* ending) { return folder / (name + ending); };
  std::vector<std::string> arguments{"step",
                                     "--config",
                                     file(".yaml").string(),
                                     "--random",
                                     "--steps",
                                     std::to_string(options.steps),
                                     "--warmup",
                                     std::to_string(options.warmup),
                                     "--json",
                                     file(".json").string(),
                                     "--set",
                                     "device=" + options.device};
  if (options.threads > 0) {
    arguments.insert(arguments.end(), {"--threads", std::to_string(options.threads)});
  }
  const std::string settings = config + fmt::format("# {}\n", fmt::join(arguments, " "));
  std::error_code none;
  const bool same = fs::exists(file(".yaml"), none) && read_text_file(file(".yaml")) == settings;
  if (options.overwrite || !same || !fs::exists(file(".json"), none)) {
    fs::remove(file(".json"), none);
    write_file_atomically(file(".yaml"), settings);
    const std::string self = fs::read_symlink("/proc/self/exe").string();
    const int status = run_process(self, arguments, file(".log"));
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      if (signal != SIGKILL) {
        fail("stopped by signal {}; the same command goes on from here", signal);
      }
      return {{}, "killed, as when memory runs out"};
    }
    if (WEXITSTATUS(status) != 0) return {{}, last_line(file(".log"))};
  }
  return {nlohmann::json::parse(read_text_file(file(".json"))), {}};
}

void add_measurement(const nlohmann::json& report, nlohmann::ordered_json& cell) {
  for (const char* key : {"batch", "steps", "warmup", "timing"}) cell[key] = report.at(key);
  for (const char* key : {"median", "min", "max"}) {
    cell[std::string("step_ms_") + key] = report.at("step_ms").at(key);
  }
  for (const char* key : {"peak_process_bytes", "peak_reserved_bytes", "peak_allocated_bytes"}) {
    cell[key] = report.at(key);
  }
  const bool on_gpu = report.at("environment").at("device") == "cuda";
  const char* peak = on_gpu ? "peak_reserved_bytes" : "peak_process_bytes";
  cell["peak_gb"] = report.at(peak).get<double>() / 1e9;
}

std::string timing_of(const nlohmann::ordered_json& cells) {
  const auto ran =
      std::ranges::find_if(cells, [](const auto& cell) { return cell.contains("timing"); });
  if (ran == cells.end()) return "";
  return fmt::format("Times are medians of {} steps after {} of warm-up: {}.",
                     ran->at("steps").dump(), ran->at("warmup").dump(),
                     ran->at("timing").template get<std::string>());
}

std::string cells_csv(const nlohmann::ordered_json& cells,
                      std::initializer_list<const char*> columns) {
  std::string out = fmt::format("{}\n", fmt::join(columns, ","));
  for (const auto& cell : cells) {
    std::vector<std::string> values;
    for (const char* column : columns) {
      std::string value;
      if (cell.contains(column)) {
        const auto& json = cell.at(column);
        value = json.is_string() ? json.get<std::string>() : json.dump();
      }
      std::ranges::replace(value, ',', ';');
      std::ranges::replace(value, '\n', ' ');
      values.push_back(std::move(value));
    }
    out += fmt::format("{}\n", fmt::join(values, ","));
  }
  return out;
}

std::string cell_number(const nlohmann::ordered_json& cell, const char* key, const char* format,
                        std::string_view absent) {
  if (!cell.contains(key) || cell.at(key).is_null()) return std::string(absent);
  return fmt::format(fmt::runtime(format), cell.at(key).get<double>());
}

}  // namespace primal

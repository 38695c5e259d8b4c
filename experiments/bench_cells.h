#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace primal {

/// How the cells of a table of measurements are measured, and where they are kept.
struct CellOptions {
  std::string output;  ///< folder; the cells go to output/cells
  std::string device = "auto";
  int64_t batch = 0;  ///< 0: as published
  int64_t steps = 5, warmup = 2;
  int threads = 0;
  bool overwrite = false;  ///< measure again what is there already
};

/// A measurement of `primal-bench step`, or why there is none.
struct BenchCell {
  nlohmann::json report;
  std::string error;
};

/// Measures a configuration on random data in a process of its own (this program, again), so that
/// its peak of memory is its own, or takes the report from an earlier run with the same settings.
/// Error when the measurement was stopped from outside.
BenchCell measure_cell(const CellOptions& options, const std::string& name,
                       const std::string& config);

/// Adds what every table says of a cell that ran: "batch", "steps", "warmup", "timing",
/// "step_ms_median", "step_ms_min", "step_ms_max", "peak_process_bytes", "peak_reserved_bytes" and
/// "peak_allocated_bytes".
void add_measurement(const nlohmann::json& report, nlohmann::ordered_json& cell);

/// How the cells were timed, as a sentence.
std::string timing_of(const nlohmann::ordered_json& cells);

/// Rows of these columns; a column that a cell lacks is empty.
std::string cells_csv(const nlohmann::ordered_json& cells,
                      std::initializer_list<const char*> columns);

/// A number of a cell, or what stands for it.
std::string cell_number(const nlohmann::ordered_json& cell, const char* key, const char* format,
                        std::string_view absent);

}  // namespace primal

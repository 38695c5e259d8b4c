#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/lra.h"

namespace primal {

/// A row of the paper's efficiency table (Chen et al., NeurIPS 2023, Table 3): what its models need
/// for 1000 training steps of each LRA task on one V100.
struct EfficiencyRow {
  std::string_view attention;  ///< our name of it
  std::string_view title;
  std::string_view layer;  ///< attention of both layers, as YAML; empty: by the recipe
  double seconds[5];       ///< listops, text, retrieval, image, pathfinder
  double gigabytes[5];
};
std::span<const EfficiencyRow> efficiency_rows();

/// The configuration of a cell: the published model, length and batch of the task, or another
/// length or batch (0: as published). An attention that is no row of the table is a kind of
/// attention for both layers.
std::string efficiency_config(std::string_view attention, LraTaskName task, int64_t length,
                              int64_t batch);

/// One cell of the table as it was measured, or why it was not.
struct EfficiencyCell {
  std::string attention, task;
  nlohmann::json report;  ///< of `primal-bench step`; null where it failed
  std::string error;
};

/// {"cells": [{"attention", "task", "length", what add_measurement() says,
/// "seconds_per_1000_steps", "time_ratio", "memory_ratio" (of peak_gb, to fused canonical
/// attention), "paper_seconds_per_1000_steps", "paper_peak_gb"} or {"attention", "task",
/// "error"}]}.
nlohmann::ordered_json efficiency_json(std::span<const EfficiencyCell> cells);
std::string efficiency_csv(const nlohmann::ordered_json& table);
std::string efficiency_markdown(const nlohmann::ordered_json& table);
std::string efficiency_latex(const nlohmann::ordered_json& table);

}  // namespace primal

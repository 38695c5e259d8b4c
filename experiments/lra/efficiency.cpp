#include "experiments/lra/efficiency.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "experiments/bench_cells.h"
#include "experiments/lra/task.h"

namespace primal {
namespace {

using nlohmann::ordered_json;

const EfficiencyRow& row_of(std::string_view attention) {
  const auto rows = efficiency_rows();
  return *std::ranges::find(rows, attention, &EfficiencyRow::attention);
}

int64_t published_batch(LraTaskName task) {
  return task == LraTaskName::image || task == LraTaskName::pathfinder ? 256 : 32;
}

size_t index_of(std::string_view task) {
  for (size_t i = 0; i < 5; ++i) {
    if (name_of(static_cast<LraTaskName>(i)) == task) return i;
  }
  fail("bench: '{}' is not an LRA task", task);
}

/// Calls f(title, cells of that attention) for each attention in the order of the cells.
void for_attentions(const ordered_json& table,
                    const std::function<void(std::string_view, std::vector<ordered_json>)>& f) {
  std::vector<std::string> order;
  for (const auto& cell : table.at("cells")) {
    const auto name = cell.at("attention").get<std::string>();
    if (std::ranges::find(order, name) == order.end()) order.push_back(name);
  }
  for (const std::string& name : order) {
    std::vector<ordered_json> cells;
    for (const auto& cell : table.at("cells")) {
      if (cell.at("attention") == name) cells.push_back(cell);
    }
    f(row_of(name).title, std::move(cells));
  }
}

}  // namespace

std::span<const EfficiencyRow> efficiency_rows() {
  static constexpr EfficiencyRow kRows[] = {
      {"canonical",
       "Canonical, fused",
       "canonical",
       {194.5, 694.8, 1333.7, 334.5, 405.5},
       {5.50, 21.24, 18.72, 5.88, 5.88}},
      {"canonical_materialized",
       "Canonical, materialised",
       "{kind: canonical, implementation: materialized}",
       {194.5, 694.8, 1333.7, 334.5, 405.5},
       {5.50, 21.24, 18.72, 5.88, 5.88}},
      {"primal_plus",
       "Primal.+",
       "",
       {113.4, 367.6, 546.5, 212.1, 263.2},
       {5.24, 20.7, 18.59, 5.35, 5.35}},
      {"primal", "Primal.", "", {56.5, 93.6, 185.3, 142.9, 180.0}, {.69, 1.37, 2.99, 1.39, 1.52}},
  };
  return kRows;
}

std::string efficiency_config(std::string_view attention, LraTaskName task, int64_t length,
                              int64_t batch) {
  const auto rows = efficiency_rows();
  const auto row = std::ranges::find(rows, attention, &EfficiencyRow::attention);
  const std::string_view layer = row == rows.end() ? attention : row->layer;
  return fmt::format(
      "task: lra\n{}data: {{name: {}, protocol: paper, length: {}}}\n"
      "optimizer: {{kind: adamw, lr: 1e-4, eps: 1e-6}}\ntrain: {{batch: {}}}\n",
      layer.empty()
          ? fmt::format("recipe: {}\n", attention)
          : fmt::format("model: {{layers: [{{attention: {0}}}, {{attention: {0}}}]}}\n", layer),
      name_of(task), length, batch > 0 ? batch : published_batch(task));
}

ordered_json efficiency_json(std::span<const EfficiencyCell> cells) {
  ordered_json out = ordered_json::array();
  const auto add_ratios = [&](ordered_json& line) {
    const auto base = std::ranges::find_if(out, [&](const ordered_json& other) {
      return other.at("attention") == "canonical" && other.at("task") == line.at("task");
    });
    const ordered_json& fused = base == out.end() ? line : *base;
    if (fused.at("attention") != "canonical" || fused.contains("error")) return;
    for (const auto& [ratio, key] :
         {std::pair("time_ratio", "step_ms_median"), std::pair("memory_ratio", "peak_gb")}) {
      line[ratio] = line.at(key).get<double>() / fused.at(key).get<double>();
    }
  };
  for (const EfficiencyCell& cell : cells) {
    ordered_json line{{"attention", cell.attention}, {"task", cell.task}};
    if (!cell.error.empty()) {
      line["error"] = cell.error;
    } else {
      line["length"] = cell.report.at("facts").at("padded_length");
      add_measurement(cell.report, line);
      // 1000 steps take as many seconds as one takes milliseconds.
      line["seconds_per_1000_steps"] = line.at("step_ms_median");
      add_ratios(line);
    }
    const EfficiencyRow& paper = row_of(cell.attention);
    const size_t i = index_of(cell.task);
    line["paper_seconds_per_1000_steps"] = paper.seconds[i];
    line["paper_peak_gb"] = paper.gigabytes[i];
    out.push_back(std::move(line));
  }
  return {{"cells", std::move(out)}};
}

std::string efficiency_csv(const ordered_json& table) {
  return cells_csv(table.at("cells"),
                   {"attention", "task", "batch", "length", "seconds_per_1000_steps", "step_ms_min",
                    "step_ms_max", "steps", "warmup", "peak_process_bytes", "peak_reserved_bytes",
                    "peak_allocated_bytes", "time_ratio", "memory_ratio",
                    "paper_seconds_per_1000_steps", "paper_peak_gb", "error"});
}

std::string efficiency_markdown(const ordered_json& table) {
  std::string out = fmt::format(
      "Seconds per 1000 training steps and peak memory (GB; of the process, on a GPU what is "
      "reserved there), in brackets the ratio to fused canonical attention, and the paper's figure "
      "on one V100. {}\n",
      timing_of(table.at("cells")));
  for_attentions(table, [&](std::string_view title, const std::vector<ordered_json>& cells) {
    out += fmt::format(
        "\n**{}**\n\n| task | N | batch | s / 1000 steps | paper | peak GB | paper |\n"
        "|---|---|---|---|---|---|---|\n",
        title);
    for (const ordered_json& cell : cells) {
      if (cell.contains("error")) {
        out += fmt::format("| {} | | | did not run: {} | {} | | {} |\n",
                           cell.at("task").get<std::string>(), cell.at("error").get<std::string>(),
                           cell_number(cell, "paper_seconds_per_1000_steps", "{:.1f}", ""),
                           cell_number(cell, "paper_peak_gb", "{:.2f}", ""));
        continue;
      }
      out += fmt::format("| {} | {} | {} | {} ({}) | {} | {} ({}) | {} |\n",
                         cell.at("task").get<std::string>(), cell.at("length").dump(),
                         cell.at("batch").dump(),
                         cell_number(cell, "seconds_per_1000_steps", "{:.1f}", "-"),
                         cell_number(cell, "time_ratio", "{:.2f}", "-"),
                         cell_number(cell, "paper_seconds_per_1000_steps", "{:.1f}", "-"),
                         cell_number(cell, "peak_gb", "{:.2f}", "-"),
                         cell_number(cell, "memory_ratio", "{:.2f}", "-"),
                         cell_number(cell, "paper_peak_gb", "{:.2f}", "-"));
    }
  });
  return out;
}

std::string efficiency_latex(const ordered_json& table) {
  std::string out =
      "\\begin{tabular}{llrrrrrr}\n\\hline\nmodel & task & $N$ & batch & s / 1K steps & paper & "
      "peak "
      "GB & paper \\\\\n\\hline\n";
  for_attentions(table, [&](std::string_view title, const std::vector<ordered_json>& cells) {
    for (const ordered_json& cell : cells) {
      out += fmt::format(
          "{} & {} & {} & {} & {} & {} & {} & {} \\\\\n", title, cell.at("task").get<std::string>(),
          cell_number(cell, "length", "{:.0f}", "--"), cell_number(cell, "batch", "{:.0f}", "--"),
          cell_number(cell, "seconds_per_1000_steps", "{:.1f}", "--"),
          cell_number(cell, "paper_seconds_per_1000_steps", "{:.1f}", "--"),
          cell_number(cell, "peak_gb", "{:.2f}", "--"),
          cell_number(cell, "paper_peak_gb", "{:.2f}", "--"));
    }
    out += "\\hline\n";
  });
  return out + "\\end{tabular}\n";
}

}  // namespace primal

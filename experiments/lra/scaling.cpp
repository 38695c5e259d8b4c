#include "experiments/lra/scaling.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "core/error.h"
#include "experiments/bench_cells.h"
#include "experiments/lra/efficiency.h"

namespace primal {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLongest = 1 << 20;

int64_t parse_length(std::string_view text, std::string_view whole) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 2 || value > kLongest) {
    throw UsageError(fmt::format(
        "--lengths {}: '{}' is no length from 2 to {}; expected some, 512,1024, or a range by "
        "doubling, 512..16384",
        whole, text, kLongest));
  }
  return value;
}

/// The table's title of an attention, or its name where it is no row of it.
std::string_view title_of(std::string_view attention) {
  const auto rows = efficiency_rows();
  const auto row = std::ranges::find(rows, attention, &EfficiencyRow::attention);
  return row == rows.end() ? attention : row->title;
}

/// The values of a key in the order in which they first occur.
template <class T>
std::vector<T> distinct(const ordered_json& scaling, const char* key) {
  std::vector<T> values;
  for (const auto& cell : scaling.at("cells")) {
    const T value = cell.at(key).get<T>();
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return values;
}

}  // namespace

std::vector<int64_t> parse_lengths(std::string_view text) {
  std::set<int64_t> lengths;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    if (const size_t dots = part.find(".."); dots != part.npos) {
      const int64_t first = parse_length(part.substr(0, dots), text);
      const int64_t last = parse_length(part.substr(dots + 2), text);
      if (last < first) {
        throw UsageError(fmt::format("--lengths {}: {} is below {}", text, last, first));
      }
      for (int64_t length = first; length <= last; length *= 2) lengths.insert(length);
    } else {
      lengths.insert(parse_length(part, text));
    }
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  return {lengths.begin(), lengths.end()};
}

ordered_json scaling_json(std::span<const ScalingCell> cells) {
  ordered_json out = ordered_json::array();
  for (const ScalingCell& cell : cells) {
    ordered_json line{{"attention", cell.attention}, {"length", cell.length}};
    if (!cell.error.empty()) {
      line["error"] = cell.error;
    } else {
      add_measurement(cell.report, line);
      line["us_per_token"] = line.at("step_ms_median").get<double>() * 1e3 /
                             (line.at("batch").get<double>() * static_cast<double>(cell.length));
    }
    out.push_back(std::move(line));
  }
  return {{"cells", std::move(out)}};
}

std::string scaling_csv(const ordered_json& scaling) {
  return cells_csv(scaling.at("cells"),
                   {"attention", "length", "batch", "step_ms_median", "step_ms_min", "step_ms_max",
                    "steps", "warmup", "us_per_token", "peak_process_bytes", "peak_reserved_bytes",
                    "peak_allocated_bytes", "error"});
}

std::string scaling_markdown(const ordered_json& scaling) {
  std::string out = fmt::format(
      "Training steps of the LRA classifier: time of a step, of a token, and peak memory (of the "
      "process, on a GPU what is reserved there). {}\n\n"
      "| attention | N | batch | ms / step | us / token | peak GB |\n|---|---|---|---|---|---|\n",
      timing_of(scaling.at("cells")));
  for (const auto& cell : scaling.at("cells")) {
    out += fmt::format("| {} | {} |", title_of(cell.at("attention").get<std::string>()),
                       cell.at("length").dump());
    if (cell.contains("error")) {
      out += fmt::format(" | did not run: {} | | |\n", cell.at("error").get<std::string>());
    } else {
      out += fmt::format(" {} | {:.1f} | {:.2f} | {:.3f} |\n", cell.at("batch").dump(),
                         cell.at("step_ms_median").get<double>(),
                         cell.at("us_per_token").get<double>(), cell.at("peak_gb").get<double>());
    }
  }
  return out;
}

std::string scaling_gnuplot(const ordered_json& scaling) {
  const auto attentions = distinct<std::string>(scaling, "attention");
  std::string out = "# Draws scaling.svg and scaling.png: gnuplot scaling.gp\n";
  std::vector<std::string> drawn;  // blocks of at least one point, "$cells0" with its title
  for (size_t i = 0; i < attentions.size(); ++i) {
    std::string points;
    for (const auto& cell : scaling.at("cells")) {
      if (cell.at("attention") != attentions[i] || cell.contains("error")) continue;
      points +=
          fmt::format("{} {:.6g} {:.6g}\n", cell.at("length").dump(),
                      cell.at("step_ms_median").get<double>(), cell.at("peak_gb").get<double>());
    }
    if (points.empty()) continue;
    out +=
        fmt::format("# length, milliseconds a step, peak GB\n$cells{} << END\n{}END\n", i, points);
    drawn.push_back(
        fmt::format("$cells{0} using 1:COLUMN with linespoints linewidth 2 pointtype {1} "
                    "title \"{2}\"",
                    i, i + 4, title_of(attentions[i])));
  }
  if (drawn.empty()) return out;
  const auto plot = [&](const char* label, const char* column) {
    std::string text = fmt::format("set ylabel \"{}\"\nplot ", label);
    for (const std::string& line : drawn) {
      std::string with = line;
      with.replace(with.find("COLUMN"), 6, column);
      text += (&line == &drawn.front() ? "" : ", ") + with;
    }
    return text + "\n";
  };
  out +=
      "set logscale x 2\nset logscale y 10\nset grid\nset key top left reverse Left\n"
      "set xlabel \"sequence length N\"\nset offsets graph 0.05, graph 0.05, graph 0.25, graph "
      "0.05\n";
  for (const auto& [terminal, file] :
       {std::pair("svg size 1000,420 font \"sans,12\" background \"white\"", "scaling.svg"),
        std::pair("pngcairo size 2000,840 font \"sans,12\" fontscale 2", "scaling.png")}) {
    out += fmt::format("set terminal {}\nset output \"{}\"\nset multiplot layout 1,2\n", terminal,
                       file);
    out += plot("milliseconds a training step", "2") + plot("peak memory, GB", "3");
    out += "unset multiplot\nunset output\n";
  }
  return out;
}

}  // namespace primal

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "apps/command_line.h"
#include "core/bench.h"
#include "core/files.h"
#include "core/process.h"
#include "experiments/bench_cells.h"
#include "experiments/lra/efficiency.h"
#include "experiments/lra/scaling.h"
#include "layers/attention/attention.h"

namespace {

using namespace primal;
using nlohmann::json;
namespace fs = std::filesystem;

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  BenchOptions bench;
  std::string json;
  std::string random;
  bool random_given = false;
  int threads = 0;
};

/// "length=29,channels=12" as an object.
json sizes(const std::string& text) {
  json object = json::object();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    const std::string number = equals == part.npos ? "" : part.substr(equals + 1);
    if (equals == 0 || number.empty() || number.size() > 9 ||
        number.find_first_not_of("0123456789") != number.npos || std::stol(number) < 1) {
      throw UsageError("--random " + text + ": '" + part +
                       "' is not NAME=NUMBER, the number at least 1");
    }
    object[part.substr(0, equals)] = std::stol(number);
    begin = end + 1;
  }
  return object;
}

int step(const Arguments& a) {
  if (!a.json.empty()) check_output_file(a.json);
  RunConfig config = load_run_config(ConfigSource::from_file(a.config, a.overrides));
  Backend backend = make_backend(config, a.threads);
  TaskSetup setup;
  setup.seed = static_cast<uint64_t>(config.seed);
  setup.splits = {"train"};
  std::string data = "the configured data";
  std::unique_ptr<Task> task;
  if (a.random_given) {
    setup.random_data = sizes(a.random);
    data = "random";
  } else {
    try {
      task = config.task->make(backend, setup);
    } catch (const Error& error) {
      fmt::print("random data in place of the data set: {}\n", error.what());
      setup.random_data = json::object();
      data = "random, of the data set's published size";
    }
  }
  if (!task) task = config.task->make(backend, setup);
  nlohmann::ordered_json report = bench_steps(backend, *task, config, a.bench);
  report["data"] = data;
  report["facts"] = task->facts();
  report["environment"] = environment_facts(backend);
  if (!a.json.empty()) write_file_atomically(a.json, report.dump(1) + "\n");

  const auto mib = [&](const char* key) { return report.at(key).get<double>() / (1 << 20); };
  const auto& ms = report.at("step_ms");
  fmt::print("step: median {:.2f} ms, min {:.2f}, max {:.2f}, over {} steps after {} of warm-up\n",
             ms.at("median").get<double>(), ms.at("min").get<double>(), ms.at("max").get<double>(),
             a.bench.steps, a.bench.warmup);
  fmt::print("rate: {:.1f} samples/s, batch {}, {} threads, data: {}\n",
             report.at("samples_per_s").get<double>(), report.at("batch").get<int64_t>(),
             backend.exec.threads, data);
  fmt::print(
      "memory: peak allocated {:.1f} MiB, peak reserved {:.1f} MiB, peak process {:.1f} MiB\n",
      mib("peak_allocated_bytes"), mib("peak_reserved_bytes"), mib("peak_process_bytes"));
  fmt::print(
      "products: {:.1f} % of the time at {:.0f} GFLOP/s; a 2048 x 2048 product: {:.0f} GFLOP/s\n",
      100 * report.at("product_share").get<double>(), report.at("product_gflops").get<double>(),
      report.at("machine_product_gflops").get<double>());
  return 0;
}

struct TableArguments {
  std::string preset = "lra";
  std::vector<std::string> attention, tasks;
  CellOptions cells{.output = "runs/table"};
};

/// Prints what a cell gave, `result` where it ran.
void print_cell(const std::string& name, const std::string& error, const std::string& result) {
  fmt::print("{}: {}\n", name, error.empty() ? result : "did not run: " + error);
  std::fflush(stdout);
}

int table(const TableArguments& a) {
  const fs::path folder = a.cells.output;
  std::vector<EfficiencyCell> cells;
  for (const EfficiencyRow& row : efficiency_rows()) {
    const std::string attention(row.attention);
    if (!a.attention.empty() && std::ranges::find(a.attention, attention) == a.attention.end()) {
      continue;
    }
    for (int i = 0; i < 5; ++i) {
      const auto task = static_cast<LraTaskName>(i);
      const std::string name(name_of(task));
      if (!a.tasks.empty() && std::ranges::find(a.tasks, name) == a.tasks.end()) continue;
      const std::string config = efficiency_config(attention, task, 0, a.cells.batch);
      auto [report, error] = measure_cell(a.cells, attention + "-" + name, config);
      cells.push_back({attention, name, std::move(report), std::move(error)});
      // After each, so that what was measured is there to read if the next is stopped.
      const nlohmann::ordered_json result = efficiency_json(cells);
      write_file_atomically(folder / "table.json", result.dump(1) + "\n");
      write_file_atomically(folder / "table.csv", efficiency_csv(result));
      write_file_atomically(folder / "table.md", efficiency_markdown(result));
      write_file_atomically(folder / "table.tex", efficiency_latex(result));
      const auto& cell = result.at("cells").back();
      print_cell(attention + ", " + name, cells.back().error,
                 cell_number(cell, "seconds_per_1000_steps", "{:.1f} s per 1000 steps, ", "") +
                     cell_number(cell, "peak_gb", "{:.2f} GB", ""));
    }
  }
  fmt::print("wrote {}/table.md, .csv, .json and .tex\n", a.cells.output);
  return 0;
}

struct ScalingArguments {
  std::vector<std::string> attention{"canonical", "canonical_materialized", "primal_plus",
                                     "primal"};
  std::string lengths = "512..16384";
  CellOptions cells{.output = "runs/scaling", .batch = 1};
};

int scaling(const ScalingArguments& a) {
  const fs::path folder = a.cells.output;
  const std::vector<int64_t> lengths = parse_lengths(a.lengths);
  std::vector<ScalingCell> cells;
  for (const std::string& attention : a.attention) {
    for (const int64_t length : lengths) {
      const std::string config =
          efficiency_config(attention, LraTaskName::text, length, a.cells.batch);
      auto [report, error] = measure_cell(a.cells, fmt::format("{}-{}", attention, length), config);
      cells.push_back({attention, length, std::move(report), std::move(error)});
      const nlohmann::ordered_json result = scaling_json(cells);
      write_file_atomically(folder / "scaling.json", result.dump(1) + "\n");
      write_file_atomically(folder / "scaling.csv", scaling_csv(result));
      write_file_atomically(folder / "scaling.md", scaling_markdown(result));
      write_file_atomically(folder / "scaling.gp", scaling_gnuplot(result));
      const auto& cell = result.at("cells").back();
      print_cell(fmt::format("{}, N = {}", attention, length), cells.back().error,
                 cell_number(cell, "step_ms_median", "{:.1f} ms a step, ", "") +
                     cell_number(cell, "us_per_token", "{:.2f} us a token", ""));
    }
  }
  fmt::print("wrote {}/scaling.md, .csv, .json and .gp\n", a.cells.output);
  try {
    const int status = run_process("gnuplot", {"scaling.gp"}, folder / "gnuplot.log", folder);
    if (status != 0) fail("see {}", (folder / "gnuplot.log").string());
    fmt::print("drew {}/scaling.svg and .png\n", a.cells.output);
  } catch (const Error& error) {
    fail("the pictures are missing: {}; 'gnuplot scaling.gp' in {} draws them", error.what(),
         a.cells.output);
  }
  return 0;
}

/// Options that table and scaling share; their attentions are among `attentions`.
void add_cell_options(CLI::App& command, CellOptions& cells, std::vector<std::string>& attention,
                      const std::vector<std::string>& attentions) {
  command.add_option("--attention", attention, "some models; default: all of the paper's")
      ->delimiter(',')
      ->check(CLI::IsMember(attentions));
  command.add_option("--steps", cells.steps, "timed steps of a cell")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_option("--warmup", cells.warmup, "steps before them")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command.add_option("--device", cells.device, "where to compute")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
  command.add_option("--threads", cells.threads, "Threads; default: all usable cores")
      ->check(CLI::Range(1, 1024));
  add_path_option(command, "--output", cells.output, "DIR", "folder of the results and cells")
      ->capture_default_str();
  command.add_flag("--overwrite", cells.overwrite, "measure again what is there already");
}

void add_table(CLI::App& app, TableArguments& a) {
  CLI::App* command = app.add_subcommand(
      "table", "Measure an efficiency table of the paper, each cell in a process of its own");
  std::vector<std::string> attentions;
  for (const EfficiencyRow& row : efficiency_rows()) attentions.emplace_back(row.attention);
  std::vector<std::string> tasks;
  for (int i = 0; i < 5; ++i) tasks.emplace_back(name_of(static_cast<LraTaskName>(i)));
  command->add_option("--preset", a.preset, "which table")->check(CLI::IsMember({"lra"}));
  command->add_option("--tasks", a.tasks, "some of its tasks; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(tasks));
  command
      ->add_option("--batch", a.cells.batch, "examples of a step; default: the published batches")
      ->check(CLI::Range(1, 1 << 20));
  add_cell_options(*command, a.cells, a.attention, attentions);
}

void add_scaling(CLI::App& app, ScalingArguments& a) {
  CLI::App* command = app.add_subcommand(
      "scaling", "Measure time and memory of training against the length, and draw them");
  std::vector<std::string> attentions;
  for (const EfficiencyRow& row : efficiency_rows()) attentions.emplace_back(row.attention);
  for (const auto& kind : attention_kinds()) {
    if (std::ranges::find(attentions, kind.name) == attentions.end()) {
      attentions.emplace_back(kind.name);
    }
  }
  command->add_option("--lengths", a.lengths, "lengths: some, 512,1024, or by doubling, 512..16384")
      ->capture_default_str();
  command->add_option("--batch", a.cells.batch, "examples of a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_cell_options(*command, a.cells, a.attention, attentions);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  TableArguments table_arguments;
  ScalingArguments scaling_arguments;
  CLI::App app{"Measures the speed and memory of training.", "primal-bench"};
  app.require_subcommand(1);
  CLI::App* sub = app.add_subcommand("step", "Time training steps after a warm-up, then end");
  add_path_option(*sub, "--config", a.config, "FILE", "Configuration (YAML)")->required();
  add_set_option(*sub, a.overrides);
  sub->add_option("--steps", a.bench.steps, "Timed steps")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  sub->add_option("--warmup", a.bench.warmup, "Steps before them")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  sub->add_option("--threads", a.threads, "Threads; default: all usable cores")
      ->check(CLI::Range(1, 1024));
  add_path_option(*sub, "--json", a.json, "FILE", "Write the report to this file");
  CLI::Option* random = sub->add_option("--random", a.random,
                                        "Random data instead of the data set, e.g. "
                                        "length=29,channels=12,classes=9; sizes left out, or "
                                        "all without a value, are the data set's published ones");
  random->expected(0, 1)->type_name("SIZES");
  add_table(app, table_arguments);
  add_scaling(app, scaling_arguments);
  return run_program(app, argc, argv, true, [&] {
    if (app.got_subcommand("table")) return table(table_arguments);
    if (app.got_subcommand("scaling")) return scaling(scaling_arguments);
    a.random_given = random->count() > 0;
    return step(a);
  });
}

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "apps/command_line.h"
#include "core/bench.h"
#include "core/files.h"
#include "experiments/lra/efficiency.h"

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
  std::string output = "runs/table";
  std::string device = "auto";
  int64_t batch = 0;
  int64_t steps = 5, warmup = 2;
  int threads = 0;
  bool overwrite = false;
};

/// Runs this program with other arguments, its output in a file; the status of waitpid().
int run_self(std::vector<std::string> arguments, const fs::path& output) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  arguments.insert(arguments.begin(), self);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawn(&child, self.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) fail("{}: cannot be started: {}", self, std::generic_category().message(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// What went wrong in a cell: the last line that it wrote.
std::string last_line(const fs::path& log) {
  std::string text = read_text_file(log);
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  const std::string_view name = "primal-bench: ";
  return text.starts_with(name) ? text.substr(name.size()) : text;
}

/// Measures a cell in a process of its own, or takes it from an earlier run with the same settings.
EfficiencyCell measure(const TableArguments& a, const EfficiencyRow& row, LraTaskName task) {
  EfficiencyCell cell{std::string(row.attention), std::string(name_of(task)), {}, {}};
  const fs::path stem = fs::path(a.output) / "cells" / (cell.attention + "-" + cell.task);
  const auto file = [&](const char* ending) { return fs::path(stem.string() + ending); };
  const std::string config = efficiency_config(row, task, a.batch);
  std::vector<std::string> arguments{"step",
                                     "--config",
                                     file(".yaml").string(),
                                     "--random",
                                     "--steps",
                                     std::to_string(a.steps),
                                     "--warmup",
                                     std::to_string(a.warmup),
                                     "--json",
                                     file(".json").string(),
                                     "--set",
                                     "device=" + a.device};
  if (a.threads > 0) arguments.insert(arguments.end(), {"--threads", std::to_string(a.threads)});
  const std::string settings = config + fmt::format("# {}\n", fmt::join(arguments, " "));
  std::error_code none;
  const bool same = fs::exists(file(".yaml"), none) && read_text_file(file(".yaml")) == settings;
  if (a.overwrite || !same || !fs::exists(file(".json"), none)) {
    fs::remove(file(".json"), none);
    write_file_atomically(file(".yaml"), settings);
    const int status = run_self(arguments, file(".log"));
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      if (signal != SIGKILL)
        fail("stopped by signal {}; the same command goes on from here", signal);
      cell.error = "killed, as when memory runs out";
      return cell;
    }
    if (WEXITSTATUS(status) != 0) {
      cell.error = last_line(file(".log"));
      return cell;
    }
  }
  cell.report = json::parse(read_text_file(file(".json")));
  return cell;
}

int table(const TableArguments& a) {
  std::vector<const EfficiencyRow*> rows;
  for (const EfficiencyRow& row : efficiency_rows()) {
    if (a.attention.empty() || std::ranges::find(a.attention, row.attention) != a.attention.end()) {
      rows.push_back(&row);
    }
  }
  make_directories(fs::path(a.output) / "cells");
  std::vector<EfficiencyCell> cells;
  for (const EfficiencyRow* row : rows) {
    for (int i = 0; i < 5; ++i) {
      const auto task = static_cast<LraTaskName>(i);
      if (!a.tasks.empty() && std::ranges::find(a.tasks, name_of(task)) == a.tasks.end()) continue;
      cells.push_back(measure(a, *row, task));
      const EfficiencyCell& cell = cells.back();
      fmt::print("{}, {}: {}\n", cell.attention, cell.task,
                 cell.error.empty()
                     ? fmt::format("{:.1f} s per 1000 steps, {:.2f} GB",
                                   cell.report.at("step_ms").at("median").get<double>(),
                                   cell.report.at("peak_process_bytes").get<double>() / 1e9)
                     : "did not run: " + cell.error);
      std::fflush(stdout);
      // After each, so that what was measured is there to read if the next is stopped.
      const nlohmann::ordered_json result = efficiency_json(cells);
      const fs::path folder = a.output;
      write_file_atomically(folder / "table.json", result.dump(1) + "\n");
      write_file_atomically(folder / "table.csv", efficiency_csv(result));
      write_file_atomically(folder / "table.md", efficiency_markdown(result));
      write_file_atomically(folder / "table.tex", efficiency_latex(result));
    }
  }
  fmt::print("wrote {}/table.md, .csv, .json and .tex\n", a.output);
  return 0;
}

void add_table(CLI::App& app, TableArguments& a) {
  CLI::App* command = app.add_subcommand(
      "table", "Measure an efficiency table of the paper, each cell in a process of its own");
  std::vector<std::string> attentions;
  for (const EfficiencyRow& row : efficiency_rows()) attentions.emplace_back(row.attention);
  std::vector<std::string> tasks;
  for (int i = 0; i < 5; ++i) tasks.emplace_back(name_of(static_cast<LraTaskName>(i)));
  command->add_option("--preset", a.preset, "which table")->check(CLI::IsMember({"lra"}));
  command->add_option("--attention", a.attention, "some of its models; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(attentions));
  command->add_option("--tasks", a.tasks, "some of its tasks; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(tasks));
  command->add_option("--steps", a.steps, "timed steps of a cell")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--warmup", a.warmup, "steps before them")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_option("--batch", a.batch, "examples of a step; default: the published batches")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--device", a.device, "where to compute")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
  command->add_option("--threads", a.threads, "Threads; default: all usable cores")
      ->check(CLI::Range(1, 1024));
  add_path_option(*command, "--output", a.output, "DIR", "folder of the table and its cells")
      ->capture_default_str();
  command->add_flag("--overwrite", a.overwrite, "measure again what is there already");
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  TableArguments t;
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
  add_table(app, t);
  return run_program(app, argc, argv, true, [&] {
    if (app.got_subcommand("table")) return table(t);
    a.random_given = random->count() > 0;
    return step(a);
  });
}

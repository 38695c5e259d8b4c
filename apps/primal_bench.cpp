#include <fmt/format.h>

#include "apps/command_line.h"
#include "core/bench.h"
#include "core/files.h"

namespace {

using namespace primal;
using nlohmann::json;

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

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
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
  return run_program(app, argc, argv, true, [&] {
    a.random_given = random->count() > 0;
    return step(a);
  });
}

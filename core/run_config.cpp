#include "core/run_config.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/error.h"

namespace primal {
namespace {

std::vector<std::string_view> task_names() {
  std::vector<std::string_view> names;
  for (const auto& kind : task_kinds()) names.push_back(kind.name);
  return names;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != line.npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

/// Collects the names of single values.
class KeyCollector final : public Fields {
 public:
  explicit KeyCollector(std::vector<std::string>& keys) : keys_(keys) {}

 private:
  void integer(std::string_view name, int64_t&, const Bound<int64_t>&, std::string_view) override {
    add(name);
  }
  void real(std::string_view name, double&, const Bound<double>&, std::string_view) override {
    add(name);
  }
  void boolean(std::string_view name, bool&, std::string_view) override { add(name); }
  void text(std::string_view name, std::string&, std::string_view) override { add(name); }
  size_t choose(std::string_view name, size_t current, std::span<const std::string_view>,
                std::string_view) override {
    add(name);
    return current;
  }
  void open_section(std::string_view name, const Record& record, std::string_view) override {
    const std::string outer = prefix_;
    prefix_ += fmt::format("{}.", name);
    record.visit(*this);
    prefix_ = outer;
  }
  void open_list(std::string_view, size_t, const List&, std::string_view) override {}
  void open_variant(std::string_view name, const std::string& current, std::span<const KindName>,
                    const Variant& variant, std::string_view help) override {
    if (!current.empty()) open_section(name, variant.value(), help);
  }

  void add(std::string_view name) { keys_.push_back(prefix_ + std::string(name)); }

  std::vector<std::string>& keys_;
  std::string prefix_;
};

}  // namespace

void EarlyStopping::fields(Fields& f) {
  f.field("patience", patience, at_least(0),
          "stop after this many evaluations in a row without improvement; a tie is none; 0: never");
  f.field("min_delta", min_delta, at_least(0), "an improvement is more than this");
}

void TrainConfig::fields(Fields& f) {
  f.field("epochs", epochs, between(0, 1000000000),
          "passes over the training split; 0: until max_steps");
  f.field("max_steps", max_steps, between(0, int64_t{1} << 60),
          "stop after this many updates; 0: no limit");
  f.field("batch", batch, between(1, 1 << 20),
          "examples per update; what remains at the end of an epoch is a smaller update");
  f.field("accumulate", accumulate, between(1, 1 << 20),
          "compute an update's examples in so many parts, one after the other, to save memory");
  f.field("evaluate_batch", evaluate_batch, between(1, 1 << 20),
          "examples at a time when scoring a split");
  f.field("evaluate_every", evaluate_every, at_least(1),
          "score the evaluation splits every so many epochs, and at the end");
  f.field("evaluate_every_steps", evaluate_every_steps, at_least(0),
          "score them every so many updates instead; 0: by epochs");
  f.field("log_every", log_every, at_least(1),
          "write a line of step metrics, and wait for a GPU, every so many updates");
  f.field("save_every", save_every, at_least(1),
          "save a checkpoint every so many epochs, and at the end, at a new best and when stopped");
  f.field("save_every_steps", save_every_steps, at_least(0),
          "save one every so many updates as well; 0: by epochs alone");
  f.field("keep_last", keep_last, at_least(1), "newest checkpoints to keep, besides the best");
  f.section("early_stopping", early_stopping, "judged on the validation split, else on test");
}

void TrainConfig::check() const {
  if (epochs == 0 && max_steps == 0)
    fail("train: epochs is 0, so that max_steps must say when to end");
}

RunConfig RunConfig::for_task(std::string_view task) {
  for (const auto& kind : task_kinds()) {
    if (kind.name != task) continue;
    RunConfig config;
    config.task = kind.make();
    config.optimizer = optimizer_kinds()[0].make();
    config.schedule = schedule_kinds()[0].make();
    return config;
  }
  const auto names = task_names();
  const std::string near = nearest(task, names);
  fail("task '{}' is not known{}; expected {}", task,
       near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", "));
}

void RunConfig::fields(Fields& f) {
  std::string name(task->kind());
  f.field("task", name, fmt::format("what is trained, on what: {}", fmt::join(task_names(), ", ")));
  f.field("seed", seed, at_least(0), "first values, data order, splits and masks follow from it");
  f.choice(
      "device", device,
      {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}},
      "where to compute; auto takes the best that this build offers");
  f.choice("precision", precision,
           {{"float32", Precision::float32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}},
           "what matrix products round their operands to; all else is float32. tf32 is float32 on "
           "the CPU");
  task->fields(f);
  f.variant<OptimizerRule>("optimizer", optimizer, optimizer_kinds(), "update rule");
  f.variant<Schedule>("schedule", schedule, schedule_kinds(), "learning rate over the run");
  f.section("train", train, "the training loop");
}

void RunConfig::check() const {
  task->check();
}

RunConfig load_run_config(const ConfigSource& source) {
  const std::string task = source.text_at("task");
  if (task.empty()) {
    fail("{}: key 'task' is missing; expected {}", source.name(), fmt::join(task_names(), ", "));
  }
  RunConfig config;
  try {
    config = RunConfig::for_task(task);
  } catch (const Error& error) {
    fail("{}: {}", source.name(), error.what());
  }
  read_config(source, config);
  return config;
}

std::vector<std::string> known_config_keys() {
  std::vector<std::string> keys;
  KeyCollector collector(keys);
  for (const std::string_view task : task_names()) RunConfig::for_task(task).fields(collector);
  return keys;
}

bool has_openmp() {
#ifdef _OPENMP
  return true;
#else
  return false;
#endif
}

Backend make_backend(const RunConfig& config, int threads) {
  const bool cuda = config.device == DeviceChoice::cuda ||
                    (config.device == DeviceChoice::automatic && cuda_obstacle().empty());
  Backend backend = cuda ? cuda_backend() : cpu_backend(has_openmp() ? threads : 1);
  backend.exec.precision = config.precision;
  return backend;
}

std::string version() {
  const std::string commit = PRIMAL_COMMIT;
  return PRIMAL_VERSION + (commit.empty() ? "" : " (" + commit + ")");
}

nlohmann::json environment_facts(const Backend& backend) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return {{"version", version()},
          {"compiler", fmt::format("{}", __VERSION__)},
#ifdef NDEBUG
          {"assertions", false},
#else
          {"assertions", true},
#endif
          {"openmp", has_openmp()},
          {"device", backend.device == Device::cpu ? "cpu" : "cuda"},
          {"gpu", backend.device_name},
          {"threads", backend.exec.threads},
          {"usable_cores", usable_cores()},
          {"processor", processor()},
          {"host", host.data()},
          {"process", getpid()}};
}

}  // namespace primal

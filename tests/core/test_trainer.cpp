#include "core/trainer.h"

#include <csignal>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "core/run_folder.h"
#include "tests/catch.h"
#include "tests/core/fake_task.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// One process that trains the fake task in a folder.
struct Run {
  fs::path directory;
  Backend backend = cpu_backend(1);
  RunConfig config;
  FakeTask task;
  std::ostringstream text;
  Log log{text, false};
  int64_t polls = 0;
  int64_t stop_at_poll = -1;  ///< a signal arrives at this poll

  explicit Run(fs::path folder, std::vector<std::string> splits = {"validation", "test"},
               int64_t cases = 10)
      : directory(std::move(folder)), task(backend, cases, std::move(splits), 1) {
    config.task = std::make_unique<FakeConfig>();
    config.optimizer = optimizer_kinds()[0].make();
    config.optimizer->lr = 0.05;
    config.optimizer->clip_norm = 1;
    config.schedule = schedule_kinds()[0].make();
    config.train.epochs = 4;
    config.train.batch = 4;
    config.train.evaluate_batch = 4;
    config.train.save_every = 1;
    config.train.keep_last = 100;
  }

  Trainer trainer() {
    fs::create_directories(directory);
    return Trainer({.backend = backend,
                    .task = task,
                    .config = config,
                    .run_directory = directory,
                    .log = log,
                    .stop_signal = [this] {
                      if (stop_at_poll >= 0 && polls++ >= stop_at_poll) return SIGTERM;
                      return 0;
                    }});
  }
  TrainOutcome start() { return trainer().run(); }
  TrainOutcome resume() {
    Trainer t = trainer();
    if (holds_checkpoints(directory)) {
      warnings = t.restore(load_checkpoint(directory));
    } else {
      fs::remove(directory / "metrics.jsonl");
      return start();
    }
    return t.run();
  }
  std::vector<float> weights() {
    const auto values = task.parameters().values().floats();
    return {values.begin(), values.end()};
  }
  /// The lines of metrics.jsonl without what depends on the clock or the machine.
  std::vector<json> metrics() const {
    std::ifstream file(directory / "metrics.jsonl");
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) {
      json object = json::parse(line);
      for (const char* key : {"step_ms", "samples_per_s", "seconds", "memory_allocated",
                              "memory_peak", "memory_reserved", "memory_process"}) {
        object.erase(key);
      }
      lines.push_back(std::move(object));
    }
    return lines;
  }
  std::vector<json> metrics(std::string_view event) const {
    std::vector<json> chosen;
    for (const json& line : metrics()) {
      if (line.at("event") == event) chosen.push_back(line);
    }
    return chosen;
  }
  json result() const { return json::parse(std::ifstream(directory / "result.json")); }

  std::vector<std::string> warnings;
};

/// Figures of result.json that do not depend on the clock, the machine or the folder.
json figures(json result) {
  for (const char* key : {"seconds", "peak_allocated_bytes", "peak_reserved_bytes",
                          "peak_process_bytes", "checkpoint", "last_checkpoint"}) {
    REQUIRE(result.contains(key));
    result.erase(key);
  }
  return result;
}

}  // namespace

TEST_CASE("the order of an epoch visits every example once and is a function of seed and epoch") {
  const auto order = epoch_order(1, 0, 100);
  REQUIRE(std::set<int64_t>(order.begin(), order.end()).size() == 100);
  REQUIRE(*std::min_element(order.begin(), order.end()) == 0);
  REQUIRE(*std::max_element(order.begin(), order.end()) == 99);
  REQUIRE(order == epoch_order(1, 0, 100));
  REQUIRE(order != epoch_order(1, 1, 100));
  REQUIRE(order != epoch_order(2, 0, 100));
  REQUIRE(epoch_order(1, 0, 0).empty());
}

TEST_CASE("examples that do not fill a batch are trained on, too") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.epochs = 2;
  run.start();
  REQUIRE(run.task.visited.size() == 20);
  const auto begin = run.task.visited.begin();
  REQUIRE(std::set<int64_t>(begin, begin + 10).size() == 10);
  const auto steps = run.metrics("step");
  REQUIRE(steps.size() == 6);
  REQUIRE(steps[1].at("examples") == 4);
  REQUIRE(steps[2].at("examples") == 2);
}

TEST_CASE("a run writes steps, epochs, evaluations and a result that agree with one another") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  const TrainOutcome outcome = run.start();
  REQUIRE(outcome.signal == 0);
  REQUIRE_FALSE(outcome.was_complete);
  REQUIRE(run.metrics("step").size() == 12);
  REQUIRE(run.metrics("epoch").size() == 4);
  const auto evaluations = run.metrics("evaluate");
  REQUIRE(evaluations.size() == 8);
  REQUIRE(evaluations[0].at("split") == "validation");
  REQUIRE(evaluations[1].at("split") == "test");
  REQUIRE(evaluations[7].at("epoch") == 4);
  REQUIRE(evaluations[7].at("step") == 12);

  double loss = 0;
  for (const json& step : run.metrics("step")) {
    if (step.at("epoch") == 2)
      loss += step.at("loss").get<double>() * step.at("examples").get<double>();
  }
  REQUIRE(run.metrics("epoch")[1].at("loss").get<double>() == Approx(loss / 10));

  const json result = run.result();
  double best = 0;
  int64_t best_epoch = 0;
  for (const json& line : evaluations) {
    if (line.at("split") == "test" && line.at("accuracy").get<double>() > best) {
      best = line.at("accuracy").get<double>();
      best_epoch = line.at("epoch").get<int64_t>();
    }
  }
  REQUIRE(result.at("best_test_accuracy") == best);
  REQUIRE(result.at("best_test_epoch") == best_epoch);
  REQUIRE(result.at("last_test_accuracy") == evaluations[7].at("accuracy"));
  REQUIRE(result.contains("test_accuracy_at_best_validation"));
  REQUIRE(result.at("epochs") == 4);
  REQUIRE(result.at("steps") == 12);
  REQUIRE(result.at("stopped_by") == "epochs");
  REQUIRE_FALSE(result.contains("ksvd_loss"));
  REQUIRE(fs::exists(result.at("checkpoint").get<std::string>()));
  REQUIRE(outcome.checkpoint == result.at("checkpoint").get<std::string>());
}

TEST_CASE("fields of a split that does not exist are absent") {
  TemporaryFolder folder("trainer");
  Run run(folder.path, {"test"});
  run.start();
  REQUIRE(run.result().contains("best_test_accuracy"));
  REQUIRE_FALSE(run.result().contains("best_validation_accuracy"));
  REQUIRE_FALSE(run.result().contains("test_accuracy_at_best_validation"));
  Run without(folder.path / "none", {});
  without.start();
  REQUIRE_FALSE(without.result().contains("best_test_accuracy"));
  REQUIRE(without.result().at("steps") == 12);
}

namespace {

/// How a run is evaluated and saved: by epochs, or by steps that fall within and at the end of
/// epochs.
using Change = void (*)(TrainConfig&);
constexpr std::pair<const char*, Change> kRhythms[] = {
    {"epochs", [](TrainConfig& train) { train.save_every = 3; }},
    {"steps",
     [](TrainConfig& train) {
       train.epochs = 0;
       train.max_steps = 11;
       train.evaluate_every_steps = 2;
       train.save_every_steps = 3;
       train.save_every = 100;
       train.log_every = 3;
     }},
};

}  // namespace

TEST_CASE(
    "a signal at any step or evaluation batch is obeyed, and the resumed run ends bit for bit the "
    "same") {
  TemporaryFolder folder("trainer");
  for (const auto& [name, change] : kRhythms) {
    CAPTURE(name);
    Run whole(folder.path / name / "whole");
    change(whole.config.train);
    whole.stop_at_poll = 1 << 20;
    whole.start();
    REQUIRE(whole.polls > 11 + 4 * 2 * 3 - 1);
    for (int64_t poll = 0; poll < whole.polls; ++poll) {
      CAPTURE(poll);
      const fs::path directory = folder.path / name / std::to_string(poll);
      {
        Run stopped(directory);
        change(stopped.config.train);
        stopped.stop_at_poll = poll;
        const TrainOutcome outcome = stopped.start();
        REQUIRE(outcome.signal == SIGTERM);
        REQUIRE_FALSE(fs::exists(directory / "result.json"));
        REQUIRE(fs::exists(outcome.checkpoint));
      }
      Run resumed(directory);
      change(resumed.config.train);
      const TrainOutcome outcome = resumed.resume();
      REQUIRE(outcome.signal == 0);
      REQUIRE(resumed.warnings.empty());
      REQUIRE(resumed.weights() == whole.weights());
      REQUIRE(resumed.metrics() == whole.metrics());
      REQUIRE(figures(resumed.result()) == figures(whole.result()));
    }
  }
}

TEST_CASE("a run that died at any step goes on from its last checkpoint, bit for bit the same") {
  TemporaryFolder folder("trainer");
  for (const auto& [name, change] : kRhythms) {
    CAPTURE(name);
    Run whole(folder.path / name / "whole");
    change(whole.config.train);
    whole.start();
    for (int64_t step = 0; step < 11; ++step) {
      CAPTURE(step);
      const fs::path directory = folder.path / name / std::to_string(step);
      {
        Run dying(directory);
        change(dying.config.train);
        int64_t steps = 0;
        dying.task.before_step = [&] {
          if (steps++ == step) throw std::runtime_error("killed");
        };
        REQUIRE_THROWS_WITH(dying.start(), "killed");
      }
      Run resumed(directory);
      change(resumed.config.train);
      resumed.resume();
      REQUIRE(resumed.weights() == whole.weights());
      REQUIRE(resumed.metrics() == whole.metrics());
      REQUIRE(figures(resumed.result()) == figures(whole.result()));
    }
  }
}

TEST_CASE("a run by steps evaluates, saves and ends at the steps that it names") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  kRhythms[1].second(run.config.train);
  run.start();
  std::vector<int64_t> evaluated;
  for (const json& line : run.metrics("evaluate")) {
    if (line.at("split") == "test") evaluated.push_back(line.at("step"));
  }
  CHECK(evaluated == std::vector<int64_t>{2, 4, 6, 8, 10, 11});
  CHECK(run.metrics("epoch").size() == 3);  // of 3 steps each
  CHECK(run.result().at("steps") == 11);
  CHECK(run.result().at("stopped_by") == "max_steps");
  const int64_t best = run.result().at("best_validation_step");
  CHECK(std::ranges::find(evaluated, best) != evaluated.end());
  for (const int64_t step : {3, 6, 9, 11}) {
    CHECK(fs::exists(folder.path / "checkpoints" / ("step-" + std::to_string(step))));
  }
  CHECK_FALSE(fs::exists(folder.path / "checkpoints" / "step-5"));
  TrainConfig endless;
  endless.epochs = 0;
  CHECK_THROWS_WITH(endless.check(), "train: epochs is 0, so that max_steps must say when to end");
}

TEST_CASE("gradients of a batch's parts add up to the batch's, whatever the parts") {
  for (const int64_t parts : {2, 3, 10, 50}) {
    Run whole(fs::path("unused"));
    Run split(fs::path("unused"));
    whole.task.dropout = split.task.dropout = 0;
    Optimizer one(*whole.config.optimizer, whole.task.parameters(), whole.backend);
    Optimizer many(*split.config.optimizer, split.task.parameters(), split.backend);
    std::vector<int64_t> examples(10);
    std::iota(examples.begin(), examples.end(), int64_t{0});
    for (int64_t step = 0; step < 5; ++step) {
      const StepFigures a = train_step(whole.backend, whole.task, one, 1, step, 0.1, examples);
      const StepFigures b =
          train_step(split.backend, split.task, many, 1, step, 0.1, examples, parts);
      CHECK(std::abs(a.loss - b.loss) < 1e-6 * a.loss);
      CHECK(std::abs(a.gradient_norm - b.gradient_norm) < 1e-5 * a.gradient_norm);
      CHECK(a.correct == b.correct);
      CHECK(a.count == b.count);
    }
  }
}

TEST_CASE(
    "a run killed between saving its best checkpoint and marking it marks it when it goes on") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.epochs = 1;
  run.start();
  fs::remove(folder.path / "checkpoints" / "best.json");
  Run resumed(folder.path);
  resumed.config.train.epochs = 1;
  resumed.resume();
  REQUIRE(CheckpointStore(folder.path).best()->step == 3);
}

TEST_CASE("early stopping counts ties as no improvement and keeps its count over a resume") {
  TemporaryFolder folder("trainer");
  const auto configure = [](Run& run) {
    run.config.optimizer->lr = 0;  // every evaluation gives the same
    run.config.train.epochs = 50;
    run.config.train.early_stopping.patience = 3;
  };
  Run whole(folder.path / "whole");
  configure(whole);
  whole.start();
  REQUIRE(whole.result().at("stopped_by") == "early_stopping");
  REQUIRE(whole.result().at("epochs") == 4);  // the first, then three without improvement
  REQUIRE(whole.result().at("best_validation_epoch") == 1);

  Run stopped(folder.path / "stopped");
  configure(stopped);
  int64_t steps = 0;
  stopped.task.before_step = [&] {
    if (steps++ == 7) throw std::runtime_error("killed in the third epoch");
  };
  REQUIRE_THROWS(stopped.start());
  Run resumed(folder.path / "stopped");
  configure(resumed);
  resumed.resume();
  REQUIRE(figures(resumed.result()) == figures(whole.result()));

  Run blind(folder.path / "blind", {});
  blind.config.train.early_stopping.patience = 3;
  REQUIRE_THROWS_AS(blind.start(), Error);
}

TEST_CASE("an improvement smaller than min_delta does not count") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.epochs = 50;
  run.config.train.early_stopping.patience = 2;
  run.config.train.early_stopping.min_delta = 1;  // accuracy cannot rise by more than that
  run.start();
  REQUIRE(run.result().at("epochs") == 3);
}

TEST_CASE("a loss that is not finite stops the run, names the step and keeps the last checkpoint") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  int64_t steps = 0;
  run.task.before_step = [&] {
    if (steps++ == 4) run.task.parameters().values().floats()[0] = std::nanf("");
  };
  REQUIRE_THROWS_WITH(run.start(), ContainsSubstring("train: step 5: the loss is nan"));
  const LoadedCheckpoint last = load_checkpoint(folder.path);
  REQUIRE(last.step == 3);
  for (const float w : last.model.floats("linear.weight")) REQUIRE(std::isfinite(w));
  REQUIRE_FALSE(fs::exists(folder.path / "result.json"));
}

TEST_CASE("a step whose loss is not finite is an error and changes no parameter") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  Optimizer optimizer(*run.config.optimizer, run.task.parameters(), run.backend);
  const std::vector<int64_t> examples{0, 1};
  run.task.parameters().values().floats()[0] = std::numeric_limits<float>::infinity();
  const auto before = run.weights();
  REQUIRE_THROWS_AS(train_step(run.backend, run.task, optimizer, 1, 0, 0.1, examples), Error);
  REQUIRE(run.weights() == before);
}

TEST_CASE("figures that are read every few steps are those of every step") {
  TemporaryFolder each_folder("trainer_each"), few_folder("trainer_few");
  Run each(each_folder.path), few(few_folder.path);
  few.config.train.log_every = 2;
  each.start();
  few.start();
  std::vector<json> expected = each.metrics();
  const size_t lines = expected.size();
  std::erase_if(expected, [](const json& line) {
    return line.at("event") == "step" && line.at("step").get<int64_t>() % 2 != 0;
  });
  REQUIRE(expected.size() == lines - 6);
  REQUIRE(few.metrics() == expected);
  // What has not been read is not shown.
  CHECK_THAT(few.text.str(), ContainsSubstring("step 1/12: epoch 1/4, "));
  CHECK_THAT(few.text.str(), !ContainsSubstring("loss 0.0000"));
  CHECK_THAT(few.text.str(), !ContainsSubstring("step 1/12: epoch 1/4, loss"));
}

TEST_CASE("a loss that is not finite between two readings is named by its own step") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.log_every = 100;
  int64_t steps = 0;
  run.task.before_step = [&] {
    if (steps++ == 4) run.task.parameters().values().floats()[0] = std::nanf("");
  };
  REQUIRE_THROWS_WITH(run.start(), ContainsSubstring("train: step 5: the loss is nan"));
  REQUIRE(load_checkpoint(folder.path).step == 3);
}

TEST_CASE("only the last checkpoints and the best are kept") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.optimizer->lr = 0;  // the first evaluation stays the best
  run.config.train.epochs = 6;
  run.config.train.keep_last = 2;
  run.start();
  REQUIRE(CheckpointStore(folder.path).steps() == std::vector<int64_t>{3, 15, 18});
  REQUIRE(CheckpointStore(folder.path).best()->step == 3);
  REQUIRE(fs::path(run.result().at("checkpoint").get<std::string>()).filename() == "step-3");
  REQUIRE(fs::path(run.result().at("last_checkpoint").get<std::string>()).filename() == "step-18");
}

TEST_CASE(
    "a checkpoint is saved when the interval ends with the run, and at the end when it does not") {
  for (const int64_t every : {2, 4, 3, 100}) {
    TemporaryFolder folder("trainer");
    Run run(folder.path, {});
    run.config.train.save_every = every;
    run.start();
    const auto steps = CheckpointStore(folder.path).steps();
    CAPTURE(every);
    REQUIRE(steps.back() == 12);
    REQUIRE(steps.size() == (every == 2 || every == 3 ? 2 : 1));
  }
}

TEST_CASE(
    "max_steps ends a run within an epoch with an evaluation, and raising it goes on seamlessly") {
  TemporaryFolder folder("trainer");
  Run run(folder.path / "run");
  run.config.train.max_steps = 5;
  run.start();
  REQUIRE(run.result().at("stopped_by") == "max_steps");
  REQUIRE(run.result().at("steps") == 5);
  REQUIRE(run.metrics("step").size() == 5);
  REQUIRE(run.metrics("evaluate").back().at("step") == 5);
  REQUIRE(run.metrics("evaluate").back().at("epoch") == 2);
  Run rest(folder.path / "run");
  rest.resume();
  Run whole(folder.path / "whole");
  whole.start();
  REQUIRE(rest.metrics("step") == whole.metrics("step"));
  REQUIRE(rest.metrics("epoch") == whole.metrics("epoch"));
  REQUIRE(rest.weights() == whole.weights());
}

TEST_CASE("a changed batch size takes effect at the same example of the epoch") {
  TemporaryFolder folder("trainer");
  Run first(folder.path);
  first.stop_at_poll = 0;  // after one update of four examples
  first.start();
  Run second(folder.path);
  second.config.train.batch = 3;
  second.config.train.epochs = 1;
  second.resume();
  REQUIRE(first.task.visited.size() == 4);
  REQUIRE(second.task.visited.size() == 6);
  auto all = first.task.visited;
  all.insert(all.end(), second.task.visited.begin(), second.task.visited.end());
  REQUIRE(all == epoch_order(1, 0, 10));
  REQUIRE(second.result().at("steps") == 3);
}

TEST_CASE("resuming a complete run keeps the scores that follow its last checkpoint") {
  TemporaryFolder folder("trainer");
  const auto run_to_end = [&](bool again) {
    Run run(folder.path / "run");
    run.config.train.epochs = 2;
    run.config.train.evaluate_every_steps = 4;  // the last of six steps is scored at the end
    REQUIRE((again ? run.resume() : run.start()).was_complete == again);
    return read_text_file(folder.path / "run" / "metrics.jsonl");
  };
  const std::string first = run_to_end(false);
  REQUIRE(first.rfind("\"evaluate\"") > first.rfind("\"epoch\","));
  REQUIRE(run_to_end(true) == first);
}

TEST_CASE("a complete run is left alone, and goes on when its epochs are raised") {
  TemporaryFolder folder("trainer");
  Run run(folder.path / "run");
  run.config.train.epochs = 2;
  run.start();
  Run again(folder.path / "run");
  again.config.train.epochs = 2;
  const TrainOutcome outcome = again.resume();
  REQUIRE(outcome.was_complete);
  REQUIRE(again.task.visited.empty());
  REQUIRE(outcome.result.at("steps") == 6);
  Run more(folder.path / "run");
  REQUIRE_FALSE(more.resume().was_complete);
  Run whole(folder.path / "whole");
  whole.start();
  REQUIRE(more.metrics() == whole.metrics());
  REQUIRE(more.weights() == whole.weights());
}

TEST_CASE("a run killed after its last checkpoint but before its result writes the result") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.start();
  const json before = figures(run.result());
  fs::remove(folder.path / "result.json");
  Run resumed(folder.path);
  resumed.resume();
  REQUIRE(figures(resumed.result()) == before);
  REQUIRE(resumed.metrics() == run.metrics());
}

TEST_CASE("a checkpoint of other data or another optimizer is refused") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.epochs = 1;
  run.start();
  Run grown(folder.path, {"validation", "test"}, 11);
  REQUIRE_THROWS_WITH(grown.resume(), ContainsSubstring("trained on 10 examples, the data has 11"));
  Run other(folder.path);
  other.config.optimizer = optimizer_kinds()[1].make();
  REQUIRE_THROWS_WITH(other.resume(), ContainsSubstring("optimizer was radam, is adam now"));
}

TEST_CASE(
    "metrics are logged every so many updates, evaluated every so many epochs and at the end") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.log_every = 5;
  run.config.train.evaluate_every = 3;
  run.start();
  const auto steps = run.metrics("step");
  REQUIRE(steps.size() == 2);
  REQUIRE(steps[0].at("step") == 5);
  const auto evaluations = run.metrics("evaluate");
  REQUIRE(evaluations.size() == 4);
  REQUIRE(evaluations[0].at("epoch") == 3);
  REQUIRE(evaluations[2].at("epoch") == 4);
}

TEST_CASE("the learning rate goes on where it was after a resume") {
  TemporaryFolder folder("trainer");
  const auto configure = [](Run& run) {
    for (const auto& kind : schedule_kinds()) {
      if (kind.name == "cosine") run.config.schedule = kind.make();
    }
  };
  Run whole(folder.path / "whole");
  configure(whole);
  whole.start();
  Run stopped(folder.path / "stopped");
  configure(stopped);
  stopped.stop_at_poll = 0;
  stopped.start();
  Run resumed(folder.path / "stopped");
  configure(resumed);
  resumed.resume();
  REQUIRE(whole.metrics("step")[1].at("lr") != whole.metrics("step")[0].at("lr"));
  REQUIRE(resumed.metrics() == whole.metrics());
}

TEST_CASE("the log has a line at the start, at the first step, at each epoch") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.start();
  const std::string text = run.text.str();
  REQUIRE_THAT(text,
               ContainsSubstring(
                   "training: step 0 to 12, 10 examples, 4 per update, the last of an epoch 2"));
  REQUIRE_THAT(text, ContainsSubstring("step 1/12: epoch 1/4, loss "));
  REQUIRE_THAT(text, ContainsSubstring("epoch 4/4: loss "));
  REQUIRE_THAT(text, ContainsSubstring("validation accuracy "));
}

TEST_CASE("a failed save is an error that names the step and leaves earlier checkpoints") {
  TemporaryFolder folder("trainer");
  Run run(folder.path);
  run.config.train.epochs = 2;
  int64_t steps = 0;
  run.task.before_step = [&] {
    // A file where the second checkpoint's temporary folder belongs makes saving it fail for
    // anybody, an administrator too.
    if (steps++ == 3) fs::rename(folder.path / "checkpoints", folder.path / "kept");
    if (steps == 4) std::ofstream(folder.path / "checkpoints") << "in the way";
  };
  REQUIRE_THROWS_WITH(run.start(), ContainsSubstring("checkpoint: step 6 was not saved"));
  REQUIRE(fs::exists(folder.path / "kept" / "step-3" / "state.json"));
}

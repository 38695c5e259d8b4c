#include "core/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <numeric>

#include "core/error.h"
#include "core/weights.h"

namespace primal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Host access to a flat buffer: the buffer itself where the host can read it, else a copy.
class HostView {
 public:
  HostView(const Backend& backend, const Tensor& flat) {
    if (backend.device == Device::cpu) {
      view_ = flat.floats();
    } else {
      copy_ = download(backend, flat);
      view_ = copy_;
    }
  }
  std::span<const float> values() const { return view_; }

 private:
  std::vector<float> copy_;
  std::span<const float> view_;
};

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

void add(std::optional<double>& sum, const std::optional<double>& value, double factor) {
  if (value) sum = sum.value_or(0) + *value * factor;
}

template <class T>
void put(json& into, const char* key, const std::optional<T>& value) {
  if (value) into[key] = *value;
}

template <class T>
void get(const json& from, const char* key, std::optional<T>& value) {
  if (from.contains(key)) value = from.at(key).get<T>();
}

std::string_view signal_name(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGHUP ? "SIGHUP" : "SIGTERM";
}

}  // namespace

std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomStream random(seed, hash_name(fmt::format("shuffle of epoch {}", epoch)));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

std::vector<int64_t> Task::train_order(uint64_t seed, int64_t epoch, int64_t) const {
  return epoch_order(seed, epoch, train_size());
}

PendingFigures start_step(Backend& backend, Task& task, Optimizer& optimizer, uint64_t seed,
                          int64_t step, const Rates& rates, std::span<const int64_t> examples,
                          int64_t parts) {
  const Rng masks(seed, static_cast<uint64_t>(step));
  const auto size = std::ssize(examples);
  parts = std::min(parts, size);
  const auto part_of = [&](int64_t i) {
    const int64_t first = size * i / parts;
    return BatchPart{.first = first, .count = size * (i + 1) / parts - first, .add = i > 0};
  };
  const auto examples_of = [&](const BatchPart& part) {
    return examples.subspan(static_cast<size_t>(part.first), static_cast<size_t>(part.count));
  };
  // What the parts' losses need to know of the whole batch.
  std::vector<double> objectives;
  std::vector<int64_t> moments(static_cast<size_t>(parts), 1);
  int64_t all_moments = 0;
  if (parts > 1 && task.couples_examples()) {
    for (int64_t i = 0; i < parts; ++i) {
      Context ctx(backend, task.parameters(), nullptr, masks, part_of(i));
      const BatchLoss loss = task.train_loss(ctx, examples_of(ctx.part));
      moments[static_cast<size_t>(i)] = loss.moments;
      all_moments += loss.moments;
      const std::vector<Var>& own = ctx.aux.of("ksvd objective");
      objectives.resize(own.size());
      for (size_t layer = 0; layer < own.size(); ++layer) {
        objectives[layer] += static_cast<double>(download(backend, own[layer].value)[0]) *
                             static_cast<double>(loss.moments);
      }
    }
    for (double& objective : objectives) objective /= static_cast<double>(all_moments);
  }

  PendingFigures pending{.step = step, .lr = rates.lr, .count = size, .values = backend.empty({5})};
  float* const to = pending.values.data();
  backend.op->fill(backend.exec, 5, 0.0F, to);
  for (int64_t i = 0; i < parts; ++i) {
    Tape tape(backend);
    Context ctx(backend, task.parameters(), &tape, masks, part_of(i));
    const double share = static_cast<double>(ctx.part.count) / static_cast<double>(size);
    if (!objectives.empty()) {
      ctx.part.objectives = objectives;
      ctx.part.objective_weight = static_cast<double>(moments[static_cast<size_t>(i)]) /
                                  static_cast<double>(all_moments) / share;
    }
    const BatchLoss loss = task.train_loss(ctx, examples_of(ctx.part));
    tape.backward(loss.total, share);
    const auto add = [&](int figure, const Tensor& value, double weight) {
      if (!value.defined()) return;
      backend.op->scale(backend.exec, 1, static_cast<float>(weight), value.data(), to + figure,
                        true);
    };
    add(0, loss.total.value, share);
    add(1, loss.task_loss, share);
    add(3, loss.ksvd_loss, share * ctx.part.objective_weight);
    add(4, loss.correct, 1);
    pending.has_ksvd = loss.ksvd_loss.defined();
    pending.has_correct = loss.correct.defined();
  }
  optimizer.update(rates);
  backend.op->copy(backend.exec, 1, optimizer.gradient_norm().data(), to + 2);
  return pending;
}

StepFigures read_figures(const Backend& backend, const PendingFigures& pending) {
  std::array<float, 5> values{};
  backend.op->download(backend.exec, 5, pending.values.data(), values.data());
  StepFigures figures{.loss = values[0],
                      .task_loss = values[1],
                      .ksvd_loss = {},
                      .correct = {},
                      .count = pending.count,
                      .gradient_norm = values[2]};
  if (pending.has_ksvd) figures.ksvd_loss = values[3];
  if (pending.has_correct) figures.correct = values[4];
  // Without the sign bit of a NaN, which would be printed.
  const auto shown = [](double value) { return std::isnan(value) ? std::fabs(value) : value; };
  const auto refuse = [&](std::string_view what, double value) {
    fail(
        "train: step {}: the {} is {} (task loss {}{}, lr {}); a lower optimizer.lr or a clip_norm "
        "may help",
        pending.step + 1, what, shown(value), shown(figures.task_loss),
        figures.ksvd_loss ? fmt::format(", KSVD loss {}", shown(*figures.ksvd_loss)) : "",
        pending.lr);
  };
  if (!std::isfinite(figures.loss)) refuse("loss", figures.loss);
  if (!std::isfinite(figures.gradient_norm)) refuse("gradient norm", figures.gradient_norm);
  return figures;
}

StepFigures train_step(Backend& backend, Task& task, Optimizer& optimizer, uint64_t seed,
                       int64_t step, const Rates& rates, std::span<const int64_t> examples,
                       int64_t parts) {
  return read_figures(backend,
                      start_step(backend, task, optimizer, seed, step, rates, examples, parts));
}

void to_json(json& out, const TrainState& s) {
  json best = json::object();
  for (const auto& [split, b] : s.best) {
    best[split] = {{"epoch", b.epoch}, {"step", b.step}, {"metric", b.metric}};
  }
  out = {{"step", s.step},
         {"epoch", s.epoch},
         {"offset", s.offset},
         {"order_batch", s.order_batch},
         {"sums",
          {{"steps", s.sums.steps},
           {"examples", s.sums.examples},
           {"loss", s.sums.loss},
           {"task_loss", s.sums.task_loss},
           {"gradient_norm", s.sums.gradient_norm},
           {"seconds", s.sums.seconds}}},
         {"evaluated_step", s.evaluated_step},
         {"evaluations_without_improvement", s.evaluations_without_improvement},
         {"last", s.last},
         {"best", std::move(best)},
         {"seconds", s.seconds}};
  put(out["sums"], "ksvd_loss", s.sums.ksvd_loss);
  put(out["sums"], "correct", s.sums.correct);
  put(out, "to_improve", s.to_improve);
  put(out, "best_step", s.best_step);
  put(out, "ksvd_loss", s.ksvd_loss);
}

void from_json(const json& in, TrainState& s) {
  in.at("step").get_to(s.step);
  in.at("epoch").get_to(s.epoch);
  in.at("offset").get_to(s.offset);
  s.order_batch = in.value("order_batch", int64_t{0});
  const json& sums = in.at("sums");
  sums.at("steps").get_to(s.sums.steps);
  sums.at("examples").get_to(s.sums.examples);
  sums.at("loss").get_to(s.sums.loss);
  sums.at("task_loss").get_to(s.sums.task_loss);
  get(sums, "ksvd_loss", s.sums.ksvd_loss);
  get(sums, "correct", s.sums.correct);
  sums.at("gradient_norm").get_to(s.sums.gradient_norm);
  s.sums.seconds = sums.value("seconds", 0.0);  // earlier checkpoints have none
  in.at("evaluated_step").get_to(s.evaluated_step);
  in.at("evaluations_without_improvement").get_to(s.evaluations_without_improvement);
  in.at("last").get_to(s.last);
  for (const auto& [split, best] : in.at("best").items()) {
    s.best[split] = {best.at("epoch").get<int64_t>(), best.value("step", int64_t{0}),
                     best.at("metric").get<std::map<std::string, double>>()};
  }
  in.at("seconds").get_to(s.seconds);
  get(in, "to_improve", s.to_improve);
  get(in, "best_step", s.best_step);
  get(in, "ksvd_loss", s.ksvd_loss);
}

Trainer::Trainer(Setup setup)
    : s_(std::move(setup)),
      optimizer_(*s_.config.optimizer, s_.task.parameters(), s_.backend),
      store_(s_.run_directory),
      metrics_(s_.run_directory / "metrics.jsonl"),
      splits_(s_.task.evaluation_splits()),
      facts_(s_.task.facts()) {
  if (s_.task.train_size() < 1) fail("train: the training split is empty");
  if (s_.config.train.early_stopping.patience > 0 && splits_.empty()) {
    fail("train.early_stopping: there is no split to judge by");
  }
}

std::vector<std::string> Trainer::restore(const LoadedCheckpoint& checkpoint) {
  std::vector<std::string> warnings;
  const std::string name = checkpoint.directory.string();
  if (!checkpoint.optimizer) fail("resume: {}: holds no optimizer.safetensors", name);
  const ParameterSet& parameters = s_.task.parameters();
  const auto values = flat_parameters(parameters, checkpoint.model);
  s_.backend.op->upload(s_.backend.exec, parameters.count(), values.data(),
                        parameters.values().data());
  try {
    const json& saved = checkpoint.state;
    saved.at("progress").get_to(state_);
    optimizer_.restore(saved.at("optimizer").at("steps").get<int64_t>(),
                       flat_parameters(parameters, *checkpoint.optimizer, "first."),
                       flat_parameters(parameters, *checkpoint.optimizer, "second."));
    const auto size = saved.at("train_size").get<int64_t>();
    if (size != s_.task.train_size()) {
      fail("resume: {}: trained on {} examples, the data has {} now", name, size,
           s_.task.train_size());
    }
    const auto kind = saved.at("optimizer").at("kind").get<std::string>();
    if (kind != s_.config.optimizer->kind()) {
      fail("resume: {}: optimizer was {}, is {} now", name, kind, s_.config.optimizer->kind());
    }
    const auto bytes = saved.at("metrics_bytes").get<uint64_t>();
    if (complete()) {
      // Nothing is trained again: lines behind the last checkpoint, those of the last scores, stay.
    } else if (bytes <= metrics_.size()) {
      metrics_.truncate_to(bytes);
    } else {
      warnings.push_back(
          fmt::format("metrics.jsonl: {} bytes, {} when the checkpoint was saved: lines were lost",
                      metrics_.size(), bytes));
    }
  } catch (const json::exception& error) {
    fail("resume: {}: state.json: {}", name, error.what());
  }
  // The run may have been killed between saving its best checkpoint and marking it.
  if (state_.best_step == checkpoint.step) {
    store_.set_best(checkpoint.step, state_.best.at(deciding_split()).metric);
  }
  saved_step_ = checkpoint.step;
  return warnings;
}

/// "validation" where there is such a split: choosing by the test split would flatter the result.
std::string Trainer::deciding_split() const {
  if (splits_.empty()) return "";
  return std::ranges::find(splits_, "validation") != splits_.end() ? "validation" : splits_.front();
}

std::string Trainer::stop_reason() const {
  const TrainConfig& train = s_.config.train;
  if (train.max_steps > 0 && state_.step >= train.max_steps) return "max_steps";
  if (train.epochs > 0 && state_.epoch >= train.epochs) return "epochs";
  const int64_t patience = train.early_stopping.patience;
  if (patience > 0 && state_.evaluations_without_improvement >= patience) return "early_stopping";
  return "";
}

/// Updates done and to come; a changed batch size takes effect from here on.
int64_t Trainer::steps_in_run() const {
  const TrainConfig& train = s_.config.train;
  const int64_t size = s_.task.train_size();
  if (train.epochs == 0) return train.max_steps;
  int64_t steps = state_.step;
  if (state_.epoch < train.epochs) {
    steps += divide_up(size - state_.offset, train.batch) +
             (train.epochs - state_.epoch - 1) * divide_up(size, train.batch);
  }
  return train.max_steps > 0 ? std::min(steps, train.max_steps) : steps;
}

Rates Trainer::rates(int64_t step) const {
  return s_.config.schedule->rates(s_.config.optimizer->lr, step, steps_in_run());
}

std::optional<TrainOutcome> Trainer::complete() const {
  const fs::path path = s_.run_directory / "result.json";
  if (stop_reason().empty() || !fs::exists(path)) return {};
  TrainOutcome outcome;
  outcome.was_complete = true;
  outcome.result = ordered_json::parse(read_text_file(path), nullptr, false);
  if (outcome.result.is_discarded()) return {};
  outcome.checkpoint = chosen_checkpoint();
  return outcome;
}

TrainOutcome Trainer::run() {
  if (auto done = complete()) return *std::move(done);
  TrainOutcome outcome;
  const fs::path result_path = s_.run_directory / "result.json";
  if (!stop_reason().empty() && fs::exists(result_path)) {
    s_.log.warn(fmt::format("{}: is damaged; it is written again", result_path.string()));
  }
  fs::remove(result_path);
  counted_ = Clock::now();
  try {
    const int64_t size = s_.task.train_size();
    const int64_t batch = std::min(s_.config.train.batch, size);
    const int64_t rest = size % batch;
    s_.log.info(fmt::format("training: step {} to {}, {} examples, {} per update{}", state_.step,
                            steps_in_run(), size, batch,
                            rest == 0 ? "" : fmt::format(", the last of an epoch {}", rest)));
    Progress progress(s_.log, state_.step, steps_in_run());
    while (stop_reason().empty()) run_epoch(progress);
    if (state_.evaluated_step != state_.step && evaluate()) save();
  } catch (const Interrupted&) {
    save();
    outcome.signal = s_.stop_signal();
    outcome.checkpoint = step_directory(state_.step);
    s_.log.info(
        fmt::format("stopped by {} after step {}, which is saved; --resume {} goes on from there",
                    signal_name(outcome.signal), state_.step, s_.run_directory.string()));
    return outcome;
  }
  if (saved_step_ != state_.step) save();
  outcome.result = result(stop_reason());
  outcome.checkpoint = chosen_checkpoint();
  write_file_atomically(result_path, outcome.result.dump(1) + "\n");
  return outcome;
}

void Trainer::run_epoch(Progress& progress) {
  const TrainConfig& train = s_.config.train;
  const int64_t size = s_.task.train_size();
  if (state_.offset == 0 || state_.order_batch == 0) state_.order_batch = train.batch;
  const auto order =
      s_.task.train_order(static_cast<uint64_t>(s_.config.seed), state_.epoch, state_.order_batch);
  while (state_.offset < size) {
    if (!stop_reason().empty()) return;
    do_what_is_due();
    if (!stop_reason().empty()) return;
    const int64_t count = std::min(train.batch, size - state_.offset);
    take_step(
        std::span(order).subspan(static_cast<size_t>(state_.offset), static_cast<size_t>(count)),
        progress);
    if (s_.stop_signal() != 0) throw Interrupted{};
  }
  finish_epoch();
}

// At the top of the loop, so that a run that was stopped at such a step does it when it goes on.
void Trainer::do_what_is_due() {
  const TrainConfig& train = s_.config.train;
  const auto due = [&](int64_t every) {
    return every > 0 && state_.step > 0 && state_.step % every == 0;
  };
  if (due(train.evaluate_every_steps) && state_.evaluated_step != state_.step) {
    read_pending();
    const bool best = evaluate();
    s_.log.info(fmt::format("step {}{}", state_.step, scores_text()));
    if (best) save();
  }
  if (due(train.save_every_steps) && saved_step_ != state_.step) save();
}

std::string Trainer::scores_text() const {
  std::string text;
  for (const auto& [split, metric] : state_.last) {
    text += fmt::format(", {} {} {:.4f} (best {:.4f})", split, s_.task.metric(), metric,
                        state_.best.at(split).metric.at(split));
  }
  return text;
}

std::string Trainer::epoch_text() const {
  const int64_t epochs = s_.config.train.epochs;
  return fmt::format("epoch {}{}", current_epoch(), epochs > 0 ? fmt::format("/{}", epochs) : "");
}

void Trainer::take_step(std::span<const int64_t> examples, Progress& progress) {
  if (pending_.empty()) pending_since_ = Clock::now();
  pending_.push_back(start_step(s_.backend, s_.task, optimizer_,
                                static_cast<uint64_t>(s_.config.seed), state_.step,
                                rates(state_.step), examples, s_.config.train.accumulate));
  ++state_.step;
  state_.offset += pending_.back().count;
  if (state_.step % s_.config.train.log_every == 0) read_pending();
  // The losses of the epoch's first steps may not have been read yet.
  const TrainState::Sums& sums = state_.sums;
  std::string text = epoch_text();
  if (sums.examples > 0) {
    text += fmt::format(", loss {:.4f}", sums.loss / static_cast<double>(sums.examples));
  }
  progress.step(state_.step, text);
}

void Trainer::read_pending() {
  TrainState::Sums& sums = state_.sums;
  std::vector<StepFigures> all;
  for (const PendingFigures& pending : pending_) all.push_back(read_figures(s_.backend, pending));
  const double seconds = pending_.empty() ? 0.0 : seconds_since(pending_since_);
  sums.seconds += seconds;
  for (size_t i = 0; i < all.size(); ++i) {
    const StepFigures& figures = all[i];
    const auto weight = static_cast<double>(figures.count);
    ++sums.steps;
    sums.examples += figures.count;
    sums.loss += figures.loss * weight;
    sums.task_loss += figures.task_loss * weight;
    sums.gradient_norm += figures.gradient_norm;
    add(sums.ksvd_loss, figures.ksvd_loss, weight);
    add(sums.correct, figures.correct, 1);
    if ((pending_[i].step + 1) % s_.config.train.log_every == 0) {
      write_step(pending_[i], figures, seconds / static_cast<double>(all.size()));
    }
  }
  pending_.clear();
}

void Trainer::finish_epoch() {
  const TrainConfig& train = s_.config.train;
  read_pending();
  const uint64_t before = metrics_.size();
  write_epoch();
  bool best = false;
  if (train.evaluate_every_steps == 0 && current_epoch() % train.evaluate_every == 0) {
    try {
      best = evaluate();
    } catch (const Interrupted&) {
      metrics_.truncate_to(before);  // the resumed run finishes the epoch again
      throw;
    }
  }
  const auto examples = static_cast<double>(state_.sums.examples);
  std::string line = fmt::format("{}: loss {:.4f}", epoch_text(), state_.sums.loss / examples);
  if (state_.sums.ksvd_loss)
    line += fmt::format(", KSVD {:.2e}", *state_.sums.ksvd_loss / examples);
  if (state_.sums.correct)
    line += fmt::format(", accuracy {:.4f}", *state_.sums.correct / examples);
  if (state_.evaluated_step == state_.step) line += scores_text();
  s_.log.info(fmt::format("{}, {:.1f} s", line, state_.sums.seconds));

  state_.ksvd_loss.reset();
  add(state_.ksvd_loss, state_.sums.ksvd_loss, 1 / examples);
  state_.sums = {};
  ++state_.epoch;
  state_.offset = 0;
  if (best || state_.epoch % train.save_every == 0) save();
}

bool Trainer::evaluate() {
  const uint64_t before = metrics_.size();
  std::map<std::string, double> scores;
  const EvaluateOptions options{.batch = s_.config.train.evaluate_batch,
                                .stop = [this] { return s_.stop_signal() != 0; },
                                .prediction = {}};
  for (const std::string& split : splits_) {
    json figures;
    try {
      figures = s_.task.evaluate(s_.backend, split, options);
    } catch (const Interrupted&) {
      metrics_.truncate_to(before);
      throw;
    }
    const json metric = figures.value(s_.task.metric(), json());
    if (!metric.is_number() || !std::isfinite(metric.get<double>())) {
      fail("train: step {}: evaluating '{}' gave no {}", state_.step, split, s_.task.metric());
    }
    scores[split] = metric.get<double>();
    ordered_json line{
        {"event", "evaluate"}, {"split", split}, {"epoch", current_epoch()}, {"step", state_.step}};
    line.update(figures);
    metrics_.append(line.dump());
  }
  const auto improves = [&](const std::string& split) {
    const auto best = state_.best.find(split);
    return best == state_.best.end() || scores.at(split) > best->second.metric.at(split);
  };
  const std::string deciding = deciding_split();
  const bool decides = !deciding.empty() && improves(deciding);
  for (const std::string& split : splits_) {
    if (improves(split)) state_.best[split] = {current_epoch(), state_.step, scores};
  }
  if (decides) state_.best_step = state_.step;
  if (!deciding.empty()) {
    const double score = scores.at(deciding);
    if (!state_.to_improve ||
        score > *state_.to_improve + s_.config.train.early_stopping.min_delta) {
      state_.to_improve = score;
      state_.evaluations_without_improvement = 0;
    } else {
      ++state_.evaluations_without_improvement;
    }
  }
  state_.last = std::move(scores);
  state_.evaluated_step = state_.step;
  return decides;
}

void Trainer::put_memory(ordered_json& line) const {
  const MemoryFigures figures = s_.backend.memory->figures();
  line["memory_allocated"] = figures.allocated;
  line["memory_peak"] = figures.peak_allocated;
  line["memory_reserved"] = figures.reserved;
  line["memory_process"] = process_memory().resident;
}

void Trainer::write_step(const PendingFigures& step, const StepFigures& figures, double seconds) {
  ordered_json line{{"event", "step"},
                    {"step", step.step + 1},
                    {"epoch", current_epoch()},
                    {"loss", figures.loss},
                    {"task_loss", figures.task_loss}};
  if (figures.ksvd_loss) {
    line["ksvd_loss"] = *figures.ksvd_loss;
    if (facts_.contains("ksvd_weight")) line["ksvd_weight"] = facts_["ksvd_weight"];
  }
  line["lr"] = step.lr;
  line["grad_norm"] = figures.gradient_norm;
  const auto count = static_cast<double>(figures.count);
  if (figures.correct) line["accuracy"] = *figures.correct / count;
  line["examples"] = figures.count;
  line["step_ms"] = seconds * 1e3;
  line["samples_per_s"] = count / seconds;
  put_memory(line);
  metrics_.append(line.dump());
}

void Trainer::write_epoch() {
  const TrainState::Sums& sums = state_.sums;
  const auto examples = static_cast<double>(sums.examples);
  ordered_json line{{"event", "epoch"},
                    {"epoch", current_epoch()},
                    {"step", state_.step},
                    {"loss", sums.loss / examples},
                    {"task_loss", sums.task_loss / examples}};
  if (sums.ksvd_loss) line["ksvd_loss"] = *sums.ksvd_loss / examples;
  line["lr"] = rates(state_.step - 1).lr;
  line["grad_norm"] = sums.gradient_norm / static_cast<double>(sums.steps);
  if (sums.correct) line["accuracy"] = *sums.correct / examples;
  line["examples"] = sums.examples;
  line["seconds"] = sums.seconds;
  if (sums.seconds > 0) line["samples_per_s"] = examples / sums.seconds;
  put_memory(line);
  metrics_.append(line.dump());
}

ordered_json Trainer::result(const std::string& stopped_by) {
  count_time();
  ordered_json result{{"task", s_.config.task->kind()}};
  const std::string metric = s_.task.metric();
  const std::string deciding = deciding_split();
  for (const auto& [split, value] : state_.last) {
    const TrainState::Best& best = state_.best.at(split);
    result[fmt::format("last_{}_{}", split, metric)] = value;
    result[fmt::format("best_{}_{}", split, metric)] = best.metric.at(split);
    result[fmt::format("best_{}_epoch", split)] = best.epoch;
    result[fmt::format("best_{}_step", split)] = best.step;
    if (split != deciding) {
      result[fmt::format("{}_{}_at_best_{}", split, metric, deciding)] =
          state_.best.at(deciding).metric.at(split);
    }
  }
  result["epochs"] = state_.epoch;
  result["steps"] = state_.step;
  if (state_.ksvd_loss) {
    result["ksvd_loss"] = *state_.ksvd_loss;
  } else if (state_.sums.ksvd_loss) {
    result["ksvd_loss"] = *state_.sums.ksvd_loss / static_cast<double>(state_.sums.examples);
  }
  result["stopped_by"] = stopped_by;
  result["seconds"] = state_.seconds;
  const MemoryFigures memory = s_.backend.memory->figures();
  result["peak_allocated_bytes"] = memory.peak_allocated;
  result["peak_reserved_bytes"] = memory.peak_reserved;
  result["peak_process_bytes"] = process_memory().peak_resident;
  result["checkpoint"] = chosen_checkpoint().string();
  result["last_checkpoint"] = step_directory(state_.step).string();
  result["facts"] = facts_;
  return result;
}

void Trainer::count_time() {
  state_.seconds += seconds_since(counted_);
  counted_ = Clock::now();
}

void Trainer::save() {
  read_pending();
  count_time();
  metrics_.sync();
  const ParameterSet& parameters = s_.task.parameters();
  const HostView values(s_.backend, parameters.values());
  const HostView first(s_.backend, optimizer_.first());
  const HostView second(s_.backend, optimizer_.second());
  CheckpointContents contents;
  contents.step = state_.step;
  contents.model = stored_parameters(parameters, values.values());
  contents.optimizer = stored_parameters(parameters, first.values(), "first.");
  std::ranges::copy(stored_parameters(parameters, second.values(), "second."),
                    std::back_inserter(contents.optimizer));
  contents.metadata = {{"format", "pt"}, {"task", std::string(s_.config.task->kind())}};
  contents.config_yaml = print_config(s_.config);
  contents.state = {
      {"progress", state_},
      {"optimizer", {{"kind", s_.config.optimizer->kind()}, {"steps", optimizer_.steps()}}},
      {"train_size", s_.task.train_size()},
      {"metrics_bytes", metrics_.size()},
      {"task", s_.task.state()}};
  store_.save(contents);
  saved_step_ = state_.step;
  if (state_.best_step == state_.step) {
    store_.set_best(state_.step, state_.best.at(deciding_split()).metric);
  }
  for (const auto& warning : store_.prune(s_.config.train.keep_last)) s_.log.warn(warning);
}

fs::path Trainer::step_directory(int64_t step) const {
  return s_.run_directory / "checkpoints" / fmt::format("step-{}", step);
}

fs::path Trainer::chosen_checkpoint() const {
  const fs::path best = step_directory(state_.best_step.value_or(state_.step));
  return fs::exists(best) ? best : step_directory(state_.step);
}

}  // namespace primal

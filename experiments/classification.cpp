#include "experiments/classification.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/metrics.h"
#include "core/ops.h"
#include "core/weights.h"

namespace primal {

BatchLoss classification_loss(Context& ctx, const Var& logits, const Tensor& labels, double eta) {
  const ops::CrossEntropy entropy = ops::cross_entropy(ctx, logits, labels);
  BatchLoss loss;
  loss.total = entropy.loss;
  loss.task_loss = entropy.loss.value;
  loss.correct = entropy.correct;
  loss.count = loss.moments = labels.count();
  const std::vector<Var>& terms = ctx.aux.of("ksvd");
  if (terms.empty()) return loss;
  Var ksvd = terms.front();
  for (size_t i = 1; i < terms.size(); ++i) ksvd = ops::add_scaled(ctx, ksvd, terms[i], 1);
  const double share = 1 / static_cast<double>(terms.size());
  loss.ksvd_loss = ctx.backend.empty({1});
  ctx.backend.op->scale(ctx.backend.exec, 1, static_cast<float>(share), ksvd.value.data(),
                        loss.ksvd_loss.data(), false);
  // Without a weight the KSVD term is only reported: nothing flows back from it.
  if (eta > 0) {
    loss.total = ops::add_scaled(ctx, loss.total, ksvd, eta * share * ctx.part.objective_weight);
  }
  return loss;
}

nlohmann::json score_classifier(Backend& backend, ParameterSet& parameters,
                                const ScoredSplit& split, const EvaluateOptions& options) {
  const int64_t classes = std::ssize(split.classes);
  ClassificationMetrics metrics(classes);
  double ksvd = 0;
  bool has_ksvd = false;
  std::vector<int64_t> examples;
  for (int64_t begin = 0; begin < split.size; begin += options.batch) {
    if (options.stop && options.stop()) throw Interrupted{};
    examples.resize(std::min(options.batch, split.size - begin));
    std::iota(examples.begin(), examples.end(), begin);
    Context ctx(backend, parameters);
    const ScoredSplit::Batch batch = split.forward(ctx, examples);
    const ops::CrossEntropy result = ops::cross_entropy(ctx, batch.logits, batch.labels);
    const std::vector<float> probabilities = download(backend, result.probabilities);
    for (const Var& term : ctx.aux.of("ksvd")) {
      has_ksvd = true;
      ksvd += static_cast<double>(download(backend, term.value)[0]) *
              static_cast<double>(examples.size()) / static_cast<double>(ctx.aux.of("ksvd").size());
    }
    for (size_t i = 0; i < examples.size(); ++i) {
      const auto row = std::span(probabilities).subspan(i * classes, classes);
      const int32_t label = batch.on_host[i];
      if (!std::ranges::all_of(row, [](float p) { return std::isfinite(p); })) {
        fail(
            "{}, {}: the model's output is not a number: its weights have diverged (a lower "
            "optimizer.lr may help) or the example holds extreme values",
            split.name, split.where(examples[i]));
      }
      const double likelihood = std::max(static_cast<double>(row[label]), 1e-45);
      const int64_t prediction = metrics.add(label, row, -std::log(likelihood));
      if (options.prediction) {
        options.prediction({{"index", examples[i]},
                            {"label", split.classes[label]},
                            {"prediction", split.classes[prediction]},
                            {"probabilities", std::vector<float>(row.begin(), row.end())}});
      }
    }
  }
  nlohmann::json json = metrics.to_json(split.classes);
  if (has_ksvd && split.size > 0) json["ksvd_loss"] = ksvd / static_cast<double>(split.size);
  return json;
}

}  // namespace primal

#include "experiments/lra/model.h"

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "experiments/classification.h"

namespace primal {
namespace {

constexpr float kEmbeddingStd = 0.02F;
// The published models sample rank * rank_multi rows however short the sequence is.
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

}  // namespace

LraModelConfig::LraModelConfig() {
  encoder.dim = 64;
  encoder.heads = 2;
  encoder.feedforward = 128;
  encoder.norm = NormPlace::pre;
}

void LraModelConfig::fields(Fields& f) {
  encoder.fields(f);
  f.choice("positions", positions,
           {{"learned", PositionKind::learned}, {"sinusoidal", PositionKind::sinusoidal}},
           "position vectors added to the embedding");
  f.field("head", head, between(1, 1 << 20), "hidden width of the classifier's head");
  f.choice("pooling", pooling, {{"mean", Pooling::mean}},
           "how a document becomes one vector: the mean over its positions");
  f.choice("pair_features", pair_features, {{"full", PairFeatures::full}},
           "what the head sees of two documents a and b: a, b, a * b, a - b");
  f.choice("padding", padding, {{"published", Padding::published}, {"exact", Padding::exact}},
           "published: padding is masked, but the mean, the sampled rows and the KSVD moments run "
           "over the padded length; exact: all use real positions only");
}

LraClassifier::LraClassifier(const Backend& backend, ParameterSet& parameters,
                             const LraModelConfig& config, const KsvdConfig& ksvd,
                             const LraShape& shape)
    : exact_(config.padding == LraModelConfig::Padding::exact),
      dropout_(config.encoder.dropout),
      shape_(shape),
      embedding_(parameters.add("embedding.weight", {shape.vocabulary, config.encoder.dim},
                                init::normal(kEmbeddingStd))),
      positions_(backend, parameters, "positions", config.positions, shape.max_length,
                 config.encoder.dim, init::normal(kEmbeddingStd)),
      encoder_(parameters, config.encoder, ksvd, kNoLimit, false),
      norm_(parameters, "norm", config.encoder.dim, config.encoder.norm_eps),
      first_(parameters, "head.first", (shape.pairs ? 4 : 1) * config.encoder.dim, config.head),
      second_(parameters, "head.second", config.head, shape.classes) {}

Var LraClassifier::encode(Context& ctx, const LraInputs& batch) const {
  const Sequence sequence{batch.lengths, &batch.lengths_tensor, !exact_};
  Var x = ops::embedding(ctx, ctx.use(embedding_), batch.tokens);
  x = ops::dropout(ctx, positions_.forward(ctx, x, 1), dropout_);
  return norm_.forward(ctx, encoder_.forward(ctx, std::move(x), sequence));
}

Var LraClassifier::forward(Context& ctx, const LraInputs& batch) const {
  const Shape& shape = batch.tokens.shape;
  if (shape.rank() != 2 || shape[1] > shape_.max_length ||
      (!exact_ && shape[1] != shape_.max_length)) {
    fail("[lra] a batch must be (B, {}{}), got {}", exact_ ? "at most " : "", shape_.max_length,
         shape.text());
  }
  Var x = ops::mean_positions(ctx, encode(ctx, batch), &batch.lengths_tensor, exact_);
  if (shape_.pairs) x = ops::pair_features(ctx, x);
  x = ops::activation(ctx, first_.forward(ctx, x), Activation::relu, 0);
  return second_.forward(ctx, x);
}

BatchLoss lra_loss(Context& ctx, const LraClassifier& model, const LraInputs& batch, double eta) {
  return classification_loss(ctx, model.forward(ctx, batch), batch.labels, eta);
}

std::vector<TaskConfig::ForeignName> lra_pytorch_names(const ParameterSet& parameters) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kRules{{
      {"embedding.", "model.embeddings.word_embeddings."},
      {"positions", "model.embeddings.position_embeddings.weight"},
      {"layers.", "model.transformer_"},
      {".attention.query.", ".mha.W_q."},
      {".attention.key.", ".mha.W_k."},
      {".attention.value.", ".mha.W_v."},
      {".attention.output.", ".mha.ff."},
      {".attention.mix.", ".mha.attn.concate_weight."},
      {".attention.lambda", ".mha.attn.Lambda"},
      {".attention.projection_e", ".mha.We"},
      {".attention.projection_r", ".mha.Wr"},
      {".feed_forward.first.", ".mlpblock.0."},
      {".feed_forward.second.", ".mlpblock.3."},
      {"head.first.", "seq_classifer.mlpblock.0."},
  }};
  std::vector<TaskConfig::ForeignName> names;
  for (const ParameterSet::Entry& entry : parameters.entries()) {
    std::string foreign = entry.name;
    if (foreign.starts_with("norm.")) foreign = "model." + foreign;
    if (foreign.starts_with("head.second.")) foreign.replace(0, 12, "seq_classifer.mlpblock.2.");
    for (const auto& [ours, theirs] : kRules) {
      if (const size_t at = foreign.find(ours); at != std::string::npos) {
        foreign.replace(at, ours.size(), theirs);
      }
    }
    names.push_back(
        {entry.name, std::move(foreign), {entry.shape.sizes().begin(), entry.shape.sizes().end()}});
  }
  return names;
}

}  // namespace primal

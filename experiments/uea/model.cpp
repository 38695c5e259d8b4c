#include "experiments/uea/model.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "experiments/classification.h"

namespace primal {

void UeaModelConfig::fields(Fields& f) {
  encoder.fields(f);
  f.choice("positions", positions,
           {{"learned", PositionKind::learned}, {"sinusoidal", PositionKind::sinusoidal}},
           "position vectors added to the embedding");
  f.choice("padding", padding, {{"published", Padding::published}, {"exact", Padding::exact}},
           "published: attention sees padded positions as zero rows, results depend on the padded "
           "length; exact: attention, sampled rows and KSVD moments use real positions only");
}

UeaClassifier::UeaClassifier(const Backend& backend, ParameterSet& parameters,
                             const UeaModelConfig& config, const KsvdConfig& ksvd,
                             const UeaShape& shape)
    : padding_(config.padding),
      dropout_(config.encoder.dropout),
      embedding_scale_(std::sqrt(static_cast<float>(config.encoder.dim))),
      shape_(shape),
      embedding_(parameters, "embedding", shape.channels, config.encoder.dim),
      positions_(backend, parameters, "positions", config.positions, shape.max_length,
                 config.encoder.dim),
      encoder_(parameters, config.encoder, ksvd, shape.max_length, false),
      norm_(parameters, "norm", config.encoder.dim, config.encoder.norm_eps),
      head_(parameters, "head", config.encoder.dim * shape.max_length, shape.classes) {}

Var UeaClassifier::encode(Context& ctx, const UeaInputs& batch) const {
  Sequence sequence;
  if (padding_ == UeaModelConfig::Padding::exact) {
    sequence = {batch.lengths, &batch.lengths_tensor};
  }
  Var x = embedding_.forward(ctx, {batch.x});
  x = ops::dropout(ctx, positions_.forward(ctx, x, embedding_scale_), dropout_);
  return encoder_.forward(ctx, std::move(x), sequence);
}

Var UeaClassifier::forward(Context& ctx, const UeaInputs& batch) const {
  if (batch.x.shape().rank() != 3 || batch.x.dim(1) != shape_.max_length ||
      batch.x.dim(2) != shape_.channels) {
    fail("[uea] a batch must be (B, {}, {}), got {}", shape_.max_length, shape_.channels,
         batch.x.shape().text());
  }
  Var x = norm_.forward(ctx, encode(ctx, batch));
  x = ops::activation(ctx, x, Activation::gelu, dropout_);
  x = ops::mask_positions(ctx, x, batch.lengths_tensor);
  const Shape shape = x.shape();
  return head_.forward(ctx, ops::reshape(ctx, x, {shape[0], shape[1] * shape[2]}));
}

BatchLoss uea_loss(Context& ctx, const UeaClassifier& model, const UeaInputs& batch, double eta) {
  return classification_loss(ctx, model.forward(ctx, batch), batch.labels, eta);
}

std::vector<TaskConfig::ForeignName> uea_pytorch_names(const ParameterSet& parameters) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kRules{{
      {"embedding.", "project_inp."},
      {"positions", "pos_enc.pe"},
      {"layers.", "encoder.attn_layers."},
      {".query.", ".query_projection."},
      {".key.", ".key_projection."},
      {".value.", ".value_projection."},
      {".output.", ".out_projection."},
      {".mix.", ".inner_attention.concate_weight."},
      {".lambda", ".inner_attention.Lambda"},
      {".projection_e", ".We"},
      {".projection_r", ".Wr"},
      {".feed_forward.first.", ".conv1."},
      {".feed_forward.second.", ".conv2."},
      {"head.", "output_layer."},
  }};
  std::vector<TaskConfig::ForeignName> names;
  for (const ParameterSet::Entry& entry : parameters.entries()) {
    std::string foreign = entry.name;
    for (const auto& [ours, theirs] : kRules) {
      if (const size_t at = foreign.find(ours); at != std::string::npos) {
        foreign.replace(at, ours.size(), theirs);
      }
    }
    std::vector<int64_t> shape(entry.shape.sizes().begin(), entry.shape.sizes().end());
    if (entry.name == "positions") shape.insert(shape.begin() + 1, 1);
    // The feed-forward maps are convolutions of width one there.
    if (entry.name.find(".feed_forward.") != std::string::npos && shape.size() == 2) {
      shape.push_back(1);
    }
    if (entry.name.starts_with("norm.")) foreign = "encoder." + entry.name;
    names.push_back({entry.name, std::move(foreign), std::move(shape)});
  }
  return names;
}

}  // namespace primal

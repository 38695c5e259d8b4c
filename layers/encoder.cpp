#include "layers/encoder.h"

#include <algorithm>

#include "core/error.h"

namespace primal {

LayerConfig::LayerConfig() : LayerConfig("canonical") {}

LayerConfig::LayerConfig(std::string_view attention_kind) {
  for (const Kind<AttentionConfig>& kind : attention_kinds()) {
    if (kind.name == attention_kind) attention = kind.make();
  }
}

void LayerConfig::fields(Fields& f) {
  f.variant("attention", attention, attention_kinds(), "the layer's attention");
}

EncoderConfig::EncoderConfig() {
  layers.emplace_back("canonical");
  layers.emplace_back("primal");
}

void EncoderConfig::fields(Fields& f) {
  f.field("dim", dim, between(1, 65536), "width D of the model");
  f.field("heads", heads, between(1, 4096), "attention heads H; must divide dim");
  f.field("feedforward", feedforward, between(1, 1 << 20),
          "hidden width of the feed-forward network");
  f.field(
      "dropout", dropout, half_open(0.0, 1.0),
      "dropout after the embedding, each attention, each activation and each feed-forward network");
  f.field("attention_dropout", attention_dropout, half_open(0.0, 1.0),
          "dropout of canonical attention's probabilities");
  f.choice("activation", activation, {{"gelu", Activation::gelu}, {"relu", Activation::relu}},
           "of the feed-forward network; gelu is the exact one");
  f.choice("norm", norm, {{"post", NormPlace::post}, {"pre", NormPlace::pre}},
           "layer norm after the residual sum, or before each branch");
  f.field("norm_eps", norm_eps, {.min = 0.0, .max = 1.0, .min_open = true},
          "epsilon of layer norm");
  f.list("layers", layers, "the blocks, first to last");
}

void EncoderConfig::check() const {
  if (dim % heads != 0) fail("model.dim {} cannot be split into model.heads {}", dim, heads);
  if (layers.empty()) fail("model.layers must list at least one layer");
}

Block::Block(ParameterSet& parameters, const std::string& name, const EncoderConfig& config,
             const LayerConfig& layer, const AttentionSetup& setup)
    : attention_(layer.attention->build(parameters, name + ".attention", setup)),
      feed_forward_(parameters, name + ".feed_forward", config.dim, config.feedforward,
                    config.activation, config.dropout),
      norm1_(parameters, name + ".norm1", config.dim, config.norm_eps),
      norm2_(parameters, name + ".norm2", config.dim, config.norm_eps),
      place_(config.norm),
      dropout_(config.dropout) {}

Var Block::forward(Context& ctx, const Var& x, const Sequence& sequence) const {
  if (place_ == NormPlace::post) {
    const Var y = attention_->forward(ctx, x, sequence);
    const Var middle = norm1_.forward(ctx, ops::add_dropout(ctx, x, y, dropout_));
    const Var z = feed_forward_.forward(ctx, middle);
    return norm2_.forward(ctx, ops::add_dropout(ctx, middle, z, dropout_));
  }
  const Var y = attention_->forward(ctx, norm1_.forward(ctx, x), sequence);
  const Var middle = ops::add_dropout(ctx, x, y, dropout_);
  const Var z = feed_forward_.forward(ctx, norm2_.forward(ctx, middle));
  return ops::add_dropout(ctx, middle, z, dropout_);
}

Encoder::Encoder(ParameterSet& parameters, const EncoderConfig& config, const KsvdConfig& ksvd,
                 int64_t max_length, bool causal) {
  config.check();
  AttentionSetup setup;
  setup.dim = config.dim;
  setup.heads = config.heads;
  setup.max_length = max_length;
  setup.dropout = config.attention_dropout;
  setup.causal = causal;
  setup.ksvd = ksvd;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    blocks_.emplace_back(parameters, "layers." + std::to_string(i), config, config.layers[i],
                         setup);
  }
}

Var Encoder::forward(Context& ctx, Var x, const Sequence& sequence) const {
  for (const Block& block : blocks_) x = block.forward(ctx, x, sequence);
  return x;
}

}  // namespace primal

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/attention/attention.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"

namespace primal {

enum class NormPlace : uint8_t { post, pre };

/// One entry of `model.layers`.
struct LayerConfig {
  LayerConfig();
  explicit LayerConfig(std::string_view attention_kind);

  std::unique_ptr<AttentionConfig> attention;

  void fields(Fields& f);
};

/// A stack of Transformer blocks, the part of `model` that all tasks share.
struct EncoderConfig {
  EncoderConfig();

  int64_t dim = 512;
  int64_t heads = 8;
  int64_t feedforward = 2048;
  double dropout = 0.1;
  double attention_dropout = 0.1;
  Activation activation = Activation::gelu;
  NormPlace norm = NormPlace::post;
  double norm_eps = 1e-5;
  std::vector<LayerConfig> layers;

  void fields(Fields& f);
  void check() const;
};

/// Attention and feed-forward, each with dropout, residual connection and layer norm:
/// post: x = norm(x + dropout(f(x))); pre: x = x + dropout(f(norm(x))).
class Block {
 public:
  Block(ParameterSet& parameters, const std::string& name, const EncoderConfig& config,
        const LayerConfig& layer, const AttentionSetup& setup);

  /// x (B, N, D) -> (B, N, D).
  Var forward(Context& ctx, const Var& x, const Sequence& sequence) const;

 private:
  std::unique_ptr<Attention> attention_;
  FeedForward feed_forward_;
  LayerNorm norm1_;
  LayerNorm norm2_;
  NormPlace place_;
  double dropout_;
};

class Encoder {
 public:
  /// Adds the parameters of all blocks as `layers.0...`, `layers.1...`.
  Encoder(ParameterSet& parameters, const EncoderConfig& config, const KsvdConfig& ksvd,
          int64_t max_length, bool causal);

  /// x (B, N, D) -> (B, N, D).
  Var forward(Context& ctx, Var x, const Sequence& sequence) const;

 private:
  std::vector<Block> blocks_;
};

}  // namespace primal

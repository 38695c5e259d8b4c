#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/config.h"
#include "core/ops.h"

namespace primal {

/// Which positions of a batch are real. Without lengths all are: this is also how a published
/// recipe that gives its attention no mask is run.
struct Sequence {
  std::span<const int32_t> lengths;        ///< (B) on the host
  const Tensor* lengths_tensor = nullptr;  ///< the same on the device
  /// The published models that do have a mask use it thus: padded positions are queries as others
  /// are, but no keys; Primal-Attention samples its rows and takes its KSVD moments over all
  /// positions, and zeroes its output at padded ones.
  bool mask_only = false;
};

/// The KSVD objective of Primal-Attention layers, `ksvd` in a configuration.
struct KsvdConfig {
  enum class Mean : uint8_t { sample, batch };
  enum class Trace : uint8_t { parameter, data };

  double eta = 0.1;
  Mean mean = Mean::sample;
  Trace trace = Trace::parameter;

  void fields(Fields& f);
};

/// What a layer tells its attention.
struct AttentionSetup {
  int64_t dim = 0;
  int64_t heads = 1;
  int64_t max_length = 0;  ///< at most so many rows are sampled for a data-dependent projection
  double dropout = 0;      ///< of attention probabilities, where a kind has such
  bool causal = false;
  KsvdConfig ksvd;
};

/// Self-attention over a sequence: queries, keys, whatever else it needs, and the output
/// projection.
class Attention {
 public:
  virtual ~Attention() = default;
  /// x (B, N, D) -> (B, N, D). May add losses to ctx.aux.
  virtual Var forward(Context& ctx, const Var& x, const Sequence& sequence) const = 0;
};

/// The settings of one kind, chosen per layer: `attention: {kind: primal, rank: 30}`.
class AttentionConfig {
 public:
  virtual ~AttentionConfig() = default;
  virtual std::string_view kind() const = 0;
  virtual void fields(Fields& f) = 0;
  /// Adds the layer's parameters under `name`.
  virtual std::unique_ptr<Attention> build(ParameterSet& parameters, const std::string& name,
                                           const AttentionSetup& setup) const = 0;
};

/// All kinds (kinds.def).
std::span<const Kind<AttentionConfig>> attention_kinds();

}  // namespace primal

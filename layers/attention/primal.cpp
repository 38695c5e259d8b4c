#include <algorithm>

#include "core/error.h"
#include "layers/attention/attention.h"
#include "layers/linear.h"

// Primal-Attention (Chen et al., "Primal-Attention: Self-attention through Asymmetric Kernel SVD in
// Primal Representation", NeurIPS 2023). With g(z) = z / ||z|| per head,
//
//   e = g(q) W_e,  r = g(k) W_r      scores of the right and left singular vectors, (B, N, H s)
//   y = [e ; r] C^T + c              one map shared by all heads, then the output projection O
//
// and no value projection and no N x N matrix. The two maps are one: y O^T + b is computed as
// [e ; r] (O C)^T + (O c + b), with O C and O c by heads, so that y is neither computed nor kept.
// W_e and W_r depend on the data through m evenly spaced rows f(X) of the layer's input, W = f(X)^T
// P; or are the learned P themselves, with q and k replaced by their running means, which makes the
// layer causal. The KSVD objective is zero at a stationary point of the kernel SVD (KKT), so that
// J^2 goes to the auxiliary losses.

namespace primal {
namespace {

enum class Projection : uint8_t { data, fixed };
enum class Scores : uint8_t { both, right };
enum class FeatureMap : uint8_t { cosine };

struct PrimalOptions {
  int64_t rank = 30;
  int64_t rank_multi = 5;
  Projection projection = Projection::data;
  Scores scores = Scores::both;
  FeatureMap feature_map = FeatureMap::cosine;
};

class PrimalAttention : public Attention {
 public:
  PrimalAttention(ParameterSet& parameters, const std::string& name, const AttentionSetup& setup,
                  const PrimalOptions& options)
      : query_(parameters, name + ".query", setup.dim, setup.dim),
        key_(parameters, name + ".key", setup.dim, setup.dim),
        output_(parameters, name + ".output", setup.dim, setup.dim),
        heads_(setup.heads),
        ksvd_(setup.ksvd),
        options_(options) {
    const int64_t head_width = setup.dim / setup.heads;
    rows_ = options.projection == Projection::data
                ? std::min(setup.max_length, options.rank * options.rank_multi)
                : head_width;
    const Shape projection{heads_, rows_, options.rank};
    projection_e_ = parameters.add(name + ".projection_e", projection, init::orthogonal());
    projection_r_ = parameters.add(name + ".projection_r", projection, init::orthogonal());
    lambda_ = parameters.add(name + ".lambda", {heads_, options.rank}, init::uniform(0, 1));
    const int64_t inputs = (options.scores == Scores::both ? 2 : 1) * options.rank;
    mix_weight_ = parameters.add(name + ".mix.weight", {head_width, inputs}, init::fan_in(inputs));
    mix_bias_ = parameters.add(name + ".mix.bias", {head_width}, init::fan_in(inputs));
  }

  Var forward(Context& ctx, const Var& x, const Sequence& sequence) const override {
    const Var p_e = ctx.use(projection_e_);
    const Var p_r = ctx.use(projection_r_);
    Var w_e = p_e;
    Var w_r = p_r;
    if (options_.projection == Projection::data) {
      const Var rows = ops::sample_rows(
          ctx, x, rows_, sequence.mask_only ? std::span<const int32_t>() : sequence.lengths);
      w_e = ops::data_projection(ctx, rows, p_e);
      w_r = ops::data_projection(ctx, rows, p_r);
    }
    const ops::Projected right{features(ctx, query_, x), w_e};
    const ops::Projected left{features(ctx, key_, x), w_r};
    // With the right scores alone the output takes e only; r still has its part in the KSVD loss.
    const std::vector<Var> scores =
        options_.scores == Scores::both
            ? std::vector{ops::project_scores(ctx, {right, left})}
            : std::vector{ops::project_scores(ctx, {right}), ops::project_scores(ctx, {left})};
    const bool parameter_trace = ksvd_.trace == KsvdConfig::Trace::parameter;
    ctx.aux.add("ksvd", ops::ksvd_loss(ctx, scores, ctx.use(lambda_), parameter_trace ? p_e : w_e,
                                       parameter_trace ? p_r : w_r,
                                       {ksvd_.mean == KsvdConfig::Mean::sample,
                                        sequence.mask_only ? nullptr : sequence.lengths_tensor}));
    return output(ctx, scores.front(), sequence);
  }

 private:
  /// Mix and output projection in one: scores (B, N, H inputs) -> (B, N, D).
  Var output(Context& ctx, const Var& scores, const Sequence& sequence) const {
    const Var weight = output_.weight(ctx);
    const int64_t dim = weight.shape()[0];
    const Var mix = ctx.use(mix_weight_);
    const Var by_head = ops::reshape(ctx, weight, {dim * heads_, dim / heads_});
    const Var folded = ops::reshape(ctx, ops::matmul(ctx, by_head, mix), {dim, scores.shape()[-1]});
    const Var mix_bias = ops::reshape(ctx, ops::repeat(ctx, ctx.use(mix_bias_), heads_), {1, dim});
    const auto mapped = [&](const Var& bias) {
      return ops::linear(ctx, scores, folded,
                         ops::reshape(ctx, ops::linear(ctx, mix_bias, weight, bias), {dim}));
    };
    if (!sequence.mask_only) return mapped(output_.bias(ctx));
    return ops::mask_positions(ctx, mapped({}), *sequence.lengths_tensor, output_.bias(ctx));
  }

  /// g of the queries or keys, of their running means when the projection is static.
  Var features(Context& ctx, const Linear& map, const Var& x) const {
    const Var z = map.forward(ctx, x);
    return ops::normalize_heads(
        ctx, options_.projection == Projection::fixed ? ops::running_mean(ctx, z) : z, heads_);
  }

  Linear query_;
  Linear key_;
  Linear output_;
  Parameter projection_e_;
  Parameter projection_r_;
  Parameter lambda_;
  Parameter mix_weight_;
  Parameter mix_bias_;
  int64_t heads_;
  int64_t rows_ = 0;
  KsvdConfig ksvd_;
  PrimalOptions options_;
};

class PrimalConfig : public AttentionConfig {
 public:
  std::string_view kind() const override { return "primal"; }

  void fields(Fields& f) override {
    f.field("rank", options_.rank, between(1, 4096), "s, number of singular vectors kept");
    f.field("rank_multi", options_.rank_multi, between(1, 4096),
            "rows sampled for the data-dependent projection: min(longest sequence, rank * "
            "rank_multi)");
    f.choice("projection", options_.projection,
             {{"data", Projection::data}, {"static", Projection::fixed}},
             "data: W = f(X)^T P from sampled rows of the input; static: W = P on running means, "
             "which is causal");
    f.choice("scores", options_.scores, {{"both", Scores::both}, {"right", Scores::right}},
             "whether the output sees e and r, or e only");
    f.choice("feature_map", options_.feature_map, {{"cosine", FeatureMap::cosine}},
             "g; cosine is z / ||z||");
  }

  std::unique_ptr<Attention> build(ParameterSet& parameters, const std::string& name,
                                   const AttentionSetup& setup) const override {
    if (setup.causal && options_.projection == Projection::data) {
      fail("[primal] projection: data samples the whole sequence and cannot be causal; use static");
    }
    return std::make_unique<PrimalAttention>(parameters, name, setup, options_);
  }

 private:
  PrimalOptions options_;
};

}  // namespace

std::unique_ptr<AttentionConfig> make_primal_attention() {
  return std::make_unique<PrimalConfig>();
}

}  // namespace primal

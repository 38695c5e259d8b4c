#pragma once

#include <string>

#include "core/ops.h"

namespace primal {

/// Layer normalisation over the last dimension with a learned scale (ones at first) and shift
/// (zeros).
class LayerNorm {
 public:
  LayerNorm(ParameterSet& parameters, const std::string& name, int64_t dim, double eps = 1e-5)
      : weight_(parameters.add(name + ".weight", {dim}, init::constant(1))),
        bias_(parameters.add(name + ".bias", {dim}, init::constant(0))),
        eps_(eps) {}

  /// x (..., dim) -> (..., dim).
  Var forward(Context& ctx, const Var& x) const {
    return ops::layer_norm(ctx, x, ctx.use(weight_), ctx.use(bias_), eps_);
  }

 private:
  Parameter weight_;
  Parameter bias_;
  double eps_;
};

}  // namespace primal

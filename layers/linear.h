#pragma once

#include <string>

#include "core/ops.h"

namespace primal {

/// y = x W^T + b: weight (out, in), bias (out), both uniform in +-1/sqrt(in) at first.
class Linear {
 public:
  Linear(ParameterSet& parameters, const std::string& name, int64_t in, int64_t out)
      : weight_(parameters.add(name + ".weight", {out, in}, init::fan_in(in))),
        bias_(parameters.add(name + ".bias", {out}, init::fan_in(in))) {}

  /// x (..., in) -> (..., out).
  Var forward(Context& ctx, const Var& x) const {
    return ops::linear(ctx, x, weight(ctx), bias(ctx));
  }

  Var weight(Context& ctx) const { return ctx.use(weight_); }
  Var bias(Context& ctx) const { return ctx.use(bias_); }

 private:
  Parameter weight_;
  Parameter bias_;
};

}  // namespace primal

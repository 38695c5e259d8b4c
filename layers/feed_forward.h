#pragma once

#include <string>

#include "layers/linear.h"

namespace primal {

/// second(dropout(activation(first(x)))): the position-wise network of a Transformer block.
class FeedForward {
 public:
  FeedForward(ParameterSet& parameters, const std::string& name, int64_t dim, int64_t hidden,
              Activation activation, double dropout)
      : first_(parameters, name + ".first", dim, hidden),
        second_(parameters, name + ".second", hidden, dim),
        activation_(activation),
        dropout_(dropout) {}

  /// x (..., dim) -> (..., dim).
  Var forward(Context& ctx, const Var& x) const {
    return second_.forward(ctx,
                           ops::activation(ctx, first_.forward(ctx, x), activation_, dropout_));
  }

 private:
  Linear first_;
  Linear second_;
  Activation activation_;
  double dropout_;
};

}  // namespace primal

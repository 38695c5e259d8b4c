#pragma once

#include <string>

#include "core/ops.h"

namespace primal {

enum class PositionKind : uint8_t { learned, sinusoidal };

/// Adds a vector per position: learned ones, of which `first` gives the first values, or fixed
/// sinusoids (Vaswani et al., 2017) whose first half of components are sines and second half
/// cosines, of frequencies 10000^(-i / (dim / 2 - 1)).
class Positions {
 public:
  Positions(const Backend& backend, ParameterSet& parameters, const std::string& name,
            PositionKind kind, int64_t max_length, int64_t dim,
            const Initializer& first = init::uniform(-0.02F, 0.02F));

  /// scale * x + positions: x (B, N, dim) with N <= max_length.
  Var forward(Context& ctx, const Var& x, float scale) const;

 private:
  Parameter learned_;
  Tensor fixed_;
};

}  // namespace primal

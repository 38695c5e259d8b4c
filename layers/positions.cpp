#include "layers/positions.h"

#include <cmath>
#include <vector>

#include "core/error.h"

namespace primal {

Positions::Positions(const Backend& backend, ParameterSet& parameters, const std::string& name,
                     PositionKind kind, int64_t max_length, int64_t dim, const Initializer& first) {
  if (kind == PositionKind::learned) {
    learned_ = parameters.add(name, {max_length, dim}, first);
    return;
  }
  if (dim < 4 || dim % 2 != 0) {
    fail("[positions] sinusoidal positions need an even model width of at least 4, got {}", dim);
  }
  const int64_t half = dim / 2;
  std::vector<float> table(max_length * dim);
  for (int64_t t = 0; t < max_length; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half - 1));
      table[t * dim + i] = static_cast<float>(std::sin(static_cast<double>(t) * frequency));
      table[t * dim + half + i] = static_cast<float>(std::cos(static_cast<double>(t) * frequency));
    }
  }
  fixed_ = backend.empty({max_length, dim});
  backend.op->upload(backend.exec, fixed_.count(), table.data(), fixed_.data());
}

Var Positions::forward(Context& ctx, const Var& x, float scale) const {
  return ops::add_position(ctx, x, fixed_.defined() ? Var{fixed_} : ctx.use(learned_), scale);
}

}  // namespace primal

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/rng.h"

namespace primal {

/// Handle of a parameter within its ParameterSet.
struct Parameter {
  int index = -1;
};

/// Fills a parameter's first values from its own random stream.
using Initializer = std::function<void(std::span<float> values, const Shape& shape, RandomStream&)>;

namespace init {
Initializer constant(float value);
Initializer uniform(float low, float high);
Initializer normal(float std);
/// Uniform in +-1/sqrt(fan_in), the default of linear maps.
Initializer fan_in(int64_t fan_in);
/// Rows (first dimension) orthonormal to one another over all other dimensions, or columns where
/// there are fewer of those (Saxe et al., 2014).
Initializer orthogonal();
}  // namespace init

/// All parameters of a model, as slices of two flat buffers (values and gradients) in the order
/// they were added, named by path: `layers.1.attention.lambda`.
class ParameterSet {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    int64_t offset = 0;
    Initializer initializer;
  };

  /// Only before allocate(). Names must be unique.
  Parameter add(std::string name, Shape shape, Initializer initializer);

  /// Makes the buffers and the first values. A parameter's values depend on the seed, its name and
  /// its shape only, not on what else the model holds.
  void allocate(const Backend& backend, uint64_t seed);

  const std::vector<Entry>& entries() const { return entries_; }
  int64_t count() const { return count_; }
  Tensor value(Parameter parameter) const { return slice(values_, parameter); }
  Tensor gradient(Parameter parameter) const { return slice(gradients_, parameter); }
  /// All values (count()) and all gradients (count()).
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  /// The parameter of that name; throws Error when there is none.
  Parameter find(std::string_view name) const;

 private:
  Tensor slice(const Tensor& flat, Parameter parameter) const;

  std::vector<Entry> entries_;
  int64_t count_ = 0;
  Tensor values_;
  Tensor gradients_;
};

}  // namespace primal

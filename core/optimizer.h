#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/parameters.h"
#include "core/schedule.h"

namespace primal {

/// The settings of an optimizer and its update rule, as one fused step of the Adam family.
class OptimizerRule {
 public:
  virtual ~OptimizerRule() = default;
  virtual std::string_view kind() const = 0;
  void fields(Fields& f);

  /// The coefficients of update number `step` (1, 2, ...) at learning rate `rate`, before clipping.
  /// `decay1` is the decay of the first moment now, as a schedule may change it.
  virtual AdamStep update(int64_t step, double rate, double decay1) const = 0;
  AdamStep update(int64_t step, double rate) const { return update(step, rate, beta1); }

  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;
};

/// One line per optimizer: {name, help, factory}.
std::span<const Kind<OptimizerRule>> optimizer_kinds();

/// Applies a rule to all parameters at once and keeps the two moments of their gradients.
class Optimizer {
 public:
  /// All three must outlive the optimizer; the parameters are allocated already.
  Optimizer(const OptimizerRule& rule, ParameterSet& parameters, Backend& backend);

  /// One update; gradients longer than clip_norm are shortened to it. All of
  /// it stays on the device. When the gradient is not finite, no parameter or moment changes.
  void update(const Rates& rates);
  /// (1): Euclidean norm of all gradients at the last update, before clipping.
  Tensor gradient_norm() const { return clip_.slice(0, {1}); }

  /// Updates done so far.
  int64_t steps() const { return steps_; }

  /// The moments, laid out as the parameters are.
  const Tensor& first() const { return first_; }
  const Tensor& second() const { return second_; }
  /// Goes on from a saved state. Throws Error when it is of another number of parameters.
  void restore(int64_t steps, std::span<const float> first, std::span<const float> second);

 private:
  const OptimizerRule& rule_;
  ParameterSet& parameters_;
  Backend& backend_;
  int64_t steps_ = 0;
  Tensor first_;
  Tensor second_;
  Tensor clip_;  // (2): norm of the gradient, factor that shortens it
};

}  // namespace primal

#include "core/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"

namespace primal {
namespace {

// Powers and roots are taken in double precision: 1 - beta^t loses most digits of a float.

/// Adam (Kingma and Ba, 2015), weight decay added to the gradient.
class Adam : public OptimizerRule {
 public:
  std::string_view kind() const override { return "adam"; }
  AdamStep update(int64_t step, double rate, double decay1) const override {
    const auto t = static_cast<double>(step);
    return {.l2 = static_cast<float>(weight_decay),
            .beta1 = static_cast<float>(decay1),
            .beta2 = static_cast<float>(beta2),
            .eps = static_cast<float>(eps),
            .step_size = static_cast<float>(rate / (1 - std::pow(decay1, t))),
            .second_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t)))};
  }
};

/// AdamW (Loshchilov and Hutter, 2019): Adam with weight decay apart from the gradient.
class AdamW final : public Adam {
 public:
  std::string_view kind() const override { return "adamw"; }
  AdamStep update(int64_t step, double rate, double decay1) const override {
    AdamStep adam = Adam::update(step, rate, decay1);
    adam.l2 = 0;
    adam.decay = static_cast<float>(1 - rate * weight_decay);
    return adam;
  }
};

/// RAdam (Liu et al., 2020), weight decay apart from the gradient. While the variance of the second
/// moment is not tractable, rho_t < 5, it takes the momentum step lr m / (1 - beta1^t).
class RAdam final : public OptimizerRule {
 public:
  std::string_view kind() const override { return "radam"; }
  AdamStep update(int64_t step, double rate, double decay1) const override {
    const auto t = static_cast<double>(step);
    const double decay2 = std::pow(beta2, t);
    const double rho_max = 2 / (1 - beta2) - 1;
    const double rho = rho_max - 2 * t * decay2 / (1 - decay2);
    const bool adaptive = rho >= 5;
    double size = rate / (1 - std::pow(decay1, t));
    if (adaptive) {
      size *= std::sqrt((1 - decay2) * (rho - 4) / (rho_max - 4) * (rho - 2) / rho * rho_max /
                        (rho_max - 2));
    }
    return {.beta1 = static_cast<float>(decay1),
            .beta2 = static_cast<float>(beta2),
            .eps = static_cast<float>(eps),
            .decay = static_cast<float>(1 - rate * weight_decay),
            .step_size = static_cast<float>(size),
            .adaptive = adaptive};
  }
};

template <class Rule>
std::unique_ptr<OptimizerRule> make() {
  return std::make_unique<Rule>();
}

}  // namespace

void OptimizerRule::fields(Fields& f) {
  f.field("lr", lr, at_least(0), "learning rate, before the schedule");
  f.field("beta1", beta1, half_open(0, 1), "decay of the first moment");
  f.field("beta2", beta2, half_open(0, 1), "decay of the second moment");
  f.field("eps", eps, {.min = 0, .min_open = true}, "added to the root of the second moment");
  f.field("weight_decay", weight_decay, at_least(0),
          "in adam added to the gradient, in adamw and radam apart from it (times lr)");
  f.field("clip_norm", clip_norm, at_least(0),
          "gradients longer than this, over all parameters, are shortened to it; 0: no clipping");
}

std::span<const Kind<OptimizerRule>> optimizer_kinds() {
  static constexpr std::array kKinds{
      Kind<OptimizerRule>{"radam", "rectified Adam", make<RAdam>},
      Kind<OptimizerRule>{"adam", "Adam, weight decay added to the gradient", make<Adam>},
      Kind<OptimizerRule>{"adamw", "Adam with decoupled weight decay", make<AdamW>},
  };
  return kKinds;
}

Optimizer::Optimizer(const OptimizerRule& rule, ParameterSet& parameters, Backend& backend)
    : rule_(rule),
      parameters_(parameters),
      backend_(backend),
      first_(backend.empty({parameters.count()})),
      second_(backend.empty({parameters.count()})),
      clip_(backend.empty({2})) {
  backend.op->fill(backend.exec, first_.count(), 0.0F, first_.data());
  backend.op->fill(backend.exec, second_.count(), 0.0F, second_.data());
}

void Optimizer::update(const Rates& rates) {
  backend_.op->clip(backend_.exec, parameters_.count(), static_cast<float>(rule_.clip_norm),
                    parameters_.gradients().data(), clip_.data());
  const float* factor = clip_.data() + 1;
  backend_.op->adam(backend_.exec, parameters_.count(),
                    rule_.update(++steps_, rates.lr, rates.beta1.value_or(rule_.beta1)), factor,
                    parameters_.gradients().data(), first_.data(), second_.data(),
                    parameters_.values().data());
}

void Optimizer::restore(int64_t steps, std::span<const float> first,
                        std::span<const float> second) {
  for (const auto moment : {first, second}) {
    if (static_cast<int64_t>(moment.size()) != parameters_.count()) {
      fail("optimizer: the saved state is of {} numbers, the model has {}", moment.size(),
           parameters_.count());
    }
  }
  steps_ = steps;
  backend_.op->upload(backend_.exec, first_.count(), first.data(), first_.data());
  backend_.op->upload(backend_.exec, second_.count(), second.data(), second_.data());
}

}  // namespace primal

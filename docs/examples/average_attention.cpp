#include "core/ops.h"
#include "layers/attention/attention.h"
#include "layers/linear.h"

// Average attention (Zhang et al., "Accelerating Neural Transformer via an Average Attention
// Network", ACL 2018), reduced to its core: every position takes the mean of the values up to and
// including its own.

namespace primal {
namespace {

class AverageAttention : public Attention {
 public:
  AverageAttention(ParameterSet& parameters, const std::string& name, const AttentionSetup& setup)
      : value_(parameters, name + ".value", setup.dim, setup.dim),
        output_(parameters, name + ".output", setup.dim, setup.dim) {}

  Var forward(Context& ctx, const Var& x, const Sequence&) const override {
    return output_.forward(ctx, ops::running_mean(ctx, value_.forward(ctx, x)));
  }

 private:
  Linear value_;
  Linear output_;
};

class AverageConfig : public AttentionConfig {
 public:
  std::string_view kind() const override { return "average"; }
  void fields(Fields&) override {}  // it has no settings
  std::unique_ptr<Attention> build(ParameterSet& parameters, const std::string& name,
                                   const AttentionSetup& setup) const override {
    return std::make_unique<AverageAttention>(parameters, name, setup);
  }
};

}  // namespace

std::unique_ptr<AttentionConfig> make_average_attention() {
  return std::make_unique<AverageConfig>();
}

}  // namespace primal

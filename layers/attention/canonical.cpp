#include "layers/attention/attention.h"
#include "layers/linear.h"

namespace primal {
namespace {

class CanonicalAttention : public Attention {
 public:
  CanonicalAttention(ParameterSet& parameters, const std::string& name, const AttentionSetup& setup,
                     ops::AttentionForm form)
      : query_(parameters, name + ".query", setup.dim, setup.dim),
        key_(parameters, name + ".key", setup.dim, setup.dim),
        value_(parameters, name + ".value", setup.dim, setup.dim),
        output_(parameters, name + ".output", setup.dim, setup.dim) {
    options_.heads = setup.heads;
    options_.causal = setup.causal;
    options_.dropout = setup.dropout;
    options_.form = form;
  }

  Var forward(Context& ctx, const Var& x, const Sequence& sequence) const override {
    ops::AttentionOptions options = options_;
    options.lengths = sequence.lengths_tensor;
    options.all_queries = sequence.mask_only;
    const Var mixed = ops::attention(ctx, query_.forward(ctx, x), key_.forward(ctx, x),
                                     value_.forward(ctx, x), options);
    return output_.forward(ctx, mixed);
  }

 private:
  Linear query_;
  Linear key_;
  Linear value_;
  Linear output_;
  ops::AttentionOptions options_;
};

class CanonicalConfig : public AttentionConfig {
 public:
  std::string_view kind() const override { return "canonical"; }

  void fields(Fields& f) override {
    f.choice("implementation", form_,
             {{"blockwise", ops::AttentionForm::blockwise},
              {"materialized", ops::AttentionForm::materialized}},
             "blockwise never holds N x N numbers; materialized does, as the paper's baseline");
  }

  std::unique_ptr<Attention> build(ParameterSet& parameters, const std::string& name,
                                   const AttentionSetup& setup) const override {
    return std::make_unique<CanonicalAttention>(parameters, name, setup, form_);
  }

 private:
  ops::AttentionForm form_ = ops::AttentionForm::blockwise;
};

}  // namespace

std::unique_ptr<AttentionConfig> make_canonical_attention() {
  return std::make_unique<CanonicalConfig>();
}

}  // namespace primal

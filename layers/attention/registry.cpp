#include "layers/attention/attention.h"

namespace primal {

#define KIND(name, help) std::unique_ptr<AttentionConfig> make_##name##_attention();
#include "layers/attention/kinds.def"
#undef KIND

std::span<const Kind<AttentionConfig>> attention_kinds() {
  static constexpr Kind<AttentionConfig> kKinds[] = {
#define KIND(name, help) {#name, help, make_##name##_attention},
#include "layers/attention/kinds.def"
#undef KIND
  };
  return kKinds;
}

void KsvdConfig::fields(Fields& f) {
  f.field("eta", eta, at_least(0.0),
          "weight of the KSVD loss: loss = task loss + eta * mean over primal layers of J^2");
  f.choice("mean", mean, {{"sample", Mean::sample}, {"batch", Mean::batch}},
           "what the means of J run over: heads and positions of each sample (J^2 is then averaged "
           "over the batch), or the whole batch at once");
  f.choice("trace", trace, {{"parameter", Trace::parameter}, {"data", Trace::data}},
           "whether J's trace is of the learned P_e, P_r (all published runs) or of the "
           "data-dependent W_e, W_r");
}

}  // namespace primal

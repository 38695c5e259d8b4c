#pragma once

#include <vector>

#include "core/task.h"
#include "layers/encoder.h"
#include "layers/positions.h"

namespace primal {

/// `model` of a UEA configuration.
struct UeaModelConfig {
  enum class Padding : uint8_t { published, exact };

  EncoderConfig encoder;
  PositionKind positions = PositionKind::learned;
  Padding padding = Padding::published;

  void fields(Fields& f);
  void check() const { encoder.check(); }
};

/// What the data decides about the model.
struct UeaShape {
  int64_t channels = 0;
  int64_t max_length = 0;
  int64_t classes = 0;
};

/// A batch on the device, with its lengths on the host too.
struct UeaInputs {
  Tensor x;                      ///< (B, N, F), zero at padded positions
  Tensor lengths_tensor;         ///< (B) int32
  Tensor labels;                 ///< (B) int32
  std::vector<int32_t> lengths;  ///< (B)
};

/// The Transformer classifier of the paper's UEA experiments: linear embedding times sqrt(D) plus
/// positions, dropout, Transformer blocks, layer norm, GELU, dropout, padded positions set to 0,
/// and one linear map of all N * D numbers to the classes.
///
/// As published, the encoder sees padded rows as zeros and its attention has no mask, so that
/// results depend on the padded length. With `padding: exact` attention sees real positions only,
/// rows are sampled over each case's own length, and the KSVD moments run over real positions.
class UeaClassifier {
 public:
  /// Adds the model's parameters; the caller then allocates them.
  UeaClassifier(const Backend& backend, ParameterSet& parameters, const UeaModelConfig& config,
                const KsvdConfig& ksvd, const UeaShape& shape);

  /// Outputs of the last block: x (B, N, F) -> (B, N, D), for any N <= max_length.
  Var encode(Context& ctx, const UeaInputs& batch) const;
  /// Logits (B, classes); N must be max_length.
  Var forward(Context& ctx, const UeaInputs& batch) const;

 private:
  UeaModelConfig::Padding padding_;
  double dropout_;
  float embedding_scale_;
  UeaShape shape_;
  Linear embedding_;
  Positions positions_;
  Encoder encoder_;
  LayerNorm norm_;
  Linear head_;
};

/// task loss + eta * mean over primal layers of the KSVD loss.
BatchLoss uea_loss(Context& ctx, const UeaClassifier& model, const UeaInputs& batch, double eta);

/// Each parameter's name and shape in the authors' PyTorch code.
std::vector<TaskConfig::ForeignName> uea_pytorch_names(const ParameterSet& parameters);

}  // namespace primal

#pragma once

#include <vector>

#include "core/task.h"
#include "layers/encoder.h"
#include "layers/positions.h"

namespace primal {

/// `model` of an LRA configuration.
struct LraModelConfig {
  enum class Padding : uint8_t { published, exact };
  enum class Pooling : uint8_t { mean };
  enum class PairFeatures : uint8_t { full };

  LraModelConfig();

  EncoderConfig encoder;
  PositionKind positions = PositionKind::learned;
  int64_t head = 128;
  Pooling pooling = Pooling::mean;
  PairFeatures pair_features = PairFeatures::full;
  Padding padding = Padding::published;

  void fields(Fields& f);
  void check() const { encoder.check(); }
};

/// What the data decides about the model.
struct LraShape {
  int64_t vocabulary = 0;  ///< token ids are below; 0 is padding
  int64_t max_length = 0;
  int64_t classes = 0;
  bool pairs = false;  ///< an example is two documents
};

/// A batch of documents on the device: the examples, or their first and second documents in turn.
struct LraInputs {
  ops::Tokens tokens;            ///< (B, N)
  Tensor lengths_tensor;         ///< (B) int32
  Tensor labels;                 ///< (examples) int32
  std::vector<int32_t> lengths;  ///< (B)
};

/// The classifier of the Long Range Arena (Tay et al., 2021) as the paper trains it: token and
/// position embeddings, dropout, pre-norm Transformer blocks, layer norm, the mean over positions,
/// and a map with one hidden layer to the classes; of two documents the features are a, b, a * b
/// and a - b.
///
/// As published, padding is masked (Sequence::mask_only) and the mean divides by the padded length,
/// so that results depend on it. With `padding: exact` they depend on the real positions only, and
/// a batch may be padded to any length.
class LraClassifier {
 public:
  /// Adds the model's parameters; the caller then allocates them.
  LraClassifier(const Backend& backend, ParameterSet& parameters, const LraModelConfig& config,
                const KsvdConfig& ksvd, const LraShape& shape);

  /// Normalised outputs of the last block (B, N, D), N <= max_length.
  Var encode(Context& ctx, const LraInputs& batch) const;
  /// Logits (examples, classes).
  Var forward(Context& ctx, const LraInputs& batch) const;

 private:
  bool exact_;
  double dropout_;
  LraShape shape_;
  Parameter embedding_;
  Positions positions_;
  Encoder encoder_;
  LayerNorm norm_;
  Linear first_;
  Linear second_;
};

/// task loss + eta * mean over primal layers of the KSVD loss.
BatchLoss lra_loss(Context& ctx, const LraClassifier& model, const LraInputs& batch, double eta);

/// Each parameter's name and shape in the authors' PyTorch code.
std::vector<TaskConfig::ForeignName> lra_pytorch_names(const ParameterSet& parameters);

}  // namespace primal

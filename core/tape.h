#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace primal {

struct Backend;

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

/// A value that the backward computes once more instead of keeping it (Chen et al., "Training deep
/// nets with sublinear memory cost", 2016): once for all ops that ask, freed after the last of
/// them.
class Recomputed {
 public:
  explicit Recomputed(std::function<Tensor()> compute) : compute_(std::move(compute)) {}

  const Tensor& value() {
    if (!value_.defined()) value_ = compute_();
    return value_;
  }

 private:
  std::function<Tensor()> compute_;
  Tensor value_;
};

/// A value and its place on the tape; `node` is kNoNode for what needs no gradient.
struct Var {
  Tensor value;
  NodeId node = kNoNode;
  std::shared_ptr<Recomputed> recomputed = nullptr;  ///< for values that are cheap to have again

  const Shape& shape() const { return value.shape(); }
  bool needs_gradient() const { return node != kNoNode; }

  /// What a backward captures to have now() later: without the value where that is recomputed.
  Var kept() const { return recomputed ? Var{Tensor(), node, recomputed} : *this; }
  const Tensor& now() const { return recomputed ? recomputed->value() : value; }
};

/// Where an op's backward writes the gradient of one of its inputs: the first writer overwrites,
/// later ones add (`accumulate`).
struct GradientSlot {
  Tensor tensor;
  bool accumulate = false;
};

/// Reverse-mode differentiation. Ops record themselves in execution order, which is topological, so
/// backward is one reverse loop; each node's saved tensors and gradient are freed as soon as used.
class Tape {
 public:
  explicit Tape(Backend& backend) : backend_(backend) {}

  /// A parameter, whose gradient is written into `gradient` (zeros if nothing depends on it), or
  /// with `add` added to what is there.
  NodeId leaf(Tensor gradient, bool add = false);

  using Backward = std::function<void(Tape&, const Tensor& gradient)>;
  /// An op's result; `backward` gets the result's gradient and fills its inputs' through slot() or
  /// give().
  Var record(Tensor value, Backward backward);

  /// The gradient of `input`, to be written (or added to) by the caller in full. `input` must need
  /// one.
  GradientSlot slot(const Var& input);
  /// Hands over a finished gradient of `input`, which may be shared with other tensors. No copy
  /// when it is the first.
  void give(const Var& input, const Tensor& gradient);

  /// Fills the gradients of everything `loss`, a single number, depends on: those of scale * loss.
  void backward(const Var& loss, double scale = 1);

 private:
  struct Node {
    Shape shape;
    Tensor gradient;
    Backward backward;
    bool leaf = false;
    bool written = false;
  };

  /// Throws Error when `var` is not on the tape.
  Node& node_of(const Var& var);

  Backend& backend_;
  std::vector<Node> nodes_;
};

}  // namespace primal

#include "core/tape.h"

#include "core/backend.h"
#include "core/error.h"

namespace primal {

NodeId Tape::leaf(Tensor gradient, bool add) {
  Node node;
  node.written = add;
  node.shape = gradient.shape();
  node.gradient = std::move(gradient);
  node.leaf = true;
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size()) - 1;
}

Var Tape::record(Tensor value, Backward backward) {
  Node node;
  node.shape = value.shape();
  node.backward = std::move(backward);
  nodes_.push_back(std::move(node));
  return {std::move(value), static_cast<NodeId>(nodes_.size()) - 1};
}

Tape::Node& Tape::node_of(const Var& var) {
  if (var.node < 0 || var.node >= std::ssize(nodes_)) {
    fail("[tape] a value that is not on the tape was given; backward empties it");
  }
  return nodes_[var.node];
}

GradientSlot Tape::slot(const Var& input) {
  Node& node = node_of(input);
  const bool accumulate = node.written;
  if (!node.written) {
    node.written = true;
    if (!node.leaf) node.gradient = backend_.empty(node.shape);
  } else if (!node.leaf && !node.gradient.unique()) {
    // The gradient was given by an op that still shares it: add to a copy.
    Tensor copy = backend_.empty(node.shape);
    backend_.op->copy(backend_.exec, copy.count(), node.gradient.data(), copy.data());
    node.gradient = std::move(copy);
  }
  return {node.gradient, accumulate};
}

void Tape::give(const Var& input, const Tensor& gradient) {
  Node& node = node_of(input);
  if (gradient.count() != node.shape.count()) {
    fail("[tape] a gradient of {} was given to a value of {}", gradient.shape().text(),
         node.shape.text());
  }
  if (!node.leaf && !node.written) {
    node.written = true;
    node.gradient = gradient.reshape(node.shape);
    return;
  }
  const GradientSlot target = slot(input);
  const auto combine = target.accumulate ? backend_.op->add : backend_.op->copy;
  combine(backend_.exec, gradient.count(), gradient.data(), target.tensor.data());
}

void Tape::backward(const Var& loss, double scale) {
  if (loss.value.count() != 1) {
    fail("[tape] backward starts from a single number, got {}", loss.shape().text());
  }
  if (!loss.needs_gradient()) fail("[tape] the loss depends on no parameter");
  const GradientSlot seed = slot(loss);
  backend_.op->fill(backend_.exec, 1, static_cast<float>(scale), seed.tensor.data());
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (node->leaf) {
      if (!node->written) {
        backend_.op->fill(backend_.exec, node->gradient.count(), 0.0F, node->gradient.data());
      }
      continue;
    }
    const Backward run = std::move(node->backward);
    const Tensor gradient = std::move(node->gradient);
    node->backward = nullptr;
    node->gradient = {};
    if (node->written) run(*this, gradient);
  }
  nodes_.clear();
}

}  // namespace primal

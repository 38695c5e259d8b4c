#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/parameters.h"
#include "core/tape.h"

namespace primal {

/// Losses that layers add from within, by name; a task weighs their mean over the layers that gave
/// one.
class AuxLosses {
 public:
  void add(std::string_view name, Var loss) {
    losses_[std::string(name)].push_back(std::move(loss));
  }
  /// The losses given under `name` since the last clear, in order.
  const std::vector<Var>& of(std::string_view name) const {
    static const std::vector<Var> none;
    const auto found = losses_.find(std::string(name));
    return found == losses_.end() ? none : found->second;
  }

 private:
  std::map<std::string, std::vector<Var>> losses_;
};

/// The part of an update's batch that a forward pass computes.
struct BatchPart {
  int64_t first = 0;  ///< examples of the batch before it
  int64_t count = 0;  ///< its examples
  /// Gradients are added to those of the parts before.
  bool add = false;
  /// J of each Primal-Attention layer over the whole batch, where its loss is one of the whole
  /// batch; else empty.
  std::vector<double> objectives{};
  /// The part's share in these, divided by its share of the examples.
  double objective_weight = 1;
};

/// What a forward pass needs: where it runs, the parameters, and, when training, the tape and the
/// random masks. `tape == nullptr` evaluates without gradients.
struct Context {
  /// Evaluation.
  Context(Backend& on, ParameterSet& with) : backend(on), parameters(with) {}
  /// Training.
  Context(Backend& on, ParameterSet& with, Tape& record, Rng masks)
      : Context(on, with, &record, masks, {}) {}
  /// Training on a part of a batch; without a tape only for its losses.
  Context(Backend& on, ParameterSet& with, Tape* record, Rng masks, BatchPart of)
      : backend(on),
        parameters(with),
        tape(record),
        rng(masks),
        training(true),
        part(std::move(of)) {}

  Backend& backend;
  ParameterSet& parameters;
  Tape* tape = nullptr;
  Rng rng{0, 0};
  bool training = false;
  AuxLosses aux;
  BatchPart part{};

  /// The parameter as an operand; used twice, it gets both gradients added.
  Var use(Parameter parameter) {
    Var var{parameters.value(parameter), kNoNode};
    if (tape != nullptr) {
      if (const auto found = leaves_.find(parameter.index); found != leaves_.end()) {
        var.node = found->second;
      } else {
        var.node = tape->leaf(parameters.gradient(parameter), part.add);
        leaves_.emplace(parameter.index, var.node);
      }
    }
    return var;
  }

 private:
  std::map<int, NodeId> leaves_;
};

}  // namespace primal

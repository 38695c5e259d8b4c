#pragma once

#include <map>
#include <string>
#include <string_view>
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

/// What a forward pass needs: where it runs, the parameters, and, when training, the tape and the
/// random masks. `tape == nullptr` evaluates without gradients.
struct Context {
  /// Evaluation.
  Context(Backend& on, ParameterSet& with) : backend(on), parameters(with) {}
  /// Training.
  Context(Backend& on, ParameterSet& with, Tape& record, Rng masks)
      : backend(on), parameters(with), tape(&record), rng(masks), training(true) {}

  Backend& backend;
  ParameterSet& parameters;
  Tape* tape = nullptr;
  Rng rng{0, 0};
  bool training = false;
  AuxLosses aux;

  /// The parameter as an operand; used twice, it gets both gradients added.
  Var use(Parameter parameter) {
    Var var{parameters.value(parameter), kNoNode};
    if (tape != nullptr) {
      if (const auto found = leaves_.find(parameter.index); found != leaves_.end()) {
        var.node = found->second;
      } else {
        var.node = tape->leaf(parameters.gradient(parameter));
        leaves_.emplace(parameter.index, var.node);
      }
    }
    return var;
  }

 private:
  std::map<int, NodeId> leaves_;
};

}  // namespace primal

#pragma once

#include <cmath>
#include <cstdint>

#include "core/context.h"
#include "core/error.h"

// What the op files share.

namespace primal::ops {

inline void expect_shape(std::string_view op, std::string_view operand, const Shape& expected,
                         const Shape& given) {
  if (!(expected == given)) {
    fail("[{}] {} must be {}, got {}", op, operand, expected.text(), given.text());
  }
}

inline void expect_rank(std::string_view op, std::string_view operand, int rank,
                        const Shape& given) {
  if (given.rank() != rank) {
    fail("[{}] {} must have {} dimensions, got {}", op, operand, rank, given.text());
  }
}

/// True when the op must record itself: some input needs a gradient.
template <class... Vars>
bool recording(const Context& ctx, const Vars&... inputs) {
  return ctx.tape != nullptr && (inputs.needs_gradient() || ...);
}

/// Calls f(slot) when `input` needs a gradient.
template <class F>
void with_slot(Tape& tape, const Var& input, F&& f) {
  if (input.needs_gradient()) f(tape.slot(input));
}

/// A var without its value: enough to deliver a gradient, and it keeps no memory alive.
inline Var node_of(const Var& var) {
  return {Tensor(), var.node};
}

/// The mask of the next dropout of this step, for `count` elements; keeps all in evaluation. A part
/// of a batch gets the whole batch's mask from where its examples begin, where an example's
/// elements are whole blocks of the mask.
inline Dropout next_dropout(Context& ctx, std::string_view op, double p, int64_t count) {
  if (!(p >= 0 && p < 1)) fail("[{}] dropout must be in [0, 1), got {}", op, p);
  Dropout dropout;
  if (!ctx.training || p == 0) return dropout;
  const MaskKey key = ctx.rng.next_mask();
  dropout.seed = key.seed;
  dropout.step = key.step;
  dropout.op = key.op;
  dropout.keep_below = static_cast<uint32_t>(std::lround((1 - p) * 65536));
  dropout.scale = static_cast<float>(1 / (1 - p));
  if (ctx.part.first > 0) {
    constexpr int64_t kBlock = 128;
    const int64_t blocks = (count / ctx.part.count + kBlock - 1) / kBlock;
    dropout.first = static_cast<uint64_t>(ctx.part.first * blocks);
  }
  return dropout;
}

}  // namespace primal::ops

#include <algorithm>
#include <numeric>

#include "core/op_support.h"
#include "core/ops.h"

namespace primal::ops {
namespace {

constexpr int64_t kPiece = 128;  // most positions that one thread of a GPU adds up

Tensor on_device(const Backend& be, const std::vector<int32_t>& values) {
  Tensor tensor = be.empty({std::ssize(values)}, DType::i32);
  be.op->upload_integers(be.exec, tensor.count(), values.data(), tensor.data<int32_t>());
  return tensor;
}

}  // namespace

Tokens::Tokens(const Backend& be, std::span<const int32_t> values, const Shape& s,
               int64_t vocabulary_size)
    : shape(s), vocabulary(vocabulary_size) {
  const auto n = std::ssize(values);
  if (n != s.count()) fail("[embedding] {} tokens do not fill {}", n, s.text());
  std::vector<int32_t> first(static_cast<size_t>(vocabulary) + 1, 0);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = values[static_cast<size_t>(i)];
    if (id < 0 || id >= vocabulary) {
      fail("[embedding] token {} is {}, the vocabulary has 0 to {}", i, id, vocabulary - 1);
    }
    ++first[static_cast<size_t>(id) + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());

  std::vector<int32_t> positions(static_cast<size_t>(n)), next(first.begin(), first.end() - 1);
  for (int64_t i = 0; i < n; ++i) {
    const auto id = static_cast<size_t>(values[static_cast<size_t>(i)]);
    positions[static_cast<size_t>(next[id]++)] = static_cast<int32_t>(i);
  }
  std::vector<int32_t> piece_starts, group_starts, groups;
  for (int64_t id = 0; id < vocabulary; ++id) {
    const int32_t begin = first[static_cast<size_t>(id)], end = first[static_cast<size_t>(id) + 1];
    if (begin == end) continue;
    groups.push_back(static_cast<int32_t>(id));
    group_starts.push_back(static_cast<int32_t>(piece_starts.size()));
    for (int64_t at = begin; at < end; at += kPiece) {
      piece_starts.push_back(static_cast<int32_t>(at));
    }
  }
  group_starts.push_back(static_cast<int32_t>(piece_starts.size()));
  piece_starts.push_back(static_cast<int32_t>(n));
  ids = on_device(be, {values.begin(), values.end()});
  order = on_device(be, positions);
  pieces = on_device(be, piece_starts);
  group_pieces = on_device(be, group_starts);
  group_ids = on_device(be, groups);
}

Var embedding(Context& ctx, const Var& table, const Tokens& tokens) {
  Backend& be = ctx.backend;
  expect_rank("embedding", "table", 2, table.shape());
  const int64_t width = table.shape()[1];
  expect_shape("embedding", "table", {tokens.vocabulary, width}, table.shape());
  std::vector<int64_t> sizes(tokens.shape.sizes().begin(), tokens.shape.sizes().end());
  sizes.push_back(width);
  Tensor y = be.empty(Shape(sizes));
  be.op->gather_rows(be.exec, 1, tokens.vocabulary, width, tokens.ids.count(),
                     tokens.ids.data<int32_t>(), table.value.data(), y.data());
  if (!recording(ctx, table)) return {y};
  // A row of the table gets the sum of the gradients at the positions of its token.
  return ctx.tape->record(
      std::move(y), [&be, table = node_of(table), tokens, width](Tape& tape, const Tensor& dy) {
        const GradientSlot g = tape.slot(table);
        if (!g.accumulate) be.op->fill(be.exec, g.tensor.count(), 0.0F, g.tensor.data());
        const TokenGroups groups{.groups = tokens.group_ids.count(),
                                 .pieces = tokens.pieces.count() - 1,
                                 .order = tokens.order.data<int32_t>(),
                                 .piece_starts = tokens.pieces.data<int32_t>(),
                                 .group_pieces = tokens.group_pieces.data<int32_t>(),
                                 .ids = tokens.group_ids.data<int32_t>()};
        be.op->embedding_backward(be.exec, groups, width, dy.data(), g.tensor.data());
      });
}

}  // namespace primal::ops

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace primal {

/// Two papers; the views are parts of the line.
struct PairRow {
  std::array<std::string_view, 2> ids;
  std::optional<std::array<std::string_view, 2>> texts;
  int32_t label = 0;  ///< 1: one cites the other
};

/// Reads the lines of a TSV file of pairs of papers: label, id1, id2 and, in some files, text1 and
/// text2. Only the last column may hold tabs.
class PairsReader {
 public:
  /// `name` of the file, for messages.
  explicit PairsReader(std::string name) : name_(std::move(name)) {}
  /// Line `number` (1, 2, ...) without its end; nothing for an empty line. Error names file and
  /// line.
  std::optional<PairRow> line(std::string_view line, int64_t number) const;

 private:
  std::string name_;
};

}  // namespace primal

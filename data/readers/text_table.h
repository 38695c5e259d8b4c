#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace primal {

struct TextRow {
  std::string_view text;  ///< part of the line
  int32_t label = 0;      ///< 0 negative, 1 positive
};

/// Reads the lines of a TSV file of labelled texts: `Source<TAB>Target` with that header, or
/// `label<TAB>text` with that header or none. A text may hold tabs.
class TextTableReader {
 public:
  /// `name` of the file, for messages.
  explicit TextTableReader(std::string name) : name_(std::move(name)) {}
  /// Line `number` (1, 2, ...) without its end; nothing for the header and for an empty line. Error
  /// names file and line.
  std::optional<TextRow> line(std::string_view line, int64_t number);

 private:
  std::string name_;
  bool text_first_ = false;
};

}  // namespace primal

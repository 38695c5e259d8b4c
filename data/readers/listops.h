#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace primal {

/// The symbols of ListOps expressions (Nangia and Bowman, 2018) in the order of their numbers. The
/// Long Range Arena's rows use the first fifteen.
inline constexpr std::array<std::string_view, 17> kListOpsSymbols{
    "0", "1",    "2",    "3",    "4",   "5", "6",      "7",    "8",
    "9", "[MIN", "[MAX", "[MED", "[SM", "]", "[FIRST", "[LAST"};

/// Numbers of the symbols of an expression; round parentheses, which only group, are left out.
/// Error (a word that is no symbol) begins with what was found.
std::vector<uint8_t> tokenize_listops(std::string_view expression);

/// Value of an expression, 0 to 9: MED is the whole part of the median, SM the sum modulo 10. Error
/// when brackets do not match or an operator has no arguments.
int evaluate_listops(std::span<const uint8_t> symbols);

struct ListOpsRow {
  std::vector<uint8_t> symbols;
  int32_t label = 0;
};

/// Reads the lines of a TSV file: `Source<TAB>Target` with that header, or `label<TAB>expression`
/// without. Every label is checked against the expression's value.
class ListOpsReader {
 public:
  /// `name` of the file, for messages.
  explicit ListOpsReader(std::string name) : name_(std::move(name)) {}
  /// Line `number` (1, 2, ...) without its end; nothing for the header and for an empty line. Error
  /// names file and line.
  std::optional<ListOpsRow> line(std::string_view text, int64_t number);

 private:
  std::string name_;
  bool source_first_ = false;
};

}  // namespace primal

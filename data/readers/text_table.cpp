#include "data/readers/text_table.h"

#include "core/error.h"
#include "data/readers/lines.h"

namespace primal {

std::optional<TextRow> TextTableReader::line(std::string_view line, int64_t number) {
  if (line.empty()) return {};
  if (number == 1 && (line == "Source\tTarget" || line == "label\ttext")) {
    text_first_ = line.front() == 'S';
    return {};
  }
  const size_t tab = text_first_ ? line.rfind('\t') : line.find('\t');
  std::string_view label = line.substr(0, tab);
  std::string_view text = tab == line.npos ? std::string_view() : line.substr(tab + 1);
  if (text_first_) std::swap(label, text);
  const TextRow row{text, binary_label(label)};
  if (tab == line.npos || row.label < 0 || text.empty()) {
    fail("lra: {}:{}: expected a label (0, 1, neg or pos) and a text with a tab between, found {}",
         name_, number, quote(line));
  }
  return row;
}

}  // namespace primal

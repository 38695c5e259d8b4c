#include "data/readers/pairs.h"

#include <vector>

#include "core/error.h"
#include "data/readers/lines.h"

namespace primal {

std::optional<PairRow> PairsReader::line(std::string_view line, int64_t number) const {
  if (line.empty()) return {};
  std::vector<std::string_view> columns;
  for (std::string_view rest = line;;) {
    const size_t tab = columns.size() == 4 ? rest.npos : rest.find('\t');
    columns.push_back(rest.substr(0, tab));
    if (tab == rest.npos) break;
    rest.remove_prefix(tab + 1);
  }
  PairRow row;
  row.label = binary_label(columns.front());
  if (row.label < 0 || (columns.size() != 3 && columns.size() != 5)) {
    fail(
        "lra: {}:{}: expected label, id1, id2 and, unless data.papers says where they are, text1 "
        "and text2, with tabs between, found {}",
        name_, number, quote(line));
  }
  row.ids = {columns[1], columns[2]};
  if (columns.size() == 5) row.texts = {columns[3], columns[4]};
  return row;
}

}  // namespace primal

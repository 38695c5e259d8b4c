#include "data/readers/pathfinder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "data/readers/lines.h"

namespace primal {
namespace {

using Picture = std::function<void(const std::string&, int32_t)>;

/// One row; `where` it stands.
void take_row(const std::vector<std::string>& columns, std::string_view where, const Picture& f) {
  const int32_t label = columns.size() < 4 ? -1 : binary_label(columns[3]);
  if (label < 0) {
    fail("lra: {}: expected folder, picture, index, label (0 or 1), ..., found {}", where,
         quote(fmt::format("{}", fmt::join(columns, " "))));
  }
  f((std::filesystem::path(columns[0]) / columns[1]).string(), label);
}

/// A NumPy array of texts (numpy.lib.format, versions 1 to 3).
struct TextArray {
  bool wide = false;  // four bytes to a character, else one
  bool columns_first = false;
  size_t characters = 0;  // of an element
  size_t rows = 1, columns = 0;
  std::string_view elements;

  std::string at(size_t row, size_t column) const {
    const size_t size = characters * (wide ? 4 : 1);
    const size_t index = columns_first ? column * rows + row : row * columns + column;
    const std::string_view element = elements.substr(index * size, size);
    std::string text;
    for (size_t i = 0; i < characters; ++i) {
      const std::string_view code = element.substr(i * (wide ? 4 : 1), wide ? 4 : 1);
      const bool ascii = (code[0] & 0x80) == 0 && code.find_first_not_of('\0', 1) == code.npos;
      text += ascii ? code[0] : '?';
    }
    text.resize(std::min(text.size(), text.find_last_not_of('\0') + 1));
    return text;
  }
};

/// What follows 'key': in the text of a Python dictionary, blanks skipped.
std::string_view value_of(std::string_view dictionary, std::string_view key) {
  const size_t at = dictionary.find(fmt::format("'{}':", key));
  if (at == dictionary.npos) return {};
  dictionary.remove_prefix(at + key.size() + 3);
  dictionary.remove_prefix(std::min(dictionary.find_first_not_of(' '), dictionary.size()));
  return dictionary;
}

/// The number at the start of a text, which it is taken from; 0 when there is none.
size_t take_number(std::string_view& text) {
  size_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  return parsed.ec == std::errc() ? value : 0;
}

TextArray parse_array(std::string_view bytes, std::string_view name) {
  const auto refuse = [&](std::string_view what) {
    fail("lra: {}: is a NumPy array {}; expected one of texts, (rows, columns), or lines of text",
         name, what);
  };
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(bytes[i])); };
  const size_t fixed = bytes.size() > 6 && byte(6) == 1 ? 10 : 12;
  if (bytes.size() < fixed) refuse("without a header");
  size_t length = byte(8) + 256 * byte(9);
  if (fixed == 12) length += (byte(10) << 16) + (byte(11) << 24);
  if (length > bytes.size() - fixed) refuse("whose header ends too early");
  const std::string_view header = bytes.substr(fixed, length);

  TextArray array;
  std::string_view type = value_of(header, "descr");
  const std::string_view shown = type.substr(0, std::min(type.find(','), type.size()));
  if (type.starts_with("'<U") || type.starts_with("'|S")) {
    array.wide = type[2] == 'U';
    type.remove_prefix(3);
    array.characters = take_number(type);
  }
  if (array.characters == 0) refuse(fmt::format("of type {}", quote(shown)));
  array.columns_first = value_of(header, "fortran_order").starts_with("True");
  std::string_view shape = value_of(header, "shape");
  const std::string_view whole = shape.substr(0, std::min(shape.find(')') + 1, shape.size()));
  std::vector<size_t> sizes;
  while (!shape.empty() && shape.front() != ')') {
    shape.remove_prefix(1);  // the bracket or a comma
    shape.remove_prefix(std::min(shape.find_first_not_of(' '), shape.size()));
    if (!shape.empty() && shape.front() != ')') sizes.push_back(take_number(shape));
  }
  array.elements = bytes.substr(fixed + length);
  // Each is bounded by the file's size before they are multiplied.
  const size_t available = array.elements.size();
  if (sizes.empty() || sizes.size() > 2 ||
      std::ranges::any_of(sizes, [&](size_t n) { return n == 0 || n > available; }) ||
      array.characters > available) {
    refuse(fmt::format("of shape {}", quote(whole)));
  }
  array.columns = sizes.back();
  if (sizes.size() == 2) array.rows = sizes.front();
  // By division, since a product might overflow.
  const size_t needed_columns = array.columns * array.characters * (array.wide ? 4 : 1);
  if (needed_columns > available || array.rows != available / needed_columns ||
      available % needed_columns != 0) {
    refuse(
        fmt::format("of shape {} whose {} bytes are too many or too few", quote(whole), available));
  }
  return array;
}

}  // namespace

void for_pathfinder_pictures(std::string_view bytes, std::string_view name, const Picture& f) {
  if (bytes.starts_with("\x93NUMPY")) {
    const TextArray array = parse_array(bytes, name);
    for (size_t row = 0; row < array.rows; ++row) {
      std::vector<std::string> columns;
      for (size_t i = 0; i < array.columns; ++i) columns.push_back(array.at(row, i));
      take_row(columns, fmt::format("{}: row {}", name, row), f);
    }
    return;
  }
  for_lines(bytes, [&](std::string_view line, int64_t number) {
    std::vector<std::string> columns;
    for (size_t at = 0; (at = line.find_first_not_of(' ', at)) != line.npos;) {
      const size_t end = std::min(line.find(' ', at), line.size());
      columns.emplace_back(line.substr(at, end - at));
      at = end;
    }
    if (!columns.empty()) take_row(columns, fmt::format("{}:{}", name, number), f);
  });
}

}  // namespace primal

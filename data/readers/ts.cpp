#include "data/readers/ts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"
#include "data/readers/lines.h"

namespace primal {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (text = trim(text); !text.empty(); text = trim(text)) {
    const auto end = std::find_if(text.begin(), text.end(), is_blank);
    const auto size = static_cast<size_t>(end - text.begin());
    out.push_back(as_utf8(text.substr(0, size)));
    text.remove_prefix(size);
  }
  return out;
}

// "equallength", "equal_length" and "EqualLength" are one tag, as are the
// plural and singular forms.
std::string canonical_tag(std::string_view tag) {
  std::string name = lower(tag);
  std::erase_if(name, [](char c) { return c == '_' || c == '-'; });
  constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
      {"problem", "problemname"},     {"timestamp", "timestamps"},   {"dimension", "dimensions"},
      {"numclasses", "classcount"},   {"classlabels", "classlabel"}, {"classes", "classlabel"},
      {"targetlabels", "targetlabel"}};
  for (const auto& [from, to] : kSynonyms) {
    if (name == from) return std::string(to);
  }
  return name;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : rest_(text) {
    file_.name = as_utf8(name);
    file_.checksum = hash_name(text);
    file_.ends_with_line = text.empty() || text.back() == '\n';
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
  }

  void refuse_other_text() const {
    if (trim(rest_).empty()) fail("uea: {}: the file is empty", file_.name);
    if (rest_.starts_with("\xFF\xFE") || rest_.starts_with("\xFE\xFF") ||
        rest_.substr(0, 2).find('\0') != rest_.npos) {
      fail("uea: {}: the text is UTF-16 or binary; save it as UTF-8", file_.name);
    }
    if (rest_.find('\n') == rest_.npos && rest_.find('\r') != rest_.npos) {
      fail("uea: {}: lines end in CR alone; they must end in LF or CR LF", file_.name);
    }
  }

  TimeSeriesFile parse() {
    refuse_other_text();
    parse_header();
    while (next_line()) {
      if (line_.empty() || is_comment()) continue;
      if (line_.front() == '@') error("tag {} among the rows after @data", quote(line_));
      parse_row();
    }
    if (file_.cases.empty()) error("no rows after @data");
    finish_labels();
    return std::move(file_);
  }

 private:
  template <class... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    fail("uea: {}:{}: {}", file_.name, line_number_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    file_.warnings.push_back(fmt::format("uea: {}:{}: {}", file_.name, line_number_,
                                         fmt::format(format, std::forward<Args>(args)...)));
  }

  // As warn, but once a file for each `said`.
  template <class... Args>
  void warn_once(bool& said, fmt::format_string<Args...> format, Args&&... args) {
    if (!said) warn(format, std::forward<Args>(args)...);
    said = true;
  }

  bool next_line() {
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = trim(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_number_;
    return true;
  }

  bool is_comment() const { return line_.front() == '#' || line_.front() == '%'; }

  void parse_header() {
    std::set<std::string> seen;
    while (next_line()) {
      if (line_.empty() || is_comment()) continue;
      if (line_.front() != '@') {
        error("expected a tag '@...', a comment or @data, found {}", quote(line_));
      }
      const std::string_view body = line_.substr(1);
      const size_t end = std::min(body.find_first_of(" \t:"), body.size());
      const std::string tag = canonical_tag(as_utf8(body.substr(0, end)));
      std::string_view value = body.substr(end);
      if (value.starts_with(':')) value.remove_prefix(1);
      value = trim(value);
      if (tag == "data") return;
      if (!seen.insert(tag).second) {
        warn("tag @{} appears again; the last one counts", tag);
      }
      read_tag(tag, value);
    }
    error("no @data line");
  }

  void read_tag(const std::string& tag, std::string_view value) {
    TsHeader& header = file_.header;
    if (tag == "problemname") {
      header.problem_name = as_utf8(value);
    } else if (tag == "timestamps") {
      header.time_stamps = hint_bool(tag, value);
    } else if (tag == "missing") {
      header.missing = hint_bool(tag, value);
    } else if (tag == "univariate") {
      header.univariate = hint_bool(tag, value);
    } else if (tag == "equallength") {
      header.equal_length = hint_bool(tag, value);
    } else if (tag == "dimensions") {
      header.dimensions = hint_integer(tag, value);
      dimensions_line_ = line_number_;
    } else if (tag == "serieslength") {
      header.series_length = hint_integer(tag, value);
      series_length_line_ = line_number_;
    } else if (tag == "classcount") {
      header.class_count = hint_integer(tag, value);
    } else if (tag == "classlabel") {
      read_class_label(value);
    } else if (tag == "targetlabel") {
      if (hint_bool(tag, value).value_or(true)) {
        error(
            "@targetlabel {}: a regression file; task uea classifies and "
            "needs @classLabel",
            value.empty() ? "true" : std::string(value));
      }
    } else if (tag == "attribute" || tag == "relation" || tag == "frequency" || tag == "horizon") {
      error("@{} belongs to .arff and .tsf files; task uea reads .ts", tag);
    } else {
      warn("tag {} is not known and is ignored", quote("@" + tag));
    }
  }

  std::optional<bool> hint_bool(const std::string& tag, std::string_view value) {
    const std::string word = lower(value);
    if (word == "true") return true;
    if (word == "false") return false;
    warn("@{} is {}, expected true or false; ignored", tag, quote(value));
    return std::nullopt;
  }

  std::optional<int64_t> hint_integer(const std::string& tag, std::string_view value) {
    int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    if (code == std::errc() && stop == end) return number;
    warn("@{} is {}, expected a whole number; ignored", tag, quote(value));
    return std::nullopt;
  }

  void read_class_label(std::string_view value) {
    std::vector<std::string> list = words(value);
    const std::string first = list.empty() ? "true" : lower(list.front());
    if (first == "false") {
      error(
          "@classLabel false: the file has no labels, and task uea needs one "
          "in every row");
    }
    if (first == "true" && !list.empty()) list.erase(list.begin());
    // One whole number is a count ("@classLabel true 9"): a set with a single
    // class makes no sense.
    if (list.size() == 1) {
      int64_t count = 0;
      const char* end = list[0].data() + list[0].size();
      if (std::from_chars(list[0].data(), end, count).ptr == end) {
        file_.header.class_count = count;
        list.clear();
      }
    }
    file_.header.class_labels = std::move(list);
  }

  void parse_row() {
    values_.clear();
    lengths_.clear();
    if (file_.cases.empty()) {
      tuples_ = line_.front() == '(';
      if (tuples_)
        warn(
            "time stamps are dropped: values count as evenly spaced, in file "
            "order");
      if (!tuples_ && file_.header.time_stamps.value_or(false)) {
        warn(
            "@timeStamps is true but the rows hold plain values; the rows "
            "decide");
      }
    }
    TimeSeriesCase row;
    row.line = line_number_;
    row.label = as_utf8(tuples_ ? parse_tuple_channels() : parse_plain_channels());
    check_shape();
    const int64_t length = lengths_[0], channels = file_.channels;
    row.length = length;
    row.values.resize(values_.size());
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < length; ++t) {
        row.values[static_cast<size_t>(t * channels + c)] =
            values_[static_cast<size_t>(c * length + t)];
      }
    }
    file_.cases.push_back(std::move(row));
  }

  // "v,v,v:v,v,v:label": appends each channel to values_ and lengths_, returns
  // the label.
  std::string_view parse_plain_channels() {
    std::string_view rest = line_;
    for (size_t colon = rest.find(':'); colon != rest.npos; colon = rest.find(':')) {
      std::string_view channel = rest.substr(0, colon);
      const size_t before = values_.size();
      for (bool more = true; more;) {
        const size_t comma = channel.find(',');
        more = comma != channel.npos;
        add_value(channel.substr(0, comma), before);
        if (more) channel.remove_prefix(comma + 1);
      }
      lengths_.push_back(static_cast<int64_t>(values_.size() - before));
      rest.remove_prefix(colon + 1);
    }
    return check_label(rest);
  }

  // "(time,v),(time,v):(time,v),(time,v):label". A time may hold ':', blanks
  // and commas; the value stands after the last comma inside the brackets.
  std::string_view parse_tuple_channels() {
    std::string_view rest = line_;
    while (rest.starts_with('(')) {
      const size_t before = values_.size();
      for (bool more = true; more;) {
        if (!rest.starts_with('(')) error("expected '(time,value)', found {}", quote(rest));
        const size_t close = rest.find(')');
        if (close == rest.npos) error("no ')' after {} (is the file truncated?)", quote(rest));
        const std::string_view tuple = rest.substr(1, close - 1);
        const size_t comma = tuple.rfind(',');
        if (comma == tuple.npos) {
          error("expected '(time,value)', found {}", quote(rest.substr(0, close + 1)));
        }
        add_value(tuple.substr(comma + 1), before);
        rest = trim(rest.substr(close + 1));
        more = rest.starts_with(',');
        if (more) rest = trim(rest.substr(1));
      }
      lengths_.push_back(static_cast<int64_t>(values_.size() - before));
      if (!rest.starts_with(':')) {
        if (rest.empty()) no_label();
        error("expected ',' or ':' after ')', found {}", quote(rest));
      }
      rest = trim(rest.substr(1));
    }
    if (rest.find(':') != rest.npos || lengths_.empty()) {
      error("expected '(time,value)', found {}", quote(rest));
    }
    return check_label(rest);
  }

  [[noreturn]] void no_label() const {
    error("no class label at the end of the row (is the file truncated?)");
  }

  std::string_view check_label(std::string_view label) const {
    label = trim(label);
    if (lengths_.empty() || label.empty() || label.find(',') != label.npos) no_label();
    return label;
  }

  void add_value(std::string_view cell, size_t channel_begin) {
    cell = trim(cell);
    const auto place = [&] {
      return fmt::format("case {}, channel {}, value {}", file_.cases.size() + 1,
                         lengths_.size() + 1, values_.size() - channel_begin + 1);
    };
    if (cell.empty()) error("{} is empty", place());
    if (cell == "?" || (cell.size() == 3 && lower(cell) == "nan")) {
      if (file_.header.missing.has_value() && !*file_.header.missing) {
        warn_once(said_missing_, "{} is missing ({}) but @missing is false; the rows decide",
                  place(), cell);
      }
      ++file_.missing_cells;
      values_.push_back(std::numeric_limits<float>::quiet_NaN());
      return;
    }
    std::string_view digits = cell;
    if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
    const char* end = digits.data() + digits.size();
    float value = 0;
    auto [stop, code] = std::from_chars(digits.data(), end, value);
    if (code == std::errc::result_out_of_range && stop == end) {
      // Underflow is a zero; only overflow is wrong. long double tells them
      // apart.
      long double wide = 0;
      code = std::from_chars(digits.data(), end, wide).ec;
      value = static_cast<float>(wide);
      if (code != std::errc() || !std::isfinite(value)) {
        error("{} is out of the range of 32-bit floats: {}", place(), quote(cell));
      }
    }
    if (code != std::errc() || stop != end || std::isnan(value)) {
      error("{} is not a number: {}", place(), quote(cell));
    }
    if (!std::isfinite(value)) error("{} is infinite: {}", place(), quote(cell));
    values_.push_back(value);
  }

  // Channels of this row against each other, against the rows before and
  // against the header.
  void check_shape() {
    const auto channels = static_cast<int64_t>(lengths_.size());
    const TsHeader& header = file_.header;
    if (file_.cases.empty()) {
      file_.channels = channels;
      if (header.dimensions && *header.dimensions != channels) {
        warn("{} channels, but @dimensions (line {}) says {}; the rows decide", channels,
             dimensions_line_, *header.dimensions);
      } else if (header.univariate && *header.univariate && channels != 1) {
        warn(
            "{} channels, but @univariate is true, which means 1; the rows "
            "decide",
            channels);
      }
    } else if (channels != file_.channels) {
      error("{} channels, expected {}", channels, file_.channels);
    }
    for (int64_t c = 1; c < channels; ++c) {
      if (lengths_[static_cast<size_t>(c)] != lengths_[0]) {
        error("case {}: channel {} has {} values, channel 1 has {}", file_.cases.size() + 1, c + 1,
              lengths_[static_cast<size_t>(c)], lengths_[0]);
      }
    }
    if (!header.equal_length.value_or(header.series_length.has_value())) return;
    if (header.series_length && *header.series_length != lengths_[0]) {
      warn_once(said_length_,
                "length {}, but @seriesLength (line {}) says {} for every "
                "case; the rows decide",
                lengths_[0], series_length_line_, *header.series_length);
    } else if (!file_.cases.empty() && file_.cases[0].length != lengths_[0]) {
      warn_once(said_length_,
                "length {}, but @equalLength is true and the first case has "
                "length {}; "
                "the rows decide",
                lengths_[0], file_.cases[0].length);
    }
  }

  void finish_labels() {
    std::vector<std::string> known = file_.header.class_labels;
    std::sort(known.begin(), known.end());
    for (const TimeSeriesCase& row : file_.cases) {
      if (!known.empty() && !std::binary_search(known.begin(), known.end(), row.label)) {
        line_number_ = row.line;
        error("label {} is not in the @classLabel list: {}", quote(row.label), list_names(known));
      }
      file_.labels.push_back(row.label);
    }
    std::sort(file_.labels.begin(), file_.labels.end());
    file_.labels.erase(std::unique(file_.labels.begin(), file_.labels.end()), file_.labels.end());
    const auto count = static_cast<int64_t>(file_.labels.size());
    if (file_.header.class_count && *file_.header.class_count != count) {
      warn("the header announces {} classes, the rows have {}; the rows decide",
           *file_.header.class_count, count);
    }
  }

  TimeSeriesFile file_;
  std::string_view rest_;
  std::string_view line_;
  int64_t line_number_ = 0;
  int64_t dimensions_line_ = 0;
  int64_t series_length_line_ = 0;
  bool tuples_ = false;
  bool said_missing_ = false;
  bool said_length_ = false;
  std::vector<float> values_;     // of the current row, channel after channel
  std::vector<int64_t> lengths_;  // of its channels
};

std::string read_bytes(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    if (const fs::path packed = packed_form(path); !packed.empty()) {
      fail("uea: {}: no such file, only {}; unpack it first", path.string(),
           packed.filename().string());
    }
    fail("uea: {}: no such file", path.string());
  }
  if (fs::is_directory(path, ignored)) fail("uea: {}: a folder, expected a file", path.string());
  try {
    return read_text_file(path);
  } catch (const Error& error) {
    fail("uea: {}", error.what());
  }
}

}  // namespace

TimeSeriesFile read_ts(const std::filesystem::path& path) {
  return parse_ts(read_bytes(path), path.filename().string());
}

TimeSeriesFile parse_ts(std::string_view text, std::string_view name) {
  return Parser(text, name).parse();
}

std::filesystem::path packed_form(const std::filesystem::path& path) {
  for (const char* ending : {".gz", ".xz", ".bz2", ".zip"}) {
    std::filesystem::path packed = path;
    packed += ending;
    std::error_code ignored;
    if (std::filesystem::exists(packed, ignored)) return packed;
  }
  return {};
}

std::string as_utf8(std::string_view text) {
  // Lead bytes say how many continuation bytes (10xxxxxx) follow.
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  bool valid = true;
  for (size_t i = 0; i < text.size() && valid;) {
    const unsigned char lead = byte(i++);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xc2 && lead < 0xe0 ? 1
                     : lead >= 0xe0 && lead < 0xf0 ? 2
                     : lead >= 0xf0 && lead < 0xf5 ? 3
                                                   : -1;
    valid = more >= 0;
    // Overlong forms, surrogates and code points past U+10FFFF show in the second byte.
    if (valid && more > 0 && i < text.size()) {
      const unsigned char second = byte(i);
      valid = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second >= 0xa0) &&
              !(lead == 0xf0 && second < 0x90) && !(lead == 0xf4 && second >= 0x90);
    }
    for (int k = 0; k < more && valid; ++k) valid = i < text.size() && (byte(i++) & 0xc0) == 0x80;
  }
  if (valid) return std::string(text);
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xc0 | (code >> 6));
      out += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return out;
}

std::string list_names(const std::vector<std::string>& names, size_t limit) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), limit); ++i) {
    out += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > limit) out += fmt::format(", ... ({} in all)", names.size());
  return out;
}

}  // namespace primal

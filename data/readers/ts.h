#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace primal {

/// What the tags before @data claim. Published headers are often wrong, so they
/// are hints: the rows decide, and each disagreement is a warning.
struct TsHeader {
  std::string problem_name;
  std::optional<bool> time_stamps, missing, univariate, equal_length;
  std::optional<int64_t> dimensions, series_length, class_count;
  /// The list after `@classLabel true`, in the header's order; empty when the
  /// header has none.
  std::vector<std::string> class_labels;
};

/// One series: `values` is (length, channels) row-major, NaN where the file has
/// no value.
struct TimeSeriesCase {
  int64_t length = 0;
  std::vector<float> values;
  std::string label;
  int64_t line = 0;  // in the file, counted from 1
};

/// A `.ts` file as it stands on disk.
struct TimeSeriesFile {
  std::string name;  // display name that stands in front of errors and warnings
  TsHeader header;
  int64_t channels = 0;
  std::vector<TimeSeriesCase> cases;
  std::vector<std::string> labels;  // distinct labels of the rows, sorted as byte strings
  int64_t missing_cells = 0;
  uint64_t checksum = 0;       // 64-bit FNV-1a over the bytes of the file
  bool ends_with_line = true;  // false: the last line has no line end
  std::vector<std::string> warnings;
};

/// Reads a UEA / UCR `.ts` classification file. Docs: docs/uea.md. Throws Error
/// naming file and line for anything that cannot be taken: no @data, a row
/// without a label, channels of unequal length in one case, a number of
/// channels that changes, an empty, infinite or non-numeric value, a label that
/// @classLabel does not list, a regression file.
TimeSeriesFile read_ts(const std::filesystem::path& path);

/// The same from memory; `name` is used in messages.
TimeSeriesFile parse_ts(std::string_view text, std::string_view name);

/// `path` with .gz, .xz, .bz2 or .zip behind it, whichever exists; empty if none does.
std::filesystem::path packed_form(const std::filesystem::path& path);

/// `text` itself if it is UTF-8, else taken as Latin-1, so that labels and messages fit into JSON.
std::string as_utf8(std::string_view text);

/// "a, b, c" for messages, cut after `limit` names.
std::string list_names(const std::vector<std::string>& names, size_t limit = 30);

}  // namespace primal

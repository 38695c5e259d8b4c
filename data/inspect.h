#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/readers/ts.h"

namespace primal {

/// Facts of one file: file, checksum, cases, channels, length {min, median, max}, missing_cells,
/// classes [{id, label, cases}] by id, header (claims as written), ends_with_line, warnings.
nlohmann::json summarize(const TimeSeriesFile& file);

/// Facts of a `.ts` file, or of every `.ts` file in a data-set folder (or one folder deeper):
/// {"files": [...]}. In a folder, a file that cannot be read gives {"file", "error"} in its place.
/// Throws if there is no `.ts` file, or if the one that is named cannot be read.
nlohmann::json inspect_ts(const std::filesystem::path& path);

/// inspect_ts's result for people, lines ending in '\n'.
std::string render_inspection(const nlohmann::json& inspection);

/// How a checksum is written: 16 hexadecimal digits.
std::string checksum_text(uint64_t checksum);

}  // namespace primal

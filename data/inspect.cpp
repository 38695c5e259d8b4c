#include "data/inspect.h"

#include <algorithm>
#include <map>
#include <system_error>

#include "core/error.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

// TRAIN before TEST, data sets by name.
std::vector<fs::path> ts_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    std::error_code no_status;
    if (it->path().extension() == ".ts" && it->is_regular_file(no_status)) {
      files.push_back(it->path());
    }
  }
  const auto key = [](const fs::path& path) {
    const std::string stem = path.stem().string();
    const bool test = stem.ends_with("_TEST");
    return std::pair(test ? stem.substr(0, stem.size() - 5) + "_TRAIN" : stem, test);
  };
  std::sort(files.begin(), files.end(),
            [&](const fs::path& a, const fs::path& b) { return key(a) < key(b); });
  return files;
}

std::vector<fs::path> ts_files_below(const fs::path& folder) {
  std::vector<fs::path> files = ts_files_in(folder);
  if (!files.empty()) return files;
  std::vector<fs::path> folders;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    folders.push_back(it->path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& inner : folders) {
    const std::vector<fs::path> more = ts_files_in(inner);
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

template <class T>
void put(nlohmann::json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

std::string render_file(const nlohmann::json& facts) {
  std::string out = facts.at("file").get<std::string>() + "\n";
  if (facts.contains("error"))
    return out + fmt::format("  error: {}\n", facts.at("error").get<std::string>());
  const nlohmann::json& length = facts.at("length");
  const auto line = [&](std::string_view key, const std::string& value) {
    out += fmt::format("  {:<10} {}\n", key, value);
  };
  line("cases", facts.at("cases").dump());
  line("channels", facts.at("channels").dump());
  line("length", fmt::format("{} min, {} median, {} max", length.at("min").dump(),
                             length.at("median").dump(), length.at("max").dump()));
  line("missing", fmt::format("{} cells", facts.at("missing_cells").dump()));
  line("classes", "id, label, cases");
  for (const nlohmann::json& row : facts.at("classes")) {
    out += fmt::format("  {:>12}  {}  {}\n", row.at("id").dump(),
                       row.at("label").get<std::string>(), row.at("cases").dump());
  }
  std::string header;
  for (const auto& [key, value] : facts.at("header").items()) {
    header += fmt::format("{}{} {}", header.empty() ? "" : ", ", key,
                          value.is_string() ? value.get<std::string>() : value.dump());
  }
  line("header", header);
  line("last line", facts.at("ends_with_line").get<bool>()
                        ? "complete"
                        : "has no line end; the file may be truncated");
  line("checksum", facts.at("checksum").get<std::string>() + " (FNV-1a, 64 bits)");
  for (const nlohmann::json& warning : facts.at("warnings"))
    line("warning", warning.get<std::string>());
  return out;
}

}  // namespace

std::string checksum_text(uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

nlohmann::json summarize(const TimeSeriesFile& file) {
  std::vector<int64_t> lengths;
  std::map<std::string, int64_t> counts;
  for (const TimeSeriesCase& row : file.cases) {
    lengths.push_back(row.length);
    ++counts[row.label];
  }
  std::sort(lengths.begin(), lengths.end());
  const size_t n = lengths.size();
  const double median = 0.5 * static_cast<double>(lengths[(n - 1) / 2] + lengths[n / 2]);

  const TsHeader& claims = file.header;
  nlohmann::json header = nlohmann::json::object();
  if (!claims.problem_name.empty()) header["problem_name"] = claims.problem_name;
  put(header, "time_stamps", claims.time_stamps);
  put(header, "missing", claims.missing);
  put(header, "univariate", claims.univariate);
  put(header, "dimensions", claims.dimensions);
  put(header, "equal_length", claims.equal_length);
  put(header, "series_length", claims.series_length);
  put(header, "class_count", claims.class_count);

  nlohmann::json classes = nlohmann::json::array();
  for (const auto& [label, cases] : counts) {
    classes.push_back({{"id", classes.size()}, {"label", label}, {"cases", cases}});
  }
  return {{"file", file.name},
          {"checksum", checksum_text(file.checksum)},
          {"cases", n},
          {"channels", file.channels},
          {"length", {{"min", lengths.front()}, {"median", median}, {"max", lengths.back()}}},
          {"missing_cells", file.missing_cells},
          {"classes", classes},
          {"header", header},
          {"ends_with_line", file.ends_with_line},
          {"warnings", file.warnings}};
}

nlohmann::json inspect_ts(const fs::path& path) {
  nlohmann::json facts = nlohmann::json::array();
  std::error_code code;
  if (!fs::is_directory(path, code)) {
    facts.push_back(summarize(read_ts(path)));
    return {{"files", facts}};
  }
  const std::vector<fs::path> files = ts_files_below(path);
  if (files.empty()) {
    fail("uea: {}: no .ts file in it or one folder deeper; --task says what else the folder holds",
         path.string());
  }
  for (const fs::path& file : files) {
    try {
      facts.push_back(summarize(read_ts(file)));
    } catch (const Error& error) {
      facts.push_back(
          {{"file", as_utf8(file.filename().string())}, {"error", as_utf8(error.what())}});
    }
  }
  return {{"files", facts}};
}

std::string render_inspection(const nlohmann::json& inspection) {
  std::string out;
  for (const nlohmann::json& facts : inspection.at("files")) out += render_file(facts);
  return out;
}

}  // namespace primal

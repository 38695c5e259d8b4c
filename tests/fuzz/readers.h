#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "core/safetensors.h"
#include "data/readers/lines.h"
#include "data/readers/listops.h"
#include "data/readers/ts.h"

/// What the fuzz targets and the test of their seeds do with an input. Each function gives any
/// bytes to one reader and returns whether it accepted them. The reader may refuse with an Error;
/// anything else that escapes, or a std::logic_error from here, is a defect of the reader.
namespace primal::fuzz {

struct Attention {
  virtual ~Attention() = default;
  virtual void fields(Fields& f) = 0;
  virtual std::string_view kind() const = 0;
};

struct Canonical : Attention {
  void fields(Fields&) override {}
  std::string_view kind() const override { return "canonical"; }
};

struct Primal : Attention {
  int64_t rank = 20;
  bool right_only = false;
  void fields(Fields& f) override {
    f.field("rank", rank, at_least(1), "singular vectors");
    f.field("right_only", right_only, "one score");
  }
  std::string_view kind() const override { return "primal"; }
};

inline constexpr Kind<Attention> kAttentions[] = {
    {"canonical", "softmax",
     []() -> std::unique_ptr<Attention> { return std::make_unique<Canonical>(); }},
    {"primal", "low rank",
     []() -> std::unique_ptr<Attention> { return std::make_unique<Primal>(); }},
};

struct Layer {
  std::unique_ptr<Attention> attention = std::make_unique<Canonical>();
  double dropout = 0.1;
  void fields(Fields& f) {
    f.variant("attention", attention, std::span<const Kind<Attention>>(kAttentions), "kind");
    f.field("dropout", dropout, half_open(0, 1), "share of zeroed values");
  }
};

struct Data {
  std::string root = "data";
  bool paper = true;
  void fields(Fields& f) {
    f.field("root", root, "folder");
    f.choice("protocol", paper, {{"paper", true}, {"validation", false}}, "how results are chosen");
  }
};

/// A record with every kind of field that a configuration can have.
struct Recipe {
  int64_t seed = 1;
  Data data;
  std::vector<Layer> layers;
  void fields(Fields& f) {
    f.field("seed", seed, at_least(0), "of the random generator");
    f.section("data", data, "what to read");
    f.list("layers", layers, "one map per layer");
  }
};

/// YAML; a comment line '#--set key=value' is an override, as on the command line.
inline bool accepts_config(std::string_view text) {
  std::vector<std::string> overrides;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::string_view mark = "#--set ";
    if (line.starts_with(mark)) overrides.push_back(line.substr(mark.size()));
  }
  Recipe recipe;
  try {
    read_config(ConfigSource::from_string(text, "input.yaml", overrides), recipe);
  } catch (const Error&) {
    return false;
  }
  const std::string printed = print_config(recipe);
  Recipe again;
  try {
    read_config(ConfigSource::from_string(printed, "printed.yaml"), again);
  } catch (const Error& error) {
    throw std::logic_error("what print_config wrote is refused: " + std::string(error.what()));
  }
  if (print_config(again) != printed) throw std::logic_error("print_config is not stable");
  return true;
}

inline bool accepts_safetensors(std::string_view bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  SafetensorsFile file;
  try {
    file = SafetensorsFile::parse({view.begin(), view.end()}, "input");
  } catch (const Error&) {
    return false;
  }
  for (const StoredTensor& tensor : file.tensors()) {
    // Each conversion refuses the types that are not its own.
    try {
      file.floats(tensor.name);
    } catch (const Error&) {
    }
    try {
      file.integers(tensor.name);
    } catch (const Error&) {
    }
  }
  try {
    const auto encoded = encode_safetensors(file.tensors(), file.metadata(), "written");
    std::vector<std::byte> written;
    for (const auto& part : encoded.parts) written.insert(written.end(), part.begin(), part.end());
    const auto again = SafetensorsFile::parse(std::move(written), "written");
    if (again.metadata() != file.metadata()) throw std::logic_error("other metadata");
    for (const StoredTensor& tensor : file.tensors()) {
      const StoredTensor& other = again.at(tensor.name);
      if (other.dtype != tensor.dtype || other.shape != tensor.shape ||
          !std::equal(tensor.data, tensor.data + tensor.bytes, other.data,
                      other.data + other.bytes)) {
        throw std::logic_error("another tensor was read from what was written: " + tensor.name);
      }
    }
  } catch (const Error& error) {
    throw std::logic_error("what was read cannot be written and read: " +
                           std::string(error.what()));
  }
  return true;
}

inline bool accepts_ts(std::string_view text) {
  TimeSeriesFile file;
  try {
    file = parse_ts(text, "input.ts");
  } catch (const Error&) {
    return false;
  }
  for (const TimeSeriesCase& one : file.cases) {
    const auto cells = static_cast<size_t>(one.length * file.channels);
    if (one.length < 1 || one.values.size() != cells || one.label.empty()) {
      throw std::logic_error("a case is not whole");
    }
    for (const float value : one.values) {
      if (std::isinf(value)) throw std::logic_error("an infinite value was let through");
    }
  }
  return true;
}

/// Lines of a ListOps table.
inline bool accepts_listops(std::string_view text) {
  ListOpsReader reader("input.tsv");
  bool whole = true;
  for_lines(text, [&](std::string_view line, int64_t number) {
    std::optional<ListOpsRow> row;
    try {
      row = reader.line(line, number);
    } catch (const Error&) {
      whole = false;
    }
    if (!row) return;
    std::string again;
    for (const uint8_t symbol : row->symbols) {
      again += std::string(kListOpsSymbols.at(symbol)) + " ";
    }
    if (tokenize_listops(again) != row->symbols || evaluate_listops(row->symbols) != row->label) {
      throw std::logic_error("a row is not what its symbols say");
    }
  });
  return whole;
}

}  // namespace primal::fuzz

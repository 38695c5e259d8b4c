#pragma once

#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "data/readers/cifar.h"
#include "data/readers/lines.h"
#include "data/readers/listops.h"
#include "data/readers/pairs.h"
#include "data/readers/pathfinder.h"
#include "data/readers/png.h"
#include "data/readers/text_table.h"
#include "data/readers/ts.h"
#include "data/token_store.h"

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

/// An Error's message must be one printable line that begins with where it was found.
inline void check_message(const Error& error, std::string_view where) {
  const std::string_view message = error.what();
  if (!message.starts_with(where) ||
      !std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; })) {
    throw std::logic_error("not a message: " + std::string(message));
  }
}

/// A line's row; nothing, and `whole` becomes false, where the reader refuses it.
template <class Reader>
auto row_of(Reader& reader, std::string_view line, int64_t number, bool& whole)
    -> decltype(reader.line(line, number)) {
  try {
    return reader.line(line, number);
  } catch (const Error& error) {
    check_message(error, fmt::format("lra: input.tsv:{}: ", number));
    whole = false;
    return {};
  }
}

/// Lines of a table of labelled texts.
inline bool accepts_text(std::string_view table) {
  TextTableReader reader("input.tsv");
  TextTableReader label_first("label_first");
  TextTableReader text_first("text_first");
  text_first.line("Source\tTarget", 1);
  bool whole = true;
  for_lines(table, [&](std::string_view line, int64_t number) {
    const auto row = row_of(reader, line, number, whole);
    if (!row) return;
    const auto same = [&](const std::optional<TextRow>& again) {
      return again && again->text == row->text && again->label == row->label;
    };
    if (!same(label_first.line(fmt::format("{}\t{}", row->label, row->text), 2)) ||
        !same(text_first.line(fmt::format("{}\t{}", row->text, row->label), 2))) {
      throw std::logic_error("another row was read from what was written");
    }
  });
  return whole;
}

/// Lines of a table of pairs.
inline bool accepts_pairs(std::string_view table) {
  const PairsReader reader("input.tsv");
  bool whole = true;
  for_lines(table, [&](std::string_view line, int64_t number) {
    const auto row = row_of(reader, line, number, whole);
    if (!row) return;
    std::string written = fmt::format("{}\t{}\t{}", row->label, row->ids[0], row->ids[1]);
    if (row->texts) written += fmt::format("\t{}\t{}", (*row->texts)[0], (*row->texts)[1]);
    const auto again = reader.line(written, 1);
    if (!again || again->ids != row->ids || again->texts != row->texts ||
        again->label != row->label) {
      throw std::logic_error("another row was read from what was written");
    }
  });
  return whole;
}

inline bool accepts_cifar(std::string_view bytes) {
  constexpr size_t kPixels = 1024;
  size_t at = 0;
  try {
    for_cifar_pictures(bytes, "input.bin", [&](std::string_view pixels, int32_t label) {
      if (label != bytes.at(at) || label > 9 || pixels.size() != kPixels) {
        throw std::logic_error("a picture is not whole");
      }
      for (size_t i = 0; i < kPixels; ++i) {
        std::array<uint8_t, 3> color{};
        for (size_t c = 0; c < 3; ++c) {
          color[c] = static_cast<uint8_t>(bytes.at(at + 1 + c * kPixels + i));
        }
        const auto [darkest, brightest] = std::ranges::minmax(color);
        const auto value = static_cast<uint8_t>(pixels[i]);
        if (value < darkest || value > brightest) {
          throw std::logic_error("a grey value is outside of its colours");
        }
      }
      at += 1 + 3 * kPixels;
    });
  } catch (const Error& error) {
    check_message(error, "lra: input.bin: ");
    return false;
  }
  if (at != bytes.size()) throw std::logic_error("pictures are left over");
  return true;
}

/// The bytes of a PNG file with the right checksum behind each chunk.
inline std::string with_chunk_checksums(std::string_view bytes) {
  std::string out(bytes);
  for (size_t at = 8; at + 12 <= out.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(out[at + i]);
    if (length > out.size() - at - 12) break;
    const size_t end = at + 8 + length;
    const uint32_t checksum = crc32(bytes_of(out).subspan(at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) out[end + i] = static_cast<char>(checksum >> (24 - 8 * i));
    at = end + 4;
  }
  return out;
}

inline bool accepts_one_png(std::string_view bytes) {
  GrayImage image;
  try {
    image = parse_gray_png(bytes_of(bytes), "input.png");
  } catch (const Error& error) {
    check_message(error, "input.png: not a readable PNG picture: ");
    return false;
  }
  if (image.width < 1 || image.height < 1 ||
      std::ssize(image.pixels) != image.width * image.height) {
    throw std::logic_error("a picture is not whole");
  }
  if (image.pixels.size() > size_t{1} << 16) return true;
  png_image as{};
  as.version = PNG_IMAGE_VERSION;
  as.width = static_cast<png_uint_32>(image.width);
  as.height = static_cast<png_uint_32>(image.height);
  as.format = PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(as);
  std::vector<std::byte> written(size);
  if (png_image_write_to_memory(&as, written.data(), &size, 0, image.pixels.data(), 0, nullptr) ==
      0) {
    throw std::logic_error("what was read cannot be written");
  }
  if (parse_gray_png(std::span(written).first(size), "written.png").pixels != image.pixels) {
    throw std::logic_error("another picture was read from what was written");
  }
  return true;
}

/// A PNG file, and the same with the checksums that mutations break.
inline bool accepts_png(std::string_view bytes) {
  const bool accepted = accepts_one_png(bytes);
  if (!accepted) accepts_one_png(with_chunk_checksums(bytes));
  return accepted;
}

/// The bytes of a token file with the right checksum, if its trailer has a place for it.
inline std::string with_token_checksum(std::string_view file) {
  constexpr size_t kTrailer = 6 * sizeof(uint64_t);
  std::string out(file);
  if (out.size() < kTrailer) return out;
  const size_t total = out.size() - kTrailer;
  const uint64_t checksum = crc32(bytes_of(out).first(total));
  std::memcpy(out.data() + total + 4 * sizeof(uint64_t), &checksum, sizeof checksum);
  return out;
}

inline bool accepts_one_token_file(std::string_view bytes) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path shared_memory = "/dev/shm";
  const fs::path folder =
      fs::is_directory(shared_memory, none) ? shared_memory : fs::temp_directory_path();
  struct Removed {
    fs::path path;
    ~Removed() { fs::remove(path); }
  };
  const auto file = [&](const char* name) {
    return Removed{folder / fmt::format("primal-{}-{}.tokens", name, ::getpid())};
  };
  const Removed input = file("input");
  std::ofstream(input.path, std::ios::binary) << bytes;
  const std::optional<TokenStore> store = TokenStore::open(input.path);
  if (!store) return false;
  if (store->size() < 1 || store->parts() < 1 || !store->facts().is_object() ||
      store->size() > std::ssize(bytes) || store->parts() > std::ssize(bytes)) {
    throw std::logic_error("a store is not whole");
  }
  const Removed written = file("written");
  TokenWriter writer(store->parts(), written.path);
  std::vector<uint8_t> sequence;
  size_t at = 0;
  for (int64_t i = 0; i < store->size(); ++i) {
    for (int64_t part = 0; part < store->parts(); ++part) {
      const int64_t length = store->length(i, part);
      if (length < 0 || length > std::ssize(bytes)) throw std::logic_error("a length is wrong");
      sequence.resize(static_cast<size_t>(length));
      store->read(i, part, sequence);
      if (!std::ranges::equal(std::as_bytes(std::span(sequence)),
                              bytes_of(bytes.substr(at, sequence.size())))) {
        throw std::logic_error("a sequence is not what stands in the file");
      }
      at += sequence.size();
      writer.add(sequence);
    }
    writer.label(store->label(i));
  }
  const TokenStore again = writer.finish(nlohmann::json::object());
  bool same = again.size() == store->size() && again.parts() == store->parts();
  for (int64_t i = 0; same && i < store->size(); ++i) {
    same = again.label(i) == store->label(i);
    for (int64_t part = 0; part < store->parts(); ++part) {
      same = same && again.length(i, part) == store->length(i, part);
    }
  }
  if (!same) throw std::logic_error("another store was read from what was written");
  return true;
}

/// A token file, and the same with the checksum that mutations break.
inline bool accepts_tokens(std::string_view bytes) {
  const bool accepted = accepts_one_token_file(bytes);
  if (!accepted) accepts_one_token_file(with_token_checksum(bytes));
  return accepted;
}

/// A list of Pathfinder pictures.
inline bool accepts_pathfinder(std::string_view bytes) {
  size_t pictures = 0;
  try {
    for_pathfinder_pictures(bytes, "0.npy", [&](const std::string&, int32_t label) {
      if (label != 0 && label != 1) throw std::logic_error("a label that is none");
      ++pictures;
    });
  } catch (const Error& error) {
    check_message(error, "lra: 0.npy:");
    return false;
  }
  // A picture takes four columns of at least one byte each.
  if (pictures * 4 > bytes.size()) throw std::logic_error("more pictures than bytes");
  return true;
}

}  // namespace primal::fuzz

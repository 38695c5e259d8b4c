#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"

namespace primal {

/// Labelled byte sequences, `parts` of them to an example (two for pairs of documents). The bytes
/// stay in a file, from which those of an example are read when they are asked for, so that memory
/// does not grow with the data; labels and offsets are in memory, 12 bytes an example and 8 a
/// sequence. Or, without a file, all of it is in memory.
class TokenStore {
 public:
  TokenStore() = default;
  TokenStore(TokenStore&&) noexcept;
  TokenStore& operator=(TokenStore&&) noexcept;
  ~TokenStore();

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t parts() const { return parts_; }
  int32_t label(int64_t example) const { return labels_[static_cast<size_t>(example)]; }
  /// Length of a sequence in bytes.
  int64_t length(int64_t example, int64_t part) const;
  /// The first out.size() bytes of a sequence, which must have as many. Error when the file has
  /// been cut since it was opened.
  void read(int64_t example, int64_t part, std::span<uint8_t> out) const;
  /// What the writer was given.
  const nlohmann::json& facts() const { return facts_; }

  /// Opens a file that TokenWriter::finish() wrote; nothing when it is absent or damaged.
  static std::optional<TokenStore> open(const std::filesystem::path& path);

 private:
  friend class TokenWriter;
  int64_t parts_ = 1;
  std::vector<int32_t> labels_;
  std::vector<uint64_t> offsets_;  // (size * parts + 1), into the bytes
  std::vector<uint8_t> bytes_;     // without a file
  nlohmann::json facts_;
  std::string path_;
  int descriptor_ = -1;
};

/// Fills a TokenStore, example by example.
class TokenWriter {
 public:
  /// In memory.
  explicit TokenWriter(int64_t parts) { store_.parts_ = parts; }
  /// In a temporary file beside `path`, whose folder must exist. Error when it cannot be written.
  TokenWriter(int64_t parts, const std::filesystem::path& path);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();

  /// The next sequence; `parts` of them make an example.
  void add(std::span<const uint8_t> sequence);
  /// Ends an example.
  void label(int32_t label) { store_.labels_.push_back(label); }
  /// The store. With a file, it now stands under its name.
  TokenStore finish(nlohmann::json facts);

 private:
  void flush();
  void write(std::span<const uint8_t> bytes);

  TokenStore store_;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  std::vector<uint8_t> pending_;
  uint32_t checksum_ = 0;
};

}  // namespace primal

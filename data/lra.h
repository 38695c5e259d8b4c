#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "data/token_store.h"

namespace primal {

// The five classification tasks of the Long Range Arena (Tay et al., 2021) from their raw files.
// docs/lra.md says where each comes from and what its folder looks like.

enum class LraTaskName : uint8_t { listops, text, retrieval, image, pathfinder };

std::string_view name_of(LraTaskName task);

/// The `data` section of an LRA recipe.
struct LraDataConfig {
  enum class Difficulty : uint8_t { easy, intermediate, hard };
  /// paper: Text is judged on its test split, for it has no other; validation: a part of its
  /// training split is held out.
  enum class Protocol : uint8_t { validation, paper };

  LraTaskName name = LraTaskName::listops;
  std::string root = "data/lra";
  int64_t length = 0;
  Protocol protocol = Protocol::validation;
  double validation_fraction = 0.1;
  std::string papers;
  int64_t resolution = 32;
  Difficulty difficulty = Difficulty::hard;
  std::string cache;
  bool bucketing = false;

  void fields(Fields& f);
  void check() const;

  /// Tokens kept of a sequence: `length`, or the task's published one.
  int64_t cut() const;
  /// What sequences are padded to: the next power of two.
  int64_t padded_length() const;
};

/// Of the model: what a task's tokens and labels are.
struct LraTaskFacts {
  int64_t vocabulary;  ///< published size of the embedding; tokens are below
  std::vector<std::string> classes;
  bool pairs;
};
const LraTaskFacts& facts_of(LraTaskName task);

/// Some examples of a store. Tokens are its bytes + 1: token 0 is padding and nothing else.
class LraSplit {
 public:
  LraSplit() = default;
  /// All examples of a store, or those listed.
  explicit LraSplit(std::shared_ptr<const TokenStore> store);
  LraSplit(std::shared_ptr<const TokenStore> store, std::vector<int64_t> examples)
      : store_(std::move(store)), examples_(std::move(examples)) {}

  int64_t size() const { return static_cast<int64_t>(examples_.size()); }
  int32_t label(int64_t i) const { return store_->label(example(i)); }
  /// Tokens of a document, of which `cut` are kept.
  int64_t length(int64_t i, int64_t part, int64_t cut) const;
  /// Writes out.size() tokens of a document, padded with 0 behind its first `cut`.
  void tokens(int64_t i, int64_t part, int64_t cut, std::span<int32_t> out) const;
  const nlohmann::json& facts() const { return store_->facts(); }

 private:
  int64_t example(int64_t i) const { return examples_[static_cast<size_t>(i)]; }

  std::shared_ptr<const TokenStore> store_;
  std::vector<int64_t> examples_;
};

struct LraData {
  LraSplit train, validation, test;
  std::vector<std::string> warnings;
};

/// Reads the wanted splits ("train", "validation", "test"; empty: all), from the cache when their
/// files have not changed since it was written. Error when files are missing, listing where they
/// were looked for, or wrong. `tick` is called again and again while files are read, and may throw.
LraData load_lra(const LraDataConfig& config, uint64_t seed, std::span<const std::string> splits,
                 const std::function<void()>& tick);

/// Facts of a task's raw files: {"splits": [{"split", "path", "checksum", "examples", "length":
/// {min, median, max}, "truncated" (share, at the configuration's cut), "classes": [{"id", "label",
/// "examples"}]}], "warnings"}.
nlohmann::json inspect_lra(const LraDataConfig& config);

/// inspect_lra's result for people, lines ending in '\n'.
std::string render_lra_inspection(const nlohmann::json& inspection);

}  // namespace primal

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "tests/catch.h"
#include "tests/fuzz/readers.h"

using namespace primal;

namespace {

namespace fs = std::filesystem;

using Accepts = std::function<bool(std::string_view)>;

std::string contents_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Reads every seed of a folder, whole and cut after each of its bytes; exactly the named ones may
// be accepted.
void read_seeds(const std::string& folder, const Accepts& accepts,
                const std::set<std::string>& good) {
  std::set<std::string> accepted;
  for (const auto& entry :
       fs::directory_iterator(fs::path(PRIMAL_SOURCE_DIR) / "tests/fuzz/seeds" / folder)) {
    const std::string seed = contents_of(entry.path());
    CAPTURE(entry.path().string());
    bool whole = false;
    REQUIRE_NOTHROW(whole = accepts(seed));
    if (whole) accepted.insert(entry.path().stem().string());
    for (size_t size = 0; size < seed.size(); ++size) {
      CAPTURE(size);
      // A copy of its own, so that the sanitizer sees a read past its end.
      const std::string cut = seed.substr(0, size);
      REQUIRE_NOTHROW(accepts(cut));
    }
  }
  CHECK(accepted == good);
}

}  // namespace

TEST_CASE("configuration seeds are read or refused with an error, cut anywhere too") {
  read_seeds("config", fuzz::accepts_config,
             {"anchors", "bom_and_crlf", "empty", "escapes", "long_text", "overrides", "recipe"});
}

TEST_CASE("safetensors seeds are read or refused with an error, cut anywhere too") {
  read_seeds("safetensors", fuzz::accepts_safetensors,
             {"bool_out_of_range", "empty_tensor", "every_type", "no_tensors", "out_of_order",
              "two_tensors", "unpadded_header"});
}

TEST_CASE(".ts seeds are read or refused with an error, cut anywhere too") {
  read_seeds("ts", fuzz::accepts_ts,
             {"header_claims_equal", "huge_declared_sizes", "minimal_header", "missing_values",
              "negative_declared_sizes", "opaque_labels", "other_case_and_order",
              "spaces_and_empty_lines", "time_stamps", "too_many_channels", "two_channels",
              "unequal_lengths", "univariate", "windows_lines"});
}

TEST_CASE("ListOps seeds are read or refused with an error, cut anywhere too") {
  read_seeds("listops", fuzz::accepts_listops, {"label_first", "nested", "source_first"});
}

TEST_CASE("text table seeds are read or refused with an error, cut anywhere too") {
  read_seeds("text", fuzz::accepts_text,
             {"label_first", "mark_and_windows_lines", "no_header", "other_bytes", "text_first"});
}

TEST_CASE("pairs seeds are read or refused with an error, cut anywhere too") {
  read_seeds("pairs", fuzz::accepts_pairs,
             {"both", "empty_columns", "ids", "other_bytes", "tabs_in_the_last", "with_texts"});
}

TEST_CASE("CIFAR-10 seeds are read or refused with an error, cut anywhere too") {
  read_seeds("cifar", fuzz::accepts_cifar, {"ramp", "two"});
}

TEST_CASE("PNG seeds are read or refused with an error, cut anywhere too") {
  read_seeds("png", fuzz::accepts_png,
             {"alpha_and_gamma", "colors_of_16_bits", "filters", "gray", "index_beyond_palette",
              "interlaced", "one_bit", "palette_with_alpha", "two_data_chunks"});
}

TEST_CASE("token file seeds are read or refused, cut anywhere too") {
  read_seeds("tokens", fuzz::accepts_tokens, {"empty_sequences", "one", "pairs"});
}

TEST_CASE("Pathfinder list seeds are read or refused with an error, cut anywhere too") {
  read_seeds("pathfinder", fuzz::accepts_pathfinder,
             {"lines", "narrow_columns_first", "version_3", "wide"});
}

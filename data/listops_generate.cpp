#include "data/listops_generate.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"
#include "data/readers/listops.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDraws = 1 << 14;  // made side by side

/// Grows a random expression and prints it; gives up once it is too long.
class Grower {
 public:
  Grower(const ListOpsRules& rules, uint64_t seed, uint64_t draw)
      : rules_(rules), random_(seed, hash_name("listops", draw)) {}

  bool grow() {
    node(1);
    return length_ > rules_.min_length && length_ < rules_.max_length;
  }
  std::string take_text() { return std::move(text_); }

 private:
  void node(int depth) {
    if (length_ >= rules_.max_length) return;
    if (depth >= rules_.max_depth || random_.uniform() >= rules_.operator_share) {
      text_ += static_cast<char>('0' + random_.below(10));
      ++length_;
      return;
    }
    const auto arguments = 2 + random_.below(static_cast<uint64_t>(rules_.max_arguments) - 1);
    for (uint64_t i = 0; i <= arguments; ++i) text_ += "( ";
    text_ += kListOpsSymbols[10 + random_.below(4)];
    length_ += 2;
    for (uint64_t i = 0; i < arguments; ++i) {
      text_ += ' ';
      node(depth + 1);
      text_ += " )";
    }
    text_ += " ] )";
  }

  const ListOpsRules& rules_;
  RandomStream random_;
  std::string text_;
  int length_ = 0;
};

}  // namespace

ListOpsExample draw_listops(const ListOpsRules& rules, uint64_t seed, uint64_t draw) {
  Grower grower(rules, seed, draw);
  if (!grower.grow()) return {};
  ListOpsExample example{.text = grower.take_text()};
  example.value = evaluate_listops(tokenize_listops(example.text));
  return example;
}

std::vector<fs::path> generate_listops(const ListOpsOptions& options, const fs::path& folder) {
  const fs::path place = folder / "listops-1000";
  const std::pair<const char*, int64_t> files[] = {{"basic_train.tsv", options.train},
                                                   {"basic_val.tsv", options.validation},
                                                   {"basic_test.tsv", options.test}};
  std::error_code none;
  for (const auto& [name, rows] : files) {
    if (rows < 1) fail("generate: {} must have at least 1 row, got {}", name, rows);
    if (!options.overwrite && fs::exists(place / name, none)) {
      fail("generate: {} is there already; --overwrite replaces it", (place / name).string());
    }
  }
  make_directories(place);
  clean_transactions(place, {files[0].first, files[1].first, files[2].first});
  std::unordered_set<uint64_t> seen;
  std::vector<ListOpsExample> draws(kDraws);
  uint64_t first = 0;    // of the draws
  size_t next = kDraws;  // of them to be used
  std::vector<fs::path> written;
  for (const auto& [name, rows] : files) {
    const fs::path path = place / name;
    // Named so that clean_transactions() removes it after a kill.
    const fs::path temporary = place / fmt::format(".{}.tmp-{}", name, ::getpid());
    std::ofstream out(temporary, std::ios::binary);
    out << "Source\tTarget\r\n";
    for (int64_t row = 0; row < rows && out;) {
      if (next == draws.size()) {
#pragma omp parallel for schedule(dynamic, 64)
        for (int64_t i = 0; i < kDraws; ++i) {
          draws[static_cast<size_t>(i)] =
              draw_listops(options.rules, options.seed, first + static_cast<uint64_t>(i));
        }
        first += kDraws;
        next = 0;
      }
      const ListOpsExample& example = draws[next++];
      if (example.text.empty() || !seen.insert(hash_name(example.text)).second) continue;
      out << example.text << '\t' << example.value << "\r\n";
      ++row;
    }
    out.close();
    if (!out) {
      const std::string reason = std::generic_category().message(errno);
      fs::remove(temporary, none);
      fail("{}: cannot be written: {}", path.string(), reason);
    }
    fs::rename(temporary, path);
    written.push_back(path);
  }
  return written;
}

}  // namespace primal

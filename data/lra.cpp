#include "data/lra.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"
#include "data/inspect.h"
#include "data/readers/cifar.h"
#include "data/readers/lines.h"
#include "data/readers/listops.h"
#include "data/readers/pairs.h"
#include "data/readers/pathfinder.h"
#include "data/readers/png.h"
#include "data/readers/text_table.h"

namespace primal {
namespace {

namespace fs = std::filesystem;
using Difficulty = LraDataConfig::Difficulty;
using Tick = std::function<void()>;

struct Published {
  std::string_view name;
  int64_t length;
  LraTaskFacts facts;
};

const Published& published(LraTaskName task) {
  static const std::vector<std::string> digits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  static const std::array<Published, 5> tasks{{
      {"listops", 2000, {32, digits, false}},
      {"text", 4000, {512, {"neg", "pos"}, false}},
      {"retrieval", 4000, {512, {"0", "1"}, true}},
      {"image",
       1024,
       {512,
        {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
        false}},
      {"pathfinder", 1024, {512, {"0", "1"}, false}},
  }};
  return tasks[static_cast<size_t>(task)];
}

/// A file or folder of raw data with what decides whether it has changed.
struct Source {
  std::string name;                                   ///< of the split or the whole
  std::vector<fs::path> files;                        ///< in the order in which they are read
  nlohmann::json options = nlohmann::json::object();  ///< that decide how they are read
  fs::path referred = {};  ///< folder of further files, which these name; or empty
};

/// Sizes and times of the files, and of those they may refer to.
std::string stamp_of(const Source& source) {
  uint64_t hash = hash_name(source.options.dump());
  const auto add = [&](const fs::path& file) {
    std::error_code gone;
    const auto time = fs::last_write_time(file, gone).time_since_epoch().count();
    const uint64_t size = fs::file_size(file, gone);
    hash = hash_name(fmt::format("{} {} {}\n", file.string(), size, time), hash);
  };
  std::ranges::for_each(source.files, add);
  if (!source.referred.empty()) {
    std::vector<fs::path> files;
    std::error_code code;
    for (fs::recursive_directory_iterator it(source.referred, code), end; !code && it != end;
         it.increment(code)) {
      files.push_back(it->path());
    }
    std::ranges::sort(files);
    std::ranges::for_each(files, add);
  }
  return checksum_text(hash);
}

/// The first of these that `good` accepts. Error that lists them.
fs::path find(const std::vector<fs::path>& candidates, std::string_view what,
              const std::function<bool(const fs::path&)>& good) {
  for (const fs::path& path : candidates) {
    if (good(path)) return path;
  }
  std::vector<std::string> looked;
  for (const fs::path& path : candidates) looked.push_back(path.string());
  fail("lra: {} not found; looked in {}; --set data.root=DIR says where the data are", what,
       fmt::join(looked, ", "));
}

/// root and its folders of these names, also within the release's own.
std::vector<fs::path> folders(const fs::path& root, std::initializer_list<std::string_view> names) {
  std::vector<fs::path> out{root};
  for (const fs::path& base : {root, root / "lra_release", root / "lra_release" / "lra_release"}) {
    for (const std::string_view name : names) out.push_back(base / name);
  }
  return out;
}

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    if (it->path().extension() == extension && is_file(it->path())) files.push_back(it->path());
  }
  std::ranges::sort(files);
  return files;
}

// ---- where the files are

std::vector<Source> listops_sources(const fs::path& root) {
  const fs::path folder =
      find(folders(root, {"listops-1000", "listops"}), "basic_train.tsv",
           [](const fs::path& path) { return is_file(path / "basic_train.tsv"); });
  return {{"train", {folder / "basic_train.tsv"}},
          {"validation", {folder / "basic_val.tsv"}},
          {"test", {folder / "basic_test.tsv"}}};
}

std::vector<Source> text_sources(const fs::path& root) {
  const auto is_tree = [](const fs::path& path) {
    std::error_code none;
    return fs::is_directory(path / "train" / "pos", none);
  };
  const fs::path folder =
      find(folders(root, {"aclImdb", "imdb"}), "train/pos/*.txt or train.tsv",
           [&](const fs::path& path) { return is_tree(path) || is_file(path / "train.tsv"); });
  std::vector<Source> sources;
  for (const std::string split : {"train", "test"}) {
    Source source{split, {}};
    if (is_tree(folder)) {
      for (const char* label : {"neg", "pos"}) {
        const fs::path place = folder / split / label;
        const std::vector<fs::path> files = sorted_files(place, ".txt");
        if (files.empty()) fail("lra: {}: holds no .txt files", place.string());
        source.files.insert(source.files.end(), files.begin(), files.end());
      }
    } else {
      source.files.push_back(folder / (split + ".tsv"));
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<Source> retrieval_sources(const LraDataConfig& config) {
  const fs::path folder =
      find(folders(config.root, {"tsv_data", "aan", "retrieval"}), "new_aan_pairs.train.tsv",
           [](const fs::path& path) { return is_file(path / "new_aan_pairs.train.tsv"); });
  std::vector<Source> sources{{"train", {folder / "new_aan_pairs.train.tsv"}},
                              {"validation", {folder / "new_aan_pairs.eval.tsv"}},
                              {"test", {folder / "new_aan_pairs.test.tsv"}}};
  std::error_code none;
  if (!config.papers.empty() && !fs::is_directory(config.papers, none)) {
    fail("lra: data.papers: {}: there is no such folder", config.papers);
  }
  for (Source& source : sources) {
    source.options["papers"] = config.papers;
    source.referred = config.papers;
  }
  return sources;
}

std::vector<Source> image_sources(const fs::path& root) {
  const fs::path folder =
      find(folders(root, {"cifar-10-batches-bin", "cifar10"}), "data_batch_1.bin",
           [](const fs::path& path) { return is_file(path / "data_batch_1.bin"); });
  Source train{"train", {}};
  for (int i = 1; i <= 5; ++i) train.files.push_back(folder / fmt::format("data_batch_{}.bin", i));
  return {std::move(train), {"test", {folder / "test_batch.bin"}}};
}

std::vector<Source> pathfinder_sources(const LraDataConfig& config,
                                       std::vector<std::string>& warnings) {
  const std::string pictures = fmt::format("pathfinder{}", config.resolution);
  const std::string difficulty = config.difficulty == Difficulty::easy ? "curv_baseline"
                                 : config.difficulty == Difficulty::intermediate
                                     ? "curv_contour_length_9"
                                     : "curv_contour_length_14";
  std::vector<fs::path> candidates;
  for (const fs::path& base : folders(config.root, {pictures})) {
    candidates.push_back(base / difficulty);
    candidates.push_back(base / pictures / difficulty);
  }
  const auto good = [](const fs::path& path) {
    std::error_code none;
    return fs::is_directory(path / "metadata", none);
  };
  const fs::path folder = find(candidates, difficulty + "/metadata", good);
  for (const fs::path& other : candidates) {
    std::error_code none;
    if (good(other) && !fs::equivalent(other, folder, none)) {
      warnings.push_back(fmt::format("lra: {} is used; {} has such pictures too", folder.string(),
                                     other.string()));
    }
  }
  Source source{"pictures",
                sorted_files(folder / "metadata", ".npy"),
                {{"resolution", config.resolution}},
                folder / "imgs"};
  if (source.files.empty()) fail("lra: {}: holds no *.npy", (folder / "metadata").string());
  // 0.npy, 1.npy, ... 10.npy: by number.
  std::ranges::stable_sort(source.files, {}, [](const fs::path& path) {
    return std::pair(path.stem().string().size(), path.stem().string());
  });
  return {std::move(source)};
}

// ---- how they are read

/// What is counted while a source is read.
struct Reading {
  TokenWriter& to;
  const Tick& tick;
  uint64_t checksum = hash_name("");
  std::vector<std::string> warnings{};
  int64_t examples = 0;

  void add(std::initializer_list<std::string_view> documents, int32_t label) {
    for (const std::string_view document : documents) {
      to.add({reinterpret_cast<const uint8_t*>(document.data()), document.size()});
    }
    to.label(label);
    if (++examples % 64 == 0) tick();
  }
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_counted(const fs::path& path, Reading& reading) {
  std::string text = read_text_file(path);
  reading.checksum = hash_name(text, reading.checksum);
  return text;
}

void read_listops(const Source& source, Reading& reading) {
  for (const fs::path& file : source.files) {
    ListOpsReader reader(file.string());
    const uint64_t checksum = for_file_lines(file, [&](std::string_view line, int64_t number) {
      if (const auto row = reader.line(line, number)) {
        reading.add({text_of(std::as_bytes(std::span(row->symbols)))}, row->label);
      }
    });
    reading.checksum = hash_name(checksum_text(checksum), reading.checksum);
  }
}

void read_text_table(const fs::path& file, Reading& reading) {
  TextTableReader reader(file.string());
  const uint64_t checksum = for_file_lines(file, [&](std::string_view line, int64_t number) {
    if (const auto row = reader.line(line, number)) reading.add({row->text}, row->label);
  });
  reading.checksum = hash_name(checksum_text(checksum), reading.checksum);
}

void read_text(const Source& source, Reading& reading) {
  int64_t empty = 0;
  for (const fs::path& file : source.files) {
    if (file.extension() == ".tsv") {
      read_text_table(file, reading);
      continue;
    }
    const std::string text = read_counted(file, reading);
    if (text.empty()) {
      ++empty;
      continue;
    }
    reading.add({text}, binary_label(file.parent_path().filename().string()));
  }
  if (empty > 0) reading.warnings.push_back(fmt::format("lra: {} empty texts are left out", empty));
}

void read_retrieval(const Source& source, Reading& reading) {
  const std::string papers = source.options.at("papers");
  std::set<std::string> missing;
  int64_t lost = 0;
  int64_t empty = 0;
  std::map<std::string, std::string> texts;  // of papers that were read, by id
  const auto paper = [&](std::string_view id) -> const std::string* {
    const auto found = texts.find(std::string(id));
    if (found != texts.end()) return &found->second;
    for (const char* ending : {"", ".txt"}) {
      const fs::path path = fs::path(papers) / (std::string(id) + ending);
      // An id is the name of a file in that folder, and of no other.
      if (id.find('/') == id.npos && is_file(path))
        return &(texts[std::string(id)] = read_counted(path, reading));
    }
    missing.insert(std::string(id));
    return nullptr;
  };
  for (const fs::path& file : source.files) {
    const PairsReader reader(file.string());
    const uint64_t checksum = for_file_lines(file, [&](std::string_view line, int64_t number) {
      const auto row = reader.line(line, number);
      if (!row) return;
      const auto add = [&](std::string_view first, std::string_view second) {
        if (first.empty() || second.empty()) {
          ++empty;
        } else {
          reading.add({first, second}, row->label);
        }
      };
      if (row->texts) return add(row->texts->front(), row->texts->back());
      if (papers.empty()) {
        fail(
            "lra: {}:{}: the pairs are ids without texts; --set data.papers=DIR says where the "
            "papers are, each in a file ID or ID.txt",
            file.string(), number);
      }
      const std::string* first = paper(row->ids[0]);
      const std::string* second = paper(row->ids[1]);
      if (first == nullptr || second == nullptr) {
        ++lost;
      } else {
        add(*first, *second);
      }
    });
    reading.checksum = hash_name(checksum_text(checksum), reading.checksum);
  }
  if (lost > 0) {
    std::vector<std::string> some;
    std::copy_n(missing.begin(), std::min<size_t>(missing.size(), 10), std::back_inserter(some));
    reading.warnings.push_back(
        fmt::format("lra: {}: {} pairs are left out because {} papers are not in {}: {}{}",
                    source.files.front().string(), lost, missing.size(), papers,
                    fmt::join(some, ", "), missing.size() > some.size() ? ", ..." : ""));
  }
  if (empty > 0) {
    reading.warnings.push_back(
        fmt::format("lra: {}: {} pairs are left out because a paper of theirs has no text",
                    source.files.front().string(), empty));
  }
}

void read_images(const Source& source, Reading& reading) {
  for (const fs::path& file : source.files) {
    for_cifar_pictures(
        read_counted(file, reading), file.string(),
        [&](std::string_view pixels, int32_t label) { reading.add({pixels}, label); });
  }
}

void read_pathfinder(const Source& source, Reading& reading) {
  const int64_t side = source.options.at("resolution");
  std::vector<std::string> empty;
  for (const fs::path& file : source.files) {
    const fs::path folder = file.parent_path().parent_path();
    const std::string table = read_counted(file, reading);
    for_pathfinder_pictures(table, file.string(), [&](const std::string& picture, int32_t label) {
      const fs::path path = folder / picture;
      if (is_file(path) && fs::file_size(path) == 0) {
        empty.push_back(path.string());
        return;
      }
      const GrayImage image = read_gray_png(path);
      if (image.width != side || image.height != side) {
        fail("lra: {}: is {} x {}; expected {} x {} (data.resolution)", path.string(), image.width,
             image.height, side, side);
      }
      const std::string_view pixels = text_of(std::as_bytes(std::span(image.pixels)));
      reading.checksum = hash_name(pixels, reading.checksum);
      reading.add({pixels}, label);
    });
  }
  if (!empty.empty()) {
    reading.warnings.push_back(fmt::format(
        "lra: {} empty picture files are left out, the first is {}", empty.size(), empty.front()));
  }
}

// ---- the cache

fs::path cache_folder(const LraDataConfig& config) {
  if (!config.cache.empty()) return config.cache;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != 0) {
    return fs::path(base) / "primal";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr ? fs::path(home) / ".cache" / "primal" : fs::path();
}

TokenStore read_source(LraTaskName task, const Source& source, const std::string& stamp,
                       TokenWriter& to, const Tick& tick) {
  Reading reading{to, tick};
  switch (task) {
    case LraTaskName::listops:
      read_listops(source, reading);
      break;
    case LraTaskName::text:
      read_text(source, reading);
      break;
    case LraTaskName::retrieval:
      read_retrieval(source, reading);
      break;
    case LraTaskName::image:
      read_images(source, reading);
      break;
    case LraTaskName::pathfinder:
      read_pathfinder(source, reading);
      break;
  }
  // A file, or the folder of them all.
  fs::path path = source.files.front();
  if (source.files.size() > 1) path = path.parent_path();
  if (source.files.back().parent_path() != source.files.front().parent_path()) {
    path = path.parent_path();
  }
  if (reading.examples == 0) fail("lra: {}: holds no examples", path.string());
  return to.finish({{"path", path.string()},
                    {"files", source.files.size()},
                    {"examples", reading.examples},
                    {"checksum", checksum_text(reading.checksum)},
                    {"warnings", reading.warnings},
                    {"stamp", stamp}});
}

std::shared_ptr<const TokenStore> open_source(const LraDataConfig& config, const Source& source,
                                              const Tick& tick,
                                              std::vector<std::string>& warnings) {
  for (const fs::path& file : source.files) {
    if (!is_file(file)) fail("lra: {}: there is no such file", file.string());
  }
  const std::string stamp = stamp_of(source);
  const int64_t parts = facts_of(config.name).pairs ? 2 : 1;
  std::optional<TokenStore> store;
  if (config.cache != "none") {
    const fs::path folder = cache_folder(config);
    const fs::path path =
        folder / fmt::format("{}-{}-{}.tokens", name_of(config.name), source.name,
                             checksum_text(hash_name(
                                 source.options.dump(),
                                 hash_name(fs::absolute(source.files.front()).string()))));
    store = TokenStore::open(path);
    if (store &&
        (store->parts() != parts || store->facts().value("stamp", nlohmann::json()) != stamp)) {
      store.reset();
    }
    if (!store) {
      std::unique_ptr<TokenWriter> writer;
      try {
        make_directories(folder);
        writer = std::make_unique<TokenWriter>(parts, path);
      } catch (const Error& problem) {
        warnings.push_back(
            fmt::format("lra: nothing is cached, the data are kept in memory: {}", problem.what()));
      }
      if (writer) store = read_source(config.name, source, stamp, *writer, tick);
    }
  }
  if (!store) {
    TokenWriter writer(parts);
    store = read_source(config.name, source, stamp, writer, tick);
  }
  for (const auto& warning : store->facts().at("warnings")) {
    warnings.push_back(warning.get<std::string>());
  }
  return std::make_shared<const TokenStore>(*std::move(store));
}

/// 0 .. size - 1 in an order that depends on the arguments only.
std::vector<int64_t> shuffled(int64_t size, uint64_t seed, std::string_view name) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomStream random(seed, hash_name(name));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

/// Items [begin, end) of a list, ascending.
std::vector<int64_t> part(const std::vector<int64_t>& list, int64_t begin, int64_t end) {
  std::vector<int64_t> out(list.begin() + begin, list.begin() + end);
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::string_view name_of(LraTaskName task) {
  return published(task).name;
}

const LraTaskFacts& facts_of(LraTaskName task) {
  return published(task).facts;
}

void LraDataConfig::fields(Fields& f) {
  f.choice("name", name,
           {{"listops", LraTaskName::listops},
            {"text", LraTaskName::text},
            {"retrieval", LraTaskName::retrieval},
            {"image", LraTaskName::image},
            {"pathfinder", LraTaskName::pathfinder}},
           "the task");
  f.field("root", root, "folder of the raw files, or of the release that holds their folder");
  f.field("length", length, between(0, 1 << 20),
          "tokens kept of a sequence; it is padded to the next power of two; 0: as published");
  f.choice("protocol", protocol, {{"validation", Protocol::validation}, {"paper", Protocol::paper}},
           "validation: text holds out a part of its training split, for it has no other; paper: "
           "text is judged on its test split");
  f.field("validation_fraction", validation_fraction, {.min = 0.0, .max = 0.5, .min_open = true},
          "part of the training texts that is held out");
  f.field("papers", papers, "retrieval: folder of the papers' texts, for pairs that are ids only");
  f.field("resolution", resolution, between(1, 1024),
          "pathfinder: side of the pictures, 32 or 128");
  f.choice("difficulty", difficulty,
           {{"easy", Difficulty::easy},
            {"intermediate", Difficulty::intermediate},
            {"hard", Difficulty::hard}},
           "pathfinder: contours of 6, 9 or 14 strokes (curv_baseline, curv_contour_length_9, "
           "curv_contour_length_14)");
  f.field("cache", cache,
          "folder for the data as tokens; empty: primal in $XDG_CACHE_HOME or ~/.cache; none: keep "
          "them in memory");
  f.field(
      "bucketing", bucketing,
      "whether an update takes sequences of about the same length; saves time where batches are "
      "padded to their longest, with model.padding: exact");
}

void LraDataConfig::check() const {
  if (length > 0 && length < 2) fail("data.length must be 0 or at least 2, got {}", length);
}

int64_t LraDataConfig::cut() const {
  if (length > 0) return length;
  return name == LraTaskName::pathfinder ? resolution * resolution : published(name).length;
}

int64_t LraDataConfig::padded_length() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(cut())));
}

LraSplit::LraSplit(std::shared_ptr<const TokenStore> store) : store_(std::move(store)) {
  examples_.resize(static_cast<size_t>(store_->size()));
  std::iota(examples_.begin(), examples_.end(), int64_t{0});
}

int64_t LraSplit::length(int64_t i, int64_t part, int64_t cut) const {
  return std::min(store_->length(example(i), part), cut);
}

void LraSplit::tokens(int64_t i, int64_t part, int64_t cut, std::span<int32_t> out) const {
  thread_local std::vector<uint8_t> bytes;
  bytes.resize(static_cast<size_t>(length(i, part, cut)));
  store_->read(example(i), part, bytes);
  std::ranges::fill(out, 0);
  std::ranges::transform(bytes, out.begin(), [](uint8_t byte) { return byte + 1; });
}

LraData load_lra(const LraDataConfig& config, uint64_t seed, std::span<const std::string> splits,
                 const std::function<void()>& tick) {
  LraData data;
  const fs::path root = config.root;
  std::vector<Source> sources;
  switch (config.name) {
    case LraTaskName::listops:
      sources = listops_sources(root);
      break;
    case LraTaskName::text:
      sources = text_sources(root);
      break;
    case LraTaskName::retrieval:
      sources = retrieval_sources(config);
      break;
    case LraTaskName::image:
      sources = image_sources(root);
      break;
    case LraTaskName::pathfinder:
      sources = pathfinder_sources(config, data.warnings);
      break;
  }
  const auto wanted = [&](std::string_view name) {
    return splits.empty() || std::ranges::find(splits, name) != splits.end();
  };
  for (const Source& source : sources) {
    const bool holds_validation = source.name == "train" && sources.size() == 2;
    if (source.name != "pictures" && !wanted(source.name) &&
        !(holds_validation && wanted("validation"))) {
      continue;
    }
    const auto store = open_source(config, source, tick, data.warnings);
    const int64_t size = store->size();
    if (source.name == "test") {
      data.test = LraSplit(store);
    } else if (source.name == "validation") {
      data.validation = LraSplit(store);
    } else if (source.name == "pictures") {  // shuffled once and for all, as in the release's code
      const std::vector<int64_t> order = shuffled(size, 0, "pathfinder");
      const int64_t first = size * 8 / 10;
      const int64_t second = size * 9 / 10;
      data.train = {store, part(order, 0, first)};
      data.validation = {store, part(order, first, second)};
      data.test = {store, part(order, second, size)};
    } else if (config.name == LraTaskName::image) {  // the first nine tenths, not shuffled
      std::vector<int64_t> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), int64_t{0});
      data.train = {store, part(all, 0, size * 9 / 10)};
      data.validation = {store, part(all, size * 9 / 10, size)};
    } else if (config.name == LraTaskName::text &&
               config.protocol == LraDataConfig::Protocol::validation) {
      const std::vector<int64_t> order = shuffled(size, seed, "text validation");
      const auto held =
          static_cast<int64_t>(static_cast<double>(size) * config.validation_fraction);
      data.validation = {store, part(order, 0, held)};
      data.train = {store, part(order, held, size)};
    } else {
      data.train = LraSplit(store);
    }
    if (data.train.size() == 0 && (source.name == "train" || source.name == "pictures")) {
      fail("lra: {}: {} examples leave none for training",
           store->facts().at("path").get<std::string>(), size);
    }
  }
  return data;
}

nlohmann::json inspect_lra(const LraDataConfig& config) {
  const LraData data = load_lra(config, 1, {}, [] {});
  const LraTaskFacts& task = facts_of(config.name);
  nlohmann::json splits = nlohmann::json::array();
  for (const auto& [name, split] : {std::pair<const char*, const LraSplit*>{"train", &data.train},
                                    {"validation", &data.validation},
                                    {"test", &data.test}}) {
    if (split->size() == 0) continue;
    std::vector<int64_t> lengths;
    std::vector<int64_t> counts(task.classes.size());
    for (int64_t i = 0; i < split->size(); ++i) {
      ++counts.at(static_cast<size_t>(split->label(i)));
      for (int64_t part = 0; part < (task.pairs ? 2 : 1); ++part) {
        lengths.push_back(split->length(i, part, std::numeric_limits<int64_t>::max()));
      }
    }
    std::ranges::sort(lengths);
    const auto cut = std::ranges::count_if(lengths, [&](int64_t n) { return n > config.cut(); });
    nlohmann::json classes = nlohmann::json::array();
    for (size_t id = 0; id < counts.size(); ++id) {
      classes.push_back({{"id", id}, {"label", task.classes[id]}, {"examples", counts[id]}});
    }
    splits.push_back({{"split", name},
                      {"path", split->facts().at("path")},
                      {"checksum", split->facts().at("checksum")},
                      {"examples", split->size()},
                      {"length",
                       {{"min", lengths.front()},
                        {"median", lengths[lengths.size() / 2]},
                        {"max", lengths.back()}}},
                      {"truncated", static_cast<double>(cut) / static_cast<double>(lengths.size())},
                      {"classes", std::move(classes)}});
  }
  return {{"task", name_of(config.name)},
          {"cut_length", config.cut()},
          {"padded_length", config.padded_length()},
          {"splits", std::move(splits)},
          {"warnings", data.warnings}};
}

std::string render_lra_inspection(const nlohmann::json& inspection) {
  std::string out;
  for (const nlohmann::json& split : inspection.at("splits")) {
    const nlohmann::json& length = split.at("length");
    const auto line = [&](std::string_view key, const std::string& value) {
      out += fmt::format("  {:<10} {}\n", key, value);
    };
    out += fmt::format("{}: {}\n", split.at("split").get<std::string>(),
                       split.at("path").get<std::string>());
    line("examples", split.at("examples").dump());
    line("tokens", fmt::format("{} min, {} median, {} max; {:.1f} % longer than {}",
                               length.at("min").dump(), length.at("median").dump(),
                               length.at("max").dump(), 100 * split.at("truncated").get<double>(),
                               inspection.at("cut_length").dump()));
    std::string classes;
    for (const nlohmann::json& row : split.at("classes")) {
      classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ",
                             row.at("label").get<std::string>(), row.at("examples").dump());
    }
    line("classes", classes);
    line("checksum", split.at("checksum").get<std::string>() + " (FNV-1a, 64 bits)");
  }
  for (const nlohmann::json& warning : inspection.at("warnings")) {
    out += fmt::format("warning: {}\n", warning.get<std::string>());
  }
  return out;
}

}  // namespace primal

#include "data/lra.h"

#include <fmt/core.h>
#include <png.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/listops_generate.h"
#include "data/readers/lines.h"
#include "data/readers/listops.h"
#include "data/readers/png.h"
#include "data/token_store.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// The message of the Error that f throws.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

LraDataConfig config_of(LraTaskName name, const fs::path& root, const std::string& cache = "none") {
  LraDataConfig config;
  config.name = name;
  config.root = root.string();
  config.cache = cache;
  return config;
}

LraData load(const LraDataConfig& config) {
  return load_lra(config, 1, {}, [] {});
}

std::vector<int32_t> tokens_of(const LraSplit& split, int64_t i, int64_t part = 0,
                               int64_t cut = 1 << 20) {
  std::vector<int32_t> tokens(static_cast<size_t>(split.length(i, part, cut)));
  split.tokens(i, part, cut, tokens);
  return tokens;
}

/// Bytes of a document, from its tokens.
std::string text_of(const LraSplit& split, int64_t i, int64_t part = 0) {
  std::string text;
  for (const int32_t token : tokens_of(split, i, part)) text += static_cast<char>(token - 1);
  return text;
}

std::optional<ListOpsRow> one_line(std::string_view text) {
  return ListOpsReader("f.tsv").line(text, 2);
}

void write_png(const fs::path& path, int side, const std::vector<uint8_t>& pixels) {
  fs::create_directories(path.parent_path());
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = static_cast<png_uint_32>(side);
  image.format = PNG_FORMAT_GRAY;
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
}

/// A folder with one listops row per split.
void write_listops(const fs::path& root) {
  for (const char* split : {"train", "val", "test"}) {
    write(root / "listops-1000" / (std::string("basic_") + split + ".tsv"),
          "Source\tTarget\r\n( ( ( [MAX 4 ) 3 ) ] )\t4\r\n");
  }
}

}  // namespace

TEST_CASE("ListOps: operators and closing brackets are tokens, round parentheses are not") {
  const std::vector<uint8_t> symbols =
      tokenize_listops("( ( ( [MAX 4 ) ( ( ( [SM 9 ) 3 ) ] ) ) ] )");
  CHECK(symbols == std::vector<uint8_t>{11, 4, 13, 9, 3, 14, 14});
  CHECK(tokenize_listops("[MAX 4 [SM 9 3 ] ]") == symbols);
  CHECK(error_of([] { tokenize_listops("[MAX 4 [XOR 1 ] ]"); }) ==
        "'[XOR' is not a ListOps symbol");
  CHECK(error_of([] { tokenize_listops("[MAX 10 ]"); }) == "'10' is not a ListOps symbol");
}

TEST_CASE("ListOps: expressions are evaluated as the release does") {
  const auto value = [](std::string_view text) { return evaluate_listops(tokenize_listops(text)); };
  CHECK(value("7") == 7);
  CHECK(value("[MIN 4 2 8 ]") == 2);
  CHECK(value("[MAX 4 2 8 ]") == 8);
  CHECK(value("[MED 4 2 8 ]") == 4);
  CHECK(value("[MED 1 2 4 9 ]") == 3);
  CHECK(value("[MED 1 2 3 9 ]") == 2);  // of 2.5 the whole part
  CHECK(value("[SM 4 9 8 ]") == 1);
  CHECK(value("[FIRST 4 9 8 ]") == 4);
  CHECK(value("[LAST 4 9 8 ]") == 8);
  CHECK(value("[SM [MAX 4 9 ] [MIN 3 [MED 5 6 7 ] ] ]") == 2);
  CHECK(error_of([&] { value("[SM 4 9"); }) == "[SM is not closed");
  CHECK(error_of([&] { value("4 ]"); }) == "a ']' closes nothing");
  CHECK(error_of([&] { value("[SM ]"); }) == "[SM has no arguments");
  CHECK(error_of([&] { value("4 5"); }) == "holds 2 expressions, not one");
  CHECK(error_of([&] { value(""); }) == "holds 0 expressions, not one");
}

TEST_CASE("ListOps: a row with a wrong label, column or word is refused by its line") {
  CHECK(one_line("4\t[MAX 4 3 ]")->label == 4);
  CHECK_FALSE(one_line(""));
  CHECK(error_of([] { one_line("5\t[MAX 4 3 ]"); }) ==
        "lra: f.tsv:2: the label is 5, but the expression's value is 4");
  CHECK(error_of([] { one_line("[MAX 4 3 ]"); }) ==
        "lra: f.tsv:2: expected two columns with a tab between: an expression and its value");
  CHECK(error_of([] { one_line("4\t[MAX 4 3 ]\t4"); }) ==
        "lra: f.tsv:2: expected two columns with a tab between: an expression and its value");
  CHECK(error_of([] { one_line("four\t[MAX 4 3 ]"); }) ==
        "lra: f.tsv:2: expected a value from 0 to 9 in the first column, found 'four'");
  CHECK(error_of([] { one_line("4\t[MAX 4 x ]"); }) ==
        "lra: f.tsv:2: the expression: 'x' is not a ListOps symbol");
  ListOpsReader with_header("f.tsv");
  CHECK_FALSE(with_header.line("Source\tTarget", 1));
  CHECK(with_header.line("[MAX 4 3 ]\t4", 2)->label == 4);
  CHECK(error_of([&] { with_header.line("4\t[MAX 4 3 ]", 3); }) ==
        "lra: f.tsv:3: expected a value from 0 to 9 in the second column, found '[MAX 4 3 ]'");
}

TEST_CASE("ListOps: generated files are what the release's rules say, and the seed's alone") {
  const TemporaryFolder one("listops_one");
  const TemporaryFolder two("listops_two");
  ListOpsOptions options;
  options.train = 60;
  options.validation = options.test = 20;
  const auto files = generate_listops(options, one.path);
  generate_listops(options, two.path);
  REQUIRE(files.size() == 3);
  std::set<std::string> lines;
  std::set<uint8_t> used;
  for (const fs::path& path : files) {
    ListOpsReader reader(path.string());
    std::string text;
    const uint64_t checksum = for_file_lines(path, [&](std::string_view line, int64_t number) {
      const auto row = reader.line(line, number);
      if (!row) return;
      CHECK(row->symbols.size() > 500);
      CHECK(row->symbols.size() < 2000);
      CHECK(lines.insert(std::string(line)).second);
      used.insert(row->symbols.begin(), row->symbols.end());
    });
    const auto same = [](std::string_view, int64_t) {};
    CHECK(checksum == for_file_lines(two.path / "listops-1000" / path.filename(), same));
  }
  CHECK(lines.size() == 100);
  CHECK(used.size() == 15);
  CHECK(*used.rbegin() == 14);
  CHECK(error_of([&] {
          generate_listops(options, one.path);
        }).ends_with("basic_train.tsv is there already; --overwrite replaces it"));
  ListOpsOptions other = options;
  other.seed = 2;
  other.overwrite = true;
  generate_listops(other, one.path);
  const auto first_line = [](const fs::path& path) {
    std::string found;
    for_file_lines(path, [&](std::string_view line, int64_t number) {
      if (number == 2) found = line;
    });
    return found;
  };
  CHECK(first_line(files[0]) != first_line(two.path / "listops-1000" / "basic_train.tsv"));
}

TEST_CASE("ListOps: a prepared folder loads with and without header, wherever it lies below root") {
  const TemporaryFolder folder("listops_load");
  write(folder.path / "lra_release/lra_release/listops-1000/basic_train.tsv",
        "Source\tTarget\r\n( ( ( [MAX 4 ) 3 ) ] )\t4\r\n( ( ( [MIN 4 ) 3 ) ] )\t3\r\n");
  write(folder.path / "lra_release/lra_release/listops-1000/basic_val.tsv", "7\t7\n");
  write(folder.path / "lra_release/lra_release/listops-1000/basic_test.tsv", "2\t( ( [MAX 2 ) ] )");
  const LraData data = load(config_of(LraTaskName::listops, folder.path));
  CHECK(data.train.size() == 2);
  CHECK(data.validation.size() == 1);
  CHECK(data.test.size() == 1);
  CHECK(data.train.label(1) == 3);
  CHECK(tokens_of(data.train, 1) == std::vector<int32_t>{11, 5, 4, 15});  // number + 1
  CHECK(tokens_of(data.train, 1, 0, 2) == std::vector<int32_t>{11, 5});
  std::vector<int32_t> padded(6, 9);
  data.train.tokens(1, 0, 3, padded);
  CHECK(padded == std::vector<int32_t>{11, 5, 4, 0, 0, 0});
  CHECK(tokens_of(data.test, 0) == std::vector<int32_t>{12, 3, 15});

  fs::remove(folder.path / "lra_release/lra_release/listops-1000/basic_val.tsv");
  CHECK(error_of([&] {
          load(config_of(LraTaskName::listops, folder.path));
        }).ends_with("basic_val.tsv: there is no such file"));
  const std::string absent =
      error_of([&] { load(config_of(LraTaskName::listops, folder.path / "none")); });
  CHECK(absent.starts_with("lra: basic_train.tsv not found; looked in "));
  CHECK(absent.ends_with("; --set data.root=DIR says where the data are"));
}

TEST_CASE("tokens: what a file holds is what was written, and damage is noticed") {
  const TemporaryFolder folder("tokens");
  const fs::path path = folder.path / "a.tokens";
  const std::vector<std::vector<uint8_t>> sequences{{1, 2, 3}, {}, {255}, {0, 7}};
  {
    TokenWriter writer(2, path);
    for (size_t i = 0; i < 4; ++i) {
      writer.add(sequences[i]);
      if (i % 2 == 1) writer.label(static_cast<int32_t>(i));
    }
    CHECK(writer.finish({{"stamp", "x"}}).size() == 2);
  }
  const auto check = [&](const TokenStore& store) {
    REQUIRE(store.size() == 2);
    CHECK(store.parts() == 2);
    CHECK(store.label(1) == 3);
    CHECK(store.facts().at("stamp") == "x");
    for (int64_t i = 0; i < 4; ++i) {
      std::vector<uint8_t> found(static_cast<size_t>(store.length(i / 2, i % 2)));
      store.read(i / 2, i % 2, found);
      CHECK(found == sequences[static_cast<size_t>(i)]);
    }
  };
  check(TokenStore::open(path).value());
  CHECK_FALSE(TokenStore::open(folder.path / "none"));
  std::string whole;
  for_file_lines(path, [](std::string_view, int64_t) {});
  {
    std::ifstream in(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    write(path, whole.substr(0, size));
    CHECK_FALSE(TokenStore::open(path));
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    write(path, damaged);
    CHECK_FALSE(TokenStore::open(path));
  }
  write(path, whole);
  const TokenStore store = TokenStore::open(path).value();
  check(store);
  fs::resize_file(path, 2);
  std::vector<uint8_t> three(3);
  CHECK(error_of([&] { store.read(0, 0, three); }).find("was cut while in use") !=
        std::string::npos);
  { const TokenWriter unfinished(1, folder.path / "b.tokens"); }
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
  CHECK(error_of([&] {
          TokenWriter(1, folder.path / "no" / "c.tokens");
        }).find("cannot be written") != std::string::npos);
}

TEST_CASE("LRA data are cached until their files change, and damage is made good") {
  const TemporaryFolder folder("lra_cache");
  write_listops(folder.path);
  const fs::path cache = folder.path / "cache";
  const LraDataConfig config = config_of(LraTaskName::listops, folder.path, cache.string());
  const auto entries = [&] {
    std::map<fs::path, fs::file_time_type> times;
    for (const auto& entry : fs::directory_iterator(cache)) {
      times[entry.path()] = entry.last_write_time();
    }
    return times;
  };
  const auto first_checksum = load(config).train.facts().at("checksum");
  const auto before = entries();
  CHECK(before.size() == 3);
  CHECK(load(config).train.label(0) == 4);
  CHECK(entries() == before);

  write(folder.path / "listops-1000/basic_train.tsv", "Source\tTarget\n[MAX 4 3 8 ]\t8\n");
  const LraData changed = load(config);
  CHECK(changed.train.label(0) == 8);
  CHECK(changed.train.facts().at("checksum") != first_checksum);
  for (const auto& [path, time] : entries()) fs::resize_file(path, 10);
  CHECK(load(config).train.label(0) == 8);
  for (const auto& [path, time] : entries()) {
    TokenWriter other(1, path);
    other.add(std::vector<uint8_t>{1});
    other.label(1);
    other.finish({{"stamp", 1}});
  }
  CHECK(load(config).train.label(0) == 8);

  // Where nothing can be written the data stay in memory.
  write(folder.path / "a_file", "");
  const LraData held =
      load(config_of(LraTaskName::listops, folder.path, (folder.path / "a_file").string()));
  CHECK(held.train.label(0) == 8);
  REQUIRE(held.warnings.size() == 3);
  CHECK(held.warnings[0].starts_with("lra: nothing is cached, the data are kept in memory: "));
}

TEST_CASE("LRA data are read again when a picture or paper that a list names has changed") {
  const TemporaryFolder folder("lra_referred");
  const std::string cache = (folder.path / "cache").string();
  const fs::path hard = folder.path / "pathfinder32" / "curv_contour_length_14";
  std::string list;
  for (int i = 0; i < 10; ++i) {
    const std::string name = "sample_" + std::to_string(i) + ".png";
    write_png(hard / "imgs" / "0" / name, 32, std::vector<uint8_t>(1024, 7));
    list += fmt::format("imgs/0 {} {} {} 1.0 14\n", name, i, i % 2);
  }
  write(hard / "metadata" / "0.npy", list);
  const LraDataConfig pictures = config_of(LraTaskName::pathfinder, folder.path, cache);
  const std::string before = load(pictures).train.facts().at("checksum");
  CHECK(load(pictures).train.facts().at("checksum") == before);
  for (int i = 0; i < 10; ++i) {
    const std::string name = "sample_" + std::to_string(i) + ".png";
    write_png(hard / "imgs" / "0" / name, 32, std::vector<uint8_t>(1024, 200));
  }
  CHECK(load(pictures).train.facts().at("checksum") != before);
  fs::remove(hard / "imgs" / "0" / "sample_3.png");
  CHECK(error_of([&] { load(pictures); }).find("sample_3.png") != std::string::npos);
  write(hard / "metadata" / "0.npy", "imgs/0 sample_0.png 0 1 1.0 14\n");
  CHECK(error_of([&] { load(pictures); }) ==
        "lra: " + (hard / "metadata" / "0.npy").string() + ": 1 examples leave none for training");

  for (const char* split : {"train", "eval", "test"}) {
    write(folder.path / "tsv_data" / (std::string("new_aan_pairs.") + split + ".tsv"),
          "1.0\t1\t2\n");
  }
  for (const char* id : {"1", "2"}) write(folder.path / "papers" / id, "an old text");
  LraDataConfig pairs = config_of(LraTaskName::retrieval, folder.path, cache);
  pairs.papers = (folder.path / "papers").string();
  CHECK(text_of(load(pairs).train, 0, 1) == "an old text");
  write(folder.path / "papers" / "2", "a new and longer text");
  CHECK(text_of(load(pairs).train, 0, 1) == "a new and longer text");
  pairs.papers = (folder.path / "none").string();
  CHECK(error_of([&] { load(pairs); }) ==
        "lra: data.papers: " + pairs.papers + ": there is no such folder");
}

TEST_CASE("Text: the review tree and tables give bytes, and tell labels and splits") {
  const TemporaryFolder folder("lra_text");
  const fs::path tree = folder.path / "aclImdb";
  for (int i = 0; i < 10; ++i) {
    write(tree / "train/neg" / (std::to_string(i) + "_1.txt"), "bad <br />" + std::to_string(i));
    write(tree / "train/pos" / (std::to_string(i) + "_9.txt"), "gut \xC3\xBC" + std::to_string(i));
  }
  write(tree / "train/neg/empty_1.txt", "");
  write(tree / "test/neg/0_2.txt", "worse");
  write(tree / "test/pos/0_8.txt", "better");
  LraDataConfig config = config_of(LraTaskName::text, folder.path);
  config.protocol = LraDataConfig::Protocol::paper;
  const LraData data = load(config);
  CHECK(data.train.size() == 20);
  CHECK(data.validation.size() == 0);
  CHECK(data.test.size() == 2);
  CHECK(data.warnings == std::vector<std::string>{"lra: 1 empty texts are left out"});
  // The folder of the split, not one of its two.
  CHECK(inspect_lra(config).at("splits")[0].at("path") == (tree / "train").string());
  CHECK(text_of(data.train, 0) == "bad <br />0");
  CHECK(text_of(data.train, 19) ==
        "gut \xC3\xBC"
        "9");
  CHECK(tokens_of(data.train, 19)[4] == 0xC3 + 1);
  CHECK(data.train.label(0) == 0);
  CHECK(data.train.label(19) == 1);
  CHECK(text_of(data.test, 1) == "better");

  config.protocol = LraDataConfig::Protocol::validation;
  config.validation_fraction = 0.25;
  const LraData held = load(config);
  CHECK(held.train.size() == 15);
  CHECK(held.validation.size() == 5);
  std::set<std::string> all;
  for (const LraSplit* split : {&held.train, &held.validation}) {
    for (int64_t i = 0; i < split->size(); ++i) all.insert(text_of(*split, i));
  }
  CHECK(all.size() == 20);

  const fs::path tables = folder.path / "tables";
  write(tables / "train.tsv", "label\ttext\n0\tbad \"one\"\n1\tgood\tone\r\n");
  write(tables / "test.tsv", "Source\tTarget\nfine\t1.0\n");
  config = config_of(LraTaskName::text, tables);
  config.protocol = LraDataConfig::Protocol::paper;
  const LraData table = load(config);
  CHECK(table.train.size() == 2);
  CHECK(text_of(table.train, 0) == "bad \"one\"");
  CHECK(text_of(table.train, 1) == "good\tone");
  CHECK(text_of(table.test, 0) == "fine");
  write(tables / "test.tsv", "2\tx\n");
  CHECK(error_of([&] {
          load(config);
        }).find("test.tsv:1: expected a label (0, 1, neg or pos) and") != std::string::npos);
}

TEST_CASE("Retrieval: pairs carry their texts, or name papers in a folder") {
  const TemporaryFolder folder("lra_retrieval");
  const fs::path aan = folder.path / "tsv_data";
  for (const char* split : {"train", "eval", "test"}) {
    write(aan / (std::string("new_aan_pairs.") + split + ".tsv"),
          "1.0\tA00\tB01\ta \"text\"\tanother\n0.0\tA00\tC02\ta text\ta third\n");
  }
  LraDataConfig config = config_of(LraTaskName::retrieval, folder.path);
  const LraData data = load(config);
  CHECK(data.train.size() == 2);
  CHECK(data.validation.size() == 2);
  CHECK(data.train.label(0) == 1);
  CHECK(text_of(data.train, 0, 0) == "a \"text\"");
  CHECK(text_of(data.train, 1, 1) == "a third");

  write(aan / "new_aan_pairs.train.tsv", "1.0\tA00\tB01\n0.0\tA00\tC02\n");
  CHECK(error_of([&] { load(config); })
            .find("train.tsv:1: the pairs are ids without texts; --set "
                  "data.papers=DIR") != std::string::npos);
  config.papers = (folder.path / "papers").string();
  write(folder.path / "papers/A00", "paper a");
  write(folder.path / "papers/B01.txt", "paper b");
  const LraData named = load(config);
  CHECK(named.train.size() == 1);
  CHECK(text_of(named.train, 0, 1) == "paper b");
  REQUIRE(named.warnings.size() == 1);
  CHECK(named.warnings[0].find("1 pairs are left out because 1 papers are not in") !=
        std::string::npos);
  CHECK(named.warnings[0].ends_with(": C02"));
  // An id is no path, and a paper without text is no document.
  write(folder.path / "papers/D03", "");
  write(aan / "new_aan_pairs.train.tsv",
        "1.0\tA00\tB01\n0.0\tA00\t../papers/B01.txt\n0.0\tA00\tD03\n0\t1\t2\ta\t\n");
  const LraData odd = load(config);
  CHECK(odd.train.size() == 1);
  REQUIRE(odd.warnings.size() == 2);
  CHECK(odd.warnings[0].ends_with(": ../papers/B01.txt"));
  CHECK(odd.warnings[1].ends_with(
      "train.tsv: 2 pairs are left out because a paper of theirs has no text"));
  write(aan / "new_aan_pairs.train.tsv", "1.0\tA00\n");
  CHECK(error_of([&] { load(config); }).find("train.tsv:1: expected label, id1, id2") !=
        std::string::npos);
}

TEST_CASE("Image: CIFAR-10's binary files become grey values, and the last tenth validates") {
  const TemporaryFolder folder("lra_image");
  const fs::path batches = folder.path / "cifar-10-batches-bin";
  const auto record = [](uint8_t label, uint8_t red, uint8_t green, uint8_t blue) {
    std::string bytes(1, static_cast<char>(label));
    for (const uint8_t channel : {red, green, blue}) bytes.append(1024, static_cast<char>(channel));
    return bytes;
  };
  for (int i = 1; i <= 5; ++i) {
    write(batches / ("data_batch_" + std::to_string(i) + ".bin"),
          record(static_cast<uint8_t>(i), 255, 255, 255) + record(0, 0, 0, 0));
  }
  write(batches / "test_batch.bin",
        record(9, 255, 0, 0) + record(8, 0, 255, 0) + record(7, 10, 20, 30));
  const LraDataConfig config = config_of(LraTaskName::image, folder.path);
  const LraData data = load(config);
  CHECK(data.train.size() == 9);
  CHECK(data.validation.size() == 1);
  CHECK(data.test.size() == 3);
  CHECK(data.train.label(2) == 2);
  CHECK(tokens_of(data.train, 0) == std::vector<int32_t>(1024, 255 + 1));
  CHECK(tokens_of(data.train, 1) == std::vector<int32_t>(1024, 0 + 1));  // black is no padding
  CHECK(tokens_of(data.test, 0)[0] == 76 + 1);                           // trunc(0.2989 * 255.5)
  CHECK(tokens_of(data.test, 1)[0] == 149 + 1);                          // trunc(0.587 * 255.5)
  CHECK(tokens_of(data.test, 2)[0] == 18 + 1);  // trunc(18.149 / 255 * 255.5)
  write(batches / "test_batch.bin", record(10, 0, 0, 0));
  CHECK(error_of([&] { load(config); }).ends_with("picture 0 is of class 10; expected 0 to 9"));
  write(batches / "test_batch.bin", "short");
  CHECK(error_of([&] {
          load(config);
        }).ends_with("5 bytes are no whole number of pictures of 3073 bytes"));
}

TEST_CASE("Pathfinder: pictures and their lists, an empty picture, and a second folder") {
  const TemporaryFolder folder("lra_pathfinder");
  const fs::path hard = folder.path / "pathfinder32/curv_contour_length_14";
  for (int list = 0; list < 3; ++list) {
    std::string lines;
    for (int i = 0; i < 5; ++i) {
      const std::string picture = "sample_" + std::to_string(i) + ".png";
      lines += "imgs/" + std::to_string(list) + " " + picture + " " + std::to_string(i) + " " +
               std::to_string(i % 2) + " 1.0 14 4 2 0.5 1 1\n";
      std::vector<uint8_t> pixels(1024);
      std::iota(pixels.begin(), pixels.end(), static_cast<uint8_t>(list * 5 + i));
      write_png(hard / "imgs" / std::to_string(list) / picture, 32, pixels);
    }
    write(hard / "metadata" / (std::to_string(list) + ".npy"), lines);
  }
  write(hard / "imgs/0/sample_4.png", "");
  LraDataConfig config = config_of(LraTaskName::pathfinder, folder.path);
  const LraData data = load(config);
  CHECK(data.train.size() == 11);
  CHECK(data.validation.size() == 1);
  CHECK(data.test.size() == 2);
  REQUIRE(data.warnings.size() == 1);
  CHECK(data.warnings[0].starts_with("lra: 1 empty picture files are left out, the first is "));
  std::set<int32_t> first_pixels;
  for (const LraSplit* split : {&data.train, &data.validation, &data.test}) {
    for (int64_t i = 0; i < split->size(); ++i) {
      const std::vector<int32_t> tokens = tokens_of(*split, i);
      CHECK(tokens.size() == 1024);
      CHECK((tokens[0] - 1) % 5 % 2 == split->label(i));
      first_pixels.insert(tokens[0] - 1);
    }
  }
  CHECK(first_pixels.size() == 14);

  const std::string absent = error_of([&] {
    LraDataConfig easy = config;
    easy.difficulty = LraDataConfig::Difficulty::easy;
    load(easy);
  });
  CHECK(absent.starts_with("lra: curv_baseline/metadata not found; looked in "));
  fs::create_directories(folder.path / "pathfinder32/pathfinder32");
  fs::copy(hard, folder.path / "pathfinder32/pathfinder32/curv_contour_length_14",
           fs::copy_options::recursive);
  CHECK(load(config).warnings[0].ends_with("has such pictures too"));
  config.resolution = 64;
  fs::rename(folder.path / "pathfinder32", folder.path / "pathfinder64");
  CHECK(
      error_of([&] { load(config); }).ends_with("is 32 x 32; expected 64 x 64 (data.resolution)"));
  config.resolution = 32;
  fs::rename(folder.path / "pathfinder64", folder.path / "pathfinder32");
  write(hard / "imgs/0/sample_1.png", "no picture");
  CHECK(error_of([&] { load(config); }).find("sample_1.png: not a readable PNG picture: ") !=
        std::string::npos);
  write(hard / "metadata/0.npy", "imgs/0 sample_0.png 0\n");
  CHECK(error_of([&] { load(config); }).find("0.npy:1: expected folder, picture, index, label") !=
        std::string::npos);
}

TEST_CASE("published LRA files load") {
  const char* shared = std::getenv("PRIMAL_TEST_DATA");
  if (shared == nullptr || !fs::exists(fs::path(shared) / "lra")) {
    WARN("skipped: PRIMAL_TEST_DATA names no folder that holds lra/");
    return;
  }
  const fs::path root = fs::path(shared) / "lra";
  const LraData listops = load(config_of(LraTaskName::listops, root / "listops/lra_format"));
  CHECK(listops.train.size() == 60);
  for (int64_t i = 0; i < listops.train.size(); ++i) {
    CHECK(listops.train.length(i, 0, 4000) > 500);
    CHECK(listops.train.length(i, 0, 4000) < 2000);
  }
  for (const char* name : {"test.tsv", "test_d20s.tsv"}) {
    ListOpsReader reader(name);
    int64_t rows = 0;
    for_file_lines(root / "listops" / name, [&](std::string_view line, int64_t number) {
      rows += reader.line(line, number) ? 1 : 0;
    });
    CHECK(rows > 100);
  }
  LraDataConfig text = config_of(LraTaskName::text, root);
  text.protocol = LraDataConfig::Protocol::paper;
  const LraData reviews = load(text);
  CHECK(reviews.train.size() > 20);
  CHECK(reviews.test.size() > 20);
  LraDataConfig pathfinder = config_of(LraTaskName::pathfinder, root);
  pathfinder.difficulty = LraDataConfig::Difficulty::intermediate;
  CHECK(load(pathfinder).train.size() == 32);
}

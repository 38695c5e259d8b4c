#include "data/readers/ts.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

const std::string kHead =
    "@problemName Toy\n@timeStamps false\n@missing false\n@univariate false\n@dimensions 2\n"
    "@equalLength false\n@classLabel true a b\n@data\n";  // the rows begin at line 9

TimeSeriesFile toy(const std::string& rows) {
  return parse_ts(kHead + rows, "Toy_TRAIN.ts");
}

std::string error_of(const std::string& text) {
  try {
    parse_ts(text, "Toy_TRAIN.ts");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string row_error(const std::string& rows) {
  return error_of(kHead + rows);
}

std::string only_warning(const TimeSeriesFile& file) {
  REQUIRE(file.warnings.size() == 1);
  return file.warnings[0];
}

// Real files, or an empty path and a visible note.
fs::path real_data() {
  const char* folder = std::getenv("PRIMAL_TEST_DATA");
  if (folder == nullptr) {
    WARN("skipped: PRIMAL_TEST_DATA is not set");
    return {};
  }
  return fs::path(folder) / "uea";
}

}  // namespace

TEST_CASE("a ts row becomes length x channels values in time order and its label", "[ts]") {
  const TimeSeriesFile file = toy("1,2,3:4,5,6:b\n-1.5,2E-1:+7,.5:a\n");
  REQUIRE(file.cases.size() == 2);
  CHECK(file.channels == 2);
  CHECK(file.cases[0].length == 3);
  CHECK(file.cases[0].values == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(file.cases[0].label == "b");
  CHECK(file.cases[0].line == 9);
  CHECK(file.cases[1].length == 2);
  CHECK(file.cases[1].values == std::vector<float>{-1.5f, 7, 0.2f, 0.5f});
  CHECK(file.labels == std::vector<std::string>{"a", "b"});
  CHECK(file.header.problem_name == "Toy");
  CHECK(file.header.dimensions == 2);
  CHECK(file.header.class_labels == std::vector<std::string>{"a", "b"});
  CHECK(file.warnings.empty());
  CHECK(file.missing_cells == 0);
}

TEST_CASE("ts tags are taken in any case, order and spelling, or left out", "[ts]") {
  const char* rows = "1,2:3,4:a\n5:6:b\n";
  const TimeSeriesFile odd = parse_ts(
      std::string("@CLASSLABEL TRUE a b\n@Dimension 2\n@TIMESTAMPS False\n@equal_length FALSE\n"
                  "@problemname Toy\n@DATA\n") +
          rows,
      "odd.ts");
  CHECK(odd.header.dimensions == 2);
  CHECK(odd.header.time_stamps == false);
  CHECK(odd.header.equal_length == false);
  CHECK(odd.header.class_labels == std::vector<std::string>{"a", "b"});
  CHECK(odd.warnings.empty());

  const TimeSeriesFile bare = parse_ts(std::string("@data\n") + rows, "bare.ts");
  CHECK(bare.channels == 2);
  CHECK(bare.labels == odd.labels);
  CHECK(bare.cases[1].values == odd.cases[1].values);
  CHECK_FALSE(bare.header.dimensions.has_value());
  CHECK(bare.warnings.empty());
}

TEST_CASE("a ts tag that is not known or has a senseless value is ignored with a warning", "[ts]") {
  CHECK(only_warning(parse_ts("@colour red\n@data\n1:a\n", "x.ts")) ==
        "uea: x.ts:1: tag '@colour' is not known and is ignored");
  CHECK(only_warning(parse_ts("\n@univariate perhaps\n@data\n1:a\n", "x.ts")) ==
        "uea: x.ts:2: @univariate is 'perhaps', expected true or false; ignored");
  CHECK(only_warning(parse_ts("@dimensions many\n@data\n1:a\n", "x.ts")) ==
        "uea: x.ts:1: @dimensions is 'many', expected a whole number; ignored");
}

TEST_CASE("a repeated ts tag warns and the last one counts", "[ts]") {
  const TimeSeriesFile file = parse_ts("@problemName One\n@problemName Two\n@data\n1:a\n", "x.ts");
  CHECK(file.header.problem_name == "Two");
  CHECK(only_warning(file) == "uea: x.ts:2: tag @problemname appears again; the last one counts");
}

TEST_CASE("ts comments, blank lines, CRLF, a byte order mark and odd bytes change nothing",
          "[ts]") {
  const TimeSeriesFile plain = toy("1,2:3,4:a\n5,6:7,8:b\n");
  std::string text = "\xEF\xBB\xBF# caf\xE9 \xFF\n%# more\n  % indented\n\n" + kHead +
                     "\n  1 , 2 :\t3,4: a \n# between\n%\n5,6:7,8:b\n\n\n";
  for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 2)) {
    text.insert(at, "\r");
  }
  const TimeSeriesFile noisy = parse_ts(text, "noisy.ts");
  REQUIRE(noisy.cases.size() == plain.cases.size());
  for (size_t i = 0; i < plain.cases.size(); ++i) {
    CHECK(noisy.cases[i].values == plain.cases[i].values);
    CHECK(noisy.cases[i].label == plain.cases[i].label);
  }
  CHECK(noisy.labels == plain.labels);
  CHECK(noisy.warnings.empty());
  CHECK(noisy.checksum != plain.checksum);
}

TEST_CASE("the last ts row needs no line end, and its absence is reported as a fact", "[ts]") {
  CHECK(toy("1:2:a\n").ends_with_line);
  const TimeSeriesFile file = toy("1:2:a");
  CHECK(file.cases.size() == 1);
  CHECK_FALSE(file.ends_with_line);
}

TEST_CASE("rows of different length under a header that claims equal length load with one warning",
          "[ts]") {
  const TimeSeriesFile claimed =
      parse_ts("@equalLength true\n@classLabel true a\n@data\n1,2,3:a\n1,2:a\n1:a\n", "x.ts");
  CHECK(claimed.cases[0].length == 3);
  CHECK(claimed.cases[2].length == 1);
  CHECK(only_warning(claimed) ==
        "uea: x.ts:5: length 2, but @equalLength is true and the first case has length 3; the rows "
        "decide");

  const TimeSeriesFile zero =
      parse_ts("@equalLength true\n@seriesLength 0\n@data\n1,2,3:a\n1,2:a\n", "x.ts");
  CHECK(zero.cases.size() == 2);
  CHECK(only_warning(zero) ==
        "uea: x.ts:4: length 3, but @seriesLength (line 2) says 0 for every case; the rows decide");

  CHECK(parse_ts("@equalLength false\n@seriesLength 3\n@data\n1,2:a\n1:a\n", "x.ts")
            .warnings.empty());
}

TEST_CASE("a ts header with the wrong number of channels warns once and the rows decide", "[ts]") {
  const TimeSeriesFile file = parse_ts("@univariate true\n@data\n1:2:3:a\n4:5:6:b\n", "x.ts");
  CHECK(file.channels == 3);
  CHECK(only_warning(file) ==
        "uea: x.ts:3: 3 channels, but @univariate is true, which means 1; the rows decide");
  CHECK(only_warning(parse_ts("@univariate true\n@dimensions 9\n@data\n1:2:3:a\n", "x.ts")) ==
        "uea: x.ts:4: 3 channels, but @dimensions (line 2) says 9; the rows decide");
}

TEST_CASE("a ts header number is never a size to allocate", "[ts]") {
  const TimeSeriesFile file = parse_ts(
      "@dimensions 9223372036854775807\n@seriesLength 9223372036854775807\n@data\n1:2:a\n", "x.ts");
  CHECK(file.channels == 2);
  CHECK(file.warnings.size() == 2);
  CHECK(parse_ts("@dimensions -1\n@data\n1:a\n", "x.ts").channels == 1);
}

TEST_CASE("a ts row with another number of channels is an error that names line and counts",
          "[ts]") {
  CHECK(row_error("1:2:a\n1:2:3:a\n") == "uea: Toy_TRAIN.ts:10: 3 channels, expected 2");
  CHECK(row_error("1:2:a\n\n1:a\n") == "uea: Toy_TRAIN.ts:11: 1 channels, expected 2");
}

TEST_CASE("ts channels of unequal length in one case name case, channel and both lengths", "[ts]") {
  CHECK(row_error("1:2:a\n1,2,3,4:5,6:b\n") ==
        "uea: Toy_TRAIN.ts:10: case 2: channel 2 has 2 values, channel 1 has 4");
}

TEST_CASE("missing ts cells become NaN and are counted", "[ts]") {
  const TimeSeriesFile file = parse_ts("@missing true\n@data\n1,?,NaN:nan,2, ? :a\n", "x.ts");
  CHECK(file.missing_cells == 4);
  const std::vector<float>& v = file.cases[0].values;
  CHECK(v[0] == 1);
  CHECK(std::isnan(v[1]));
  CHECK(std::isnan(v[2]));
  CHECK(v[3] == 2);
  CHECK(std::isnan(v[4]));
  CHECK(std::isnan(v[5]));
  CHECK(file.warnings.empty());
}

TEST_CASE("missing ts cells under '@missing false' are taken with one warning", "[ts]") {
  const TimeSeriesFile file = toy("1,2:3,?:a\n?:1:b\n");
  CHECK(file.missing_cells == 2);
  CHECK(only_warning(file) ==
        "uea: Toy_TRAIN.ts:9: case 1, channel 2, value 2 is missing (?) but @missing is false; the "
        "rows decide");
}

TEST_CASE("a ts value that is empty, infinite or no number is an error that names it", "[ts]") {
  const std::string at = "uea: Toy_TRAIN.ts:9: case 1, channel ";
  CHECK(row_error("1,,2:1,2,3:a\n") == at + "1, value 2 is empty");
  CHECK(row_error("1,2:1,:a\n") == at + "2, value 2 is empty");
  CHECK(row_error("1::a\n") == at + "2, value 1 is empty");
  CHECK(row_error(":1:a\n") == at + "1, value 1 is empty");
  CHECK(row_error("1,x9:1,2:a\n") == at + "1, value 2 is not a number: 'x9'");
  CHECK(row_error("1,2.5.1:1,2:a\n") == at + "1, value 2 is not a number: '2.5.1'");
  CHECK(row_error("1,2 3:1,2:a\n") == at + "1, value 2 is not a number: '2 3'");
  CHECK(row_error("1,0x10:1,2:a\n") == at + "1, value 2 is not a number: '0x10'");
  CHECK(row_error("1,+-3:1,2:a\n") == at + "1, value 2 is not a number: '+-3'");
  CHECK(row_error("1,1e:1,2:a\n") == at + "1, value 2 is not a number: '1e'");
  CHECK(row_error("1,nan(2):1,2:a\n") == at + "1, value 2 is not a number: 'nan(2)'");
  CHECK(row_error("1,inf:1,2:a\n") == at + "1, value 2 is infinite: 'inf'");
  CHECK(row_error("1,-Infinity:1,2:a\n") == at + "1, value 2 is infinite: '-Infinity'");
  CHECK(row_error("1,1e39:1,2:a\n") ==
        at + "1, value 2 is out of the range of 32-bit floats: '1e39'");
  CHECK(row_error("1,\x01\xFF:1,2:a\n") == at + "1, value 2 is not a number: '\\x01\\xff'");
  CHECK(row_error("1," + std::string(100, 'z') + ":1,2:a\n") ==
        at + "1, value 2 is not a number: '" + std::string(40, 'z') + "...'");
}

TEST_CASE("a ts value too small for a float is a zero of its sign", "[ts]") {
  const TimeSeriesFile file = toy("1e-60,-1e-60:1e-40,0:a\n");
  CHECK(file.cases[0].values[0] == 0);
  CHECK(file.cases[0].values[1] == Approx(1e-40f));
  CHECK(std::signbit(file.cases[0].values[2]));
}

TEST_CASE("time stamps with colons, blanks and several channels are dropped with a warning",
          "[ts]") {
  const TimeSeriesFile dates = parse_ts(
      "@timeStamps true\n@classLabel true 0 1\n@data\n"
      "(2007-01-01 00:00:00,241.97),(2007-01-01 00:01:00,?):0\n"
      "(2007-01-01 00:00:00,3),(2007-01-01 00:01:00,4):1\n",
      "x.ts");
  REQUIRE(dates.cases.size() == 2);
  CHECK(dates.channels == 1);
  CHECK(dates.cases[0].length == 2);
  CHECK(dates.cases[0].values[0] == 241.97f);
  CHECK(std::isnan(dates.cases[0].values[1]));
  CHECK(dates.cases[1].label == "1");
  CHECK(only_warning(dates) ==
        "uea: x.ts:4: time stamps are dropped: values count as evenly spaced, in file order");

  const TimeSeriesFile integers =
      parse_ts("@timeStamps true\n@data\n(0, 1), (1, 2) : (0, 3),(1, 4): up\n", "x.ts");
  CHECK(integers.channels == 2);
  CHECK(integers.cases[0].values == std::vector<float>{1, 3, 2, 4});
  CHECK(integers.cases[0].label == "up");
}

TEST_CASE("broken time stamp rows are errors that show the place", "[ts]") {
  const auto stamped = [](const std::string& row) { return error_of("@data\n" + row + "\n"); };
  const std::string at = "uea: Toy_TRAIN.ts:2: ";
  CHECK(stamped("(0,1),(1,2") == at + "no ')' after '(1,2' (is the file truncated?)");
  CHECK(stamped("(0,1),(1,2)") ==
        at + "no class label at the end of the row (is the file truncated?)");
  CHECK(stamped("(0,1):") == at + "no class label at the end of the row (is the file truncated?)");
  CHECK(stamped("(0,1),5:a") == at + "expected '(time,value)', found '5:a'");
  CHECK(stamped("(0):a") == at + "expected '(time,value)', found '(0)'");
  CHECK(stamped("(0,1)(1,2):a") == at + "expected ',' or ':' after ')', found '(1,2):a'");
  CHECK(stamped("(0,1):?:a") == at + "expected '(time,value)', found '?:a'");
  CHECK(stamped("(0,x):a") == at + "case 1, channel 1, value 1 is not a number: 'x'");
  CHECK(error_of("@data\n(0,1):a\n1,2:a\n") ==
        "uea: Toy_TRAIN.ts:3: expected '(time,value)', found '1,2:a'");
}

TEST_CASE("'@timeStamps true' over plain rows warns and the rows decide", "[ts]") {
  const TimeSeriesFile file = parse_ts("@timeStamps true\n@data\n1,2:a\n", "x.ts");
  CHECK(file.cases[0].values == std::vector<float>{1, 2});
  CHECK(only_warning(file) ==
        "uea: x.ts:3: @timeStamps is true but the rows hold plain values; the rows decide");
}

TEST_CASE("a truncated last ts row is an error that names its line", "[ts]") {
  const std::string message =
      "uea: Toy_TRAIN.ts:10: no class label at the end of the row (is the file truncated?)";
  CHECK(row_error("1,2:3,4:a\n1,2:3,4") == message);
  CHECK(row_error("1,2:3,4:a\n1,2:3,4:") == message);
  CHECK(row_error("1,2:3,4:a\n1,2") == message);
  CHECK(row_error("1,2:3,4:a\n1") == message);
  // Cut behind one value, that value reads as a label.
  CHECK(row_error("1,2:3,4:a\n1,2:3") == "uea: Toy_TRAIN.ts:10: 1 channels, expected 2");
}

TEST_CASE("every cut of a ts file is an error or a shorter file, never a crash", "[ts]") {
  const std::string whole = kHead + "1,2.25:3,?:a\n-1e3,2:3,4:b\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    try {
      const TimeSeriesFile file = parse_ts(part, "cut.ts");
      CHECK(file.cases.size() <= 2);
      CHECK(file.channels == 2);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("uea: cut.ts:"));
    }
  }
}

TEST_CASE("ts labels are opaque strings, sorted as strings", "[ts]") {
  const TimeSeriesFile file = parse_ts(
      "@classLabel true -1 1.0 10.0 2.0 Walking class_7\n@data\n1:2.0\n1:10.0\n1:1.0\n1:-1\n"
      "1:Walking\n1:class_7\n",
      "x.ts");
  CHECK(file.labels == std::vector<std::string>{"-1", "1.0", "10.0", "2.0", "Walking", "class_7"});
  CHECK(parse_ts("@data\n1:a b\n", "x.ts").labels == std::vector<std::string>{"a b"});
}

TEST_CASE("a ts label that is not UTF-8 is taken as Latin-1 on both sides", "[ts]") {
  const TimeSeriesFile file = parse_ts("@classLabel true caf\xE9\n@data\n1:caf\xE9\n", "x.ts");
  CHECK(file.labels == std::vector<std::string>{"caf\xC3\xA9"});
  CHECK(as_utf8("\xE2\x82\xAC") == "\xE2\x82\xAC");
  CHECK(as_utf8("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
  for (const char* broken : {"\x80", "\xC0\x80", "\xE2\x82", "\xED\xA0\x80", "\xE0\x80\x80",
                             "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xFF"}) {
    CHECK(as_utf8(broken) != broken);
  }
}

TEST_CASE("a ts label outside the list names file, line, label and the known ones", "[ts]") {
  CHECK(row_error("1:2:a\n1:2:c\n") ==
        "uea: Toy_TRAIN.ts:10: label 'c' is not in the @classLabel list: a, b");
  std::string many = "@classLabel true";
  for (int i = 0; i < 50; ++i) many += " k" + std::to_string(i);
  const std::string message = error_of(many + "\n@data\n1:zz\n");
  CHECK(message.find("label 'zz'") != message.npos);
  CHECK(message.find("... (50 in all)") != message.npos);
}

TEST_CASE("a ts class list may be absent or be a count", "[ts]") {
  CHECK(parse_ts("@classLabel true\n@data\n1:x\n1:y\n", "x.ts").labels.size() == 2);
  const TimeSeriesFile counted = parse_ts("@classLabel true 2\n@data\n1:x\n1:y\n", "x.ts");
  CHECK(counted.header.class_count == 2);
  CHECK(counted.header.class_labels.empty());
  CHECK(counted.warnings.empty());
  CHECK(parse_ts("@numClasses 2\n@data\n1:x\n1:y\n", "x.ts").header.class_count == 2);
  CHECK(only_warning(parse_ts("@classLabel true 3\n@data\n1:x\n1:y\n", "x.ts")) ==
        "uea: x.ts:4: the header announces 3 classes, the rows have 2; the rows decide");
}

TEST_CASE("a ts file without labels, for regression or of another format is refused", "[ts]") {
  CHECK(error_of("@targetlabel true\n@data\n1:0.5\n") ==
        "uea: Toy_TRAIN.ts:1: @targetlabel true: a regression file; task uea classifies and needs "
        "@classLabel");
  CHECK(parse_ts("@targetlabel false\n@data\n1:a\n", "x.ts").cases.size() == 1);
  CHECK(error_of("@classLabel false\n@data\n1,2\n") ==
        "uea: Toy_TRAIN.ts:1: @classLabel false: the file has no labels, and task uea needs one in "
        "every row");
  CHECK(error_of("@data\n1,2:3,4\n") ==
        "uea: Toy_TRAIN.ts:2: no class label at the end of the row (is the file truncated?)");
  CHECK(error_of("@relation m4\n@attribute series_name string\n@data\nT1:1,2\n") ==
        "uea: Toy_TRAIN.ts:1: @relation belongs to .arff and .tsf files; task uea reads .ts");
}

TEST_CASE("a ts file without @data, without rows or with rows first is an error", "[ts]") {
  CHECK(error_of("") == "uea: Toy_TRAIN.ts: the file is empty");
  CHECK(error_of("@problemName x\n") == "uea: Toy_TRAIN.ts:1: no @data line");
  CHECK(error_of("@data\n# nothing\n") == "uea: Toy_TRAIN.ts:2: no rows after @data");
  CHECK(error_of("@problemName x\n1,2:a\n@data\n") ==
        "uea: Toy_TRAIN.ts:2: expected a tag '@...', a comment or @data, found '1,2:a'");
  CHECK(error_of("version https://git-lfs.github.com/spec/v1\n")
            .starts_with("uea: Toy_TRAIN.ts:1: expected a tag"));
  CHECK(error_of("@data\n1:a\n@data\n2:a\n") ==
        "uea: Toy_TRAIN.ts:3: tag '@data' among the rows after @data");
  for (const std::string& text : {std::string(1000, '\0'), std::string("\xFF\xFE@\0d\0", 6),
                                  std::string("\xFE\xFF\0@\0d", 6), std::string("@\0d\0", 4)}) {
    CHECK(error_of(text) == "uea: Toy_TRAIN.ts: the text is UTF-16 or binary; save it as UTF-8");
  }
  CHECK(error_of("@data\r1,2:a\r3,4:b\r") ==
        "uea: Toy_TRAIN.ts: lines end in CR alone; they must end in LF or CR LF");
}

TEST_CASE("a ts path that is absent, packed or a folder says so", "[ts]") {
  const TemporaryFolder folder("ts");
  const auto message = [](const fs::path& path) {
    try {
      read_ts(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const fs::path path = folder.path / "X_TRAIN.ts";
  CHECK(message(path) == "uea: " + path.string() + ": no such file");
  std::ofstream(folder.path / "X_TRAIN.ts.gz") << "x";
  CHECK(message(path) ==
        "uea: " + path.string() + ": no such file, only X_TRAIN.ts.gz; unpack it first");
  CHECK(message(folder.path) == "uea: " + folder.path.string() + ": a folder, expected a file");
  std::ofstream(path, std::ios::binary) << kHead << "1:2:a\n";
  const TimeSeriesFile file = read_ts(path);
  CHECK(file.name == "X_TRAIN.ts");
  CHECK(file.checksum == parse_ts(kHead + "1:2:a\n", "x").checksum);
}

TEST_CASE("a ts checksum is FNV-1a over the bytes of the file", "[ts]") {
  uint64_t expected = 14695981039346656037ull;
  for (const char c : kHead + "1:2:a\n") {
    expected = (expected ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  CHECK(toy("1:2:a\n").checksum == expected);
}

TEST_CASE("published ts files load with the sizes that the archive names", "[ts][data]") {
  const fs::path root = real_data();
  if (root.empty()) return;
  struct Expected {
    const char* file;
    size_t cases;
    int64_t channels, shortest, longest;
    size_t classes;
    int64_t missing;
    size_t warnings;
  };
  const Expected table[] = {
      {"JapaneseVowels/JapaneseVowels_TRAIN.ts", 270, 12, 7, 26, 9, 0, 0},
      {"JapaneseVowels/JapaneseVowels_TEST.ts", 370, 12, 7, 29, 9, 0, 0},
      {"Handwriting/Handwriting_TRAIN.ts", 150, 3, 152, 152, 26, 0, 0},
      {"Handwriting/Handwriting_TEST.ts", 850, 3, 152, 152, 26, 0, 0},
      {"UWaveGestureLibrary/UWaveGestureLibrary_TRAIN.ts", 120, 3, 315, 315, 8, 0, 0},
      {"UWaveGestureLibrary/UWaveGestureLibrary_TEST.ts", 320, 3, 315, 315, 8, 0, 0},
      {"BasicMotions/BasicMotions_TRAIN.ts", 40, 6, 100, 100, 4, 0, 0},
      {"BasicMotions/BasicMotions_TEST.ts", 40, 6, 100, 100, 4, 0, 0},
      {"odd/DodgerLoopGame_TRAIN.ts", 20, 1, 288, 288, 2, 65, 0},
      {"odd/MinimalChinatown_TRAIN.ts", 20, 1, 24, 24, 2, 0, 0},
      {"odd/MinimalChinatown_TEST.ts", 20, 1, 24, 24, 2, 0, 0},
      {"odd/UnequalMinimalChinatown_TRAIN.ts", 20, 1, 20, 24, 2, 0, 0},
      {"odd/UnequalMinimalChinatown_TEST.ts", 20, 1, 18, 24, 2, 0, 0},
      {"odd/UnitTest_TRAIN.ts", 20, 1, 24, 24, 2, 0, 0},
      {"odd/UnitTest_TEST.ts", 22, 1, 24, 24, 2, 0, 1},
      {"odd/MinimalJapaneseVowels_TRAIN.ts", 20, 12, 10, 26, 9, 0, 0},
      {"odd/MinimalJapaneseVowels_TEST.ts", 20, 12, 10, 23, 9, 0, 0}};
  for (const Expected& e : table) {
    INFO(e.file);
    const TimeSeriesFile file = read_ts(root / e.file);
    CHECK(file.cases.size() == e.cases);
    CHECK(file.channels == e.channels);
    CHECK(file.labels.size() == e.classes);
    CHECK(file.missing_cells == e.missing);
    CHECK(file.warnings.size() == e.warnings);
    int64_t shortest = std::numeric_limits<int64_t>::max(), longest = 0, missing = 0;
    for (const TimeSeriesCase& row : file.cases) {
      shortest = std::min(shortest, row.length);
      longest = std::max(longest, row.length);
      REQUIRE(row.values.size() == static_cast<size_t>(row.length * file.channels));
      for (const float value : row.values) missing += std::isnan(value);
    }
    CHECK(shortest == e.shortest);
    CHECK(longest == e.longest);
    CHECK(missing == e.missing);
  }
}

TEST_CASE("values of a published ts file stand where the text has them", "[ts][data]") {
  const fs::path root = real_data();
  if (root.empty()) return;
  const TimeSeriesFile vowels = read_ts(root / "JapaneseVowels" / "JapaneseVowels_TRAIN.ts");
  const TimeSeriesCase& first = vowels.cases[0];
  CHECK(first.line == 16);
  CHECK(first.length == 20);
  CHECK(first.values[0] == 1.860936f);                    // channel 1, time 1
  CHECK(first.values[1] == -0.207383f);                   // channel 2, time 1
  CHECK(first.values[12] == 1.891651f);                   // channel 1, time 2
  CHECK(first.values[19 * 12] == 1.261441f);              // channel 1, last time
  CHECK(vowels.cases.back().values.back() == 0.173642f);  // last cell of the file
  CHECK(vowels.cases.back().label == "9");
  const TimeSeriesFile wave =
      read_ts(root / "UWaveGestureLibrary" / "UWaveGestureLibrary_TRAIN.ts");
  CHECK(wave.labels.front() == "1.0");  // no carriage return in it
}

TEST_CASE("published regression ts files are refused by name of the tag", "[ts][data]") {
  const fs::path root = real_data();
  if (root.empty()) return;
  for (const char* name : {"Covid3Month_TRAIN.ts", "Covid3Month_TEST.ts"}) {
    CHECK_THROWS_WITH(
        read_ts(root / "odd" / name),
        std::string("uea: ") + name +
            ":12: @targetlabel true: a regression file; task uea classifies and needs "
            "@classLabel");
  }
}

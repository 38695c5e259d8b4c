#include <omp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/lra.h"
#include "data/pathfinder_generate.h"
#include "data/readers/pathfinder.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

using Rows = std::vector<std::pair<std::string, int32_t>>;
using Point = PathfinderExample::Point;
using Stroke = PathfinderExample::Stroke;

Rows rows_of(std::string_view bytes) {
  Rows rows;
  for_pathfinder_pictures(bytes, "0.npy", [&](const std::string& picture, int32_t label) {
    rows.emplace_back(picture, label);
  });
  return rows;
}

std::string error_of(std::string_view bytes) {
  try {
    rows_of(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// An array as numpy.save() writes it.
std::string npy(const std::string& header, const std::string& elements, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  const size_t length = header.size() + 1;
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    bytes += static_cast<char>(length >> (8 * i) & 0xff);
  }
  return bytes + header + "\n" + elements;
}

/// Elements of `characters` each, of `width` bytes a character.
std::string elements_of(const std::vector<std::string>& texts, size_t characters, size_t width) {
  std::string out;
  for (std::string text : texts) {
    text.resize(characters);
    for (const char c : text) out += c + std::string(width - 1, '\0');
  }
  return out;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The brightness of the pixel that a point lies in.
int pixel(const PathfinderExample& example, Point p) {
  return example.image.pixels[static_cast<size_t>(static_cast<int64_t>(p.y) * example.image.width +
                                                  static_cast<int64_t>(p.x))];
}

/// The smallest distance of points along two strokes.
double sampled_distance(const Stroke& a, const Stroke& b) {
  const auto at = [](const Stroke& s, int i) {
    const double t = i / 10.0;
    return Point{s.begin.x + t * (s.end.x - s.begin.x), s.begin.y + t * (s.end.y - s.begin.y)};
  };
  double least = 1e9;
  for (int i = 0; i <= 10; ++i) {
    for (int k = 0; k <= 10; ++k) {
      const Point p = at(a, i);
      const Point q = at(b, k);
      least = std::min(least, std::hypot(p.x - q.x, p.y - q.y));
    }
  }
  return least;
}

bool same(Point a, Point b) {
  return std::hypot(a.x - b.x, a.y - b.y) < 1e-9;
}

}  // namespace

TEST_CASE("Pathfinder lists are read as text and as NumPy arrays of either width and order") {
  const Rows expected{{"imgs/0/sample_0.png", 1}, {"imgs/0/sample_1.png", 0}};
  CHECK(rows_of("imgs/0 sample_0.png 0 1 1.0 14\n\nimgs/0  sample_1.png 1 0.0 1.0 14\r\n") ==
        expected);
  const std::vector<std::string> rows{"imgs/0", "sample_0.png", "0", "1", "1.0",
                                      "imgs/0", "sample_1.png", "1", "0", "1.0"};
  std::vector<std::string> columns;
  for (size_t i = 0; i < 5; ++i) {
    columns.push_back(rows[i]);
    columns.push_back(rows[i + 5]);
  }
  for (const int version : {1, 2, 3}) {
    CHECK(rows_of(npy("{'descr': '<U32', 'fortran_order': False, 'shape': (2, 5), }",
                      elements_of(rows, 32, 4), version)) == expected);
  }
  CHECK(rows_of(npy("{'descr': '|S12', 'fortran_order': False, 'shape': (2, 5), }   ",
                    elements_of(rows, 12, 1))) == expected);
  CHECK(rows_of(npy("{'descr': '<U12', 'fortran_order': True, 'shape': (2, 5), }",
                    elements_of(columns, 12, 4))) == expected);
  const std::vector<std::string> one(rows.begin(), rows.begin() + 5);
  CHECK(rows_of(npy("{'descr': '<U12', 'fortran_order': False, 'shape': (5,), }",
                    elements_of(one, 12, 4))) == Rows{expected.front()});
}

TEST_CASE("a Pathfinder list that is none is one line: what was expected and what was found") {
  CHECK(error_of("imgs/0 sample_0.png 0 1\nimgs/0 sample_1.png 1 2\n") ==
        "lra: 0.npy:2: expected folder, picture, index, label (0 or 1), ..., found 'imgs/0 "
        "sample_1.png 1 2'");
  CHECK(error_of("imgs/0 sample_0.png 0\n").starts_with("lra: 0.npy:1: expected folder,"));
  const auto array = [](const std::string& header, const std::string& elements = "") {
    return error_of(npy(header, elements));
  };
  const std::string texts = elements_of({"imgs/0", "a.png", "0", "7"}, 6, 4);
  CHECK(array("{'descr': '<U6', 'fortran_order': False, 'shape': (1, 4), }", texts) ==
        "lra: 0.npy: row 0: expected folder, picture, index, label (0 or 1), ..., found 'imgs/0 "
        "a.png 0 7'");
  CHECK(array("{'descr': '|O', 'fortran_order': False, 'shape': (1, 4), }", "pickle") ==
        "lra: 0.npy: is a NumPy array of type ''|O''; expected one of texts, (rows, columns), or "
        "lines of text");
  for (const char* type : {"'<i8'", "'<f4'", "'>U6'", "'<U0'", "'<U'", "'<U99999999999999999999'",
                           "[('a', '<U6')]", ""}) {
    CHECK_THAT(array(std::string("{'descr': ") + type + ", 'shape': (1, 4), }", texts),
               ContainsSubstring("is a NumPy array of type"));
  }
  for (const char* shape : {"()", "(0, 4)", "(1, 0)", "(1, 2, 2)", "(1, 4", "", "(-1, 4)",
                            "(1, 99999999999999999999)", "(4611686018427387904, 4)"}) {
    const std::string message =
        array(std::string("{'descr': '<U6', 'fortran_order': False, 'shape': ") + shape, texts);
    CAPTURE(shape, message);
    CHECK((shape == std::string("(1, 4") || message.find("of shape") != message.npos));
  }
  for (const char* shape : {"(2, 4)", "(1, 5)", "(1, 3)"}) {
    CHECK_THAT(array(std::string("{'descr': '<U6', 'shape': ") + shape + "}", texts),
               ContainsSubstring("96 bytes are too many or too few"));
  }
  CHECK_THAT(error_of("\x93NUMPY"), ContainsSubstring("without a header"));
  CHECK_THAT(error_of(npy("{}", "").substr(0, 11)), ContainsSubstring("header ends too early"));
}

TEST_CASE("generated Pathfinder pictures: discs on one contour's ends or on two contours") {
  PathfinderOptions options;
  for (const auto& [side, strokes] : {std::pair<int64_t, int64_t>{32, 14}, {32, 6}, {128, 9}}) {
    options.side = side;
    options.contour_strokes = strokes;
    const double unit = static_cast<double>(side) / 32;
    int joined = 0;
    for (int64_t index = 0; index < 20; ++index) {
      CAPTURE(side, strokes, index);
      const PathfinderExample example = draw_pathfinder(options, index);
      joined += example.joined ? 1 : 0;
      REQUIRE(std::ssize(example.contours) == 2 + 20 / (strokes / 3));
      const auto& first = example.contours[0];
      const auto& second = example.contours[1];
      CHECK(same(example.discs[0], first.front().begin));
      CHECK(same(example.discs[1], example.joined ? first.back().end : second.front().begin));
      CHECK(std::hypot(example.discs[0].x - example.discs[1].x,
                       example.discs[0].y - example.discs[1].y) >= 7 * unit);
      double nearest = 1e9;
      for (size_t a = 0; a < example.contours.size(); ++a) {
        CHECK(std::ssize(example.contours[a]) == (a < 2 ? strokes : strokes / 3));
        for (size_t i = 0; i < example.contours[a].size(); ++i) {
          const Stroke& stroke = example.contours[a][i];
          for (size_t b = 0; b < example.contours.size(); ++b) {
            for (size_t k = 0; k < example.contours[b].size(); ++k) {
              if (a == b && (i < k ? k - i : i - k) < 2) continue;
              nearest = std::min(nearest, sampled_distance(stroke, example.contours[b][k]));
            }
          }
          for (const Point p : {stroke.begin, stroke.end}) {
            CHECK(std::min(p.x, p.y) >= unit);
            CHECK(std::max(p.x, p.y) <= 31 * unit);
          }
          // The middle of a stroke is painted, if it lies on a corner of four pixels, a quarter
          // each.
          const Point middle{(stroke.begin.x + stroke.end.x) / 2,
                             (stroke.begin.y + stroke.end.y) / 2};
          CHECK(pixel(example, middle) > 30);
        }
      }
      CHECK(nearest >= 1.5 * unit - 1e-9);
      for (const Point disc : example.discs) {
        CHECK(pixel(example, disc) > 200);
      }
      const auto dark = std::ranges::count(example.image.pixels, uint8_t{0});
      CHECK(dark > side * side / 3);
    }
    CHECK(joined == 10);
  }
}

TEST_CASE("generated Pathfinder data sets are a function of the seed and load as the release") {
  const TemporaryFolder one("pathfinder_one");
  const TemporaryFolder two("pathfinder_two");
  PathfinderOptions options;
  options.examples = 1040;
  const int threads = omp_get_max_threads();
  const fs::path place = generate_pathfinder(options, one.path);
  omp_set_num_threads(1);
  generate_pathfinder(options, two.path);
  omp_set_num_threads(threads);
  CHECK(place == one.path / "pathfinder32/curv_contour_length_14");
  const std::string list = text_of(place / "metadata/0.npy");
  CHECK(rows_of(list).size() == 1000);
  CHECK(list.substr(0, list.find(' ', 25)).starts_with("imgs/0 sample_0.png 0 "));
  CHECK_THAT(list, ContainsSubstring(" 1.0 14 4 2 0.5 1 1\n"));
  for (const char* name :
       {"metadata/0.npy", "metadata/1.npy", "imgs/0/sample_999.png", "imgs/1/sample_39.png"}) {
    CHECK(text_of(place / name) ==
          text_of(two.path / "pathfinder32/curv_contour_length_14" / name));
  }
  LraDataConfig config;
  config.name = LraTaskName::pathfinder;
  config.root = one.path.string();
  config.cache = "none";
  const LraData data = load_lra(config, 1, {}, [] {});
  CHECK(data.train.size() == 832);
  CHECK(data.validation.size() == 104);
  CHECK(data.test.size() == 104);
  int64_t ones = 0;
  for (const LraSplit* split : {&data.train, &data.validation, &data.test}) {
    for (int64_t i = 0; i < split->size(); ++i) ones += split->label(i);
  }
  CHECK(ones == 520);

  const auto again = [&](const PathfinderOptions& with) {
    try {
      generate_pathfinder(with, one.path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(again(options) ==
        fmt::format("generate: {} is there already; --overwrite replaces it", place.string()));
  PathfinderOptions other = options;
  other.overwrite = true;
  other.seed = 2;
  other.examples = 10;
  CHECK(again(other).empty());
  CHECK(rows_of(text_of(place / "metadata/0.npy")).size() == 10);
  CHECK(!fs::exists(place / "metadata/1.npy"));
  CHECK(!fs::exists(place / "imgs/1"));
  CHECK(text_of(place / "imgs/0/sample_0.png") !=
        text_of(two.path / "pathfinder32/curv_contour_length_14/imgs/0/sample_0.png"));
  other.examples = 0;
  CHECK(again(other) == "generate: there must be at least 1 example, got 0");
  CHECK(rows_of(text_of(place / "metadata/0.npy")).size() == 10);
  // What a stopped run left behind is no part of the next one.
  fs::create_directories(place.parent_path() / ("." + place.filename().string() + ".tmp-1") /
                         "imgs/7");
  other.examples = 20;
  CHECK(again(other).empty());
  CHECK(rows_of(text_of(place / "metadata/0.npy")).size() == 20);
  CHECK(!fs::exists(place / "imgs/7"));
  CHECK(std::distance(fs::directory_iterator(place.parent_path()), fs::directory_iterator()) == 1);
}

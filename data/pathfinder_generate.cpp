#include "data/pathfinder_generate.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"

namespace primal {
namespace {

namespace fs = std::filesystem;
using Point = PathfinderExample::Point;
using Stroke = PathfinderExample::Stroke;
using Contour = PathfinderExample::Contour;

// The release's settings for pictures of 32 pixels, in pixels.
constexpr double kStroke = 2;           // length
constexpr double kHalfThickness = 0.5;  // of a stroke
constexpr double kMargin = 1;           // before and behind a stroke, and beside it
constexpr double kPadding = 1;          // of the picture's rim
constexpr double kDiscRadius = 1.5;
constexpr double kDiscDistance = 7;
constexpr double kStrokeContrast = 0.75;
constexpr int64_t kDistractingStrokes = 20;
constexpr double kClearance = kHalfThickness + kMargin;
constexpr double kLargestTurn = std::numbers::pi / 4;  // from stroke to stroke

constexpr int64_t kPicturesInFolder = 1000;

Point operator+(Point a, Point b) {
  return {a.x + b.x, a.y + b.y};
}
Point operator-(Point a, Point b) {
  return {a.x - b.x, a.y - b.y};
}
Point operator*(double s, Point a) {
  return {s * a.x, s * a.y};
}
double dot(Point a, Point b) {
  return a.x * b.x + a.y * b.y;
}
double distance(Point a, Point b) {
  return std::sqrt(dot(a - b, a - b));
}
Point direction(double angle) {
  return {std::cos(angle), std::sin(angle)};
}

double distance(Point p, const Stroke& s) {
  const Point along = s.end - s.begin;
  const double t = std::clamp(dot(p - s.begin, along) / dot(along, along), 0.0, 1.0);
  return distance(p, s.begin + t * along);
}

/// Of two strokes that do not cross: one of the four ends is nearest to the other stroke.
double distance(const Stroke& a, const Stroke& b) {
  return std::min(
      {distance(a.begin, b), distance(a.end, b), distance(b.begin, a), distance(b.end, a)});
}

bool cross(const Stroke& a, const Stroke& b) {
  const auto side = [](const Stroke& s, Point p) {
    const Point along = s.end - s.begin;
    const Point to = p - s.begin;
    return along.x * to.y - along.y * to.x;
  };
  return side(a, b.begin) * side(a, b.end) < 0 && side(b, a.begin) * side(b, a.end) < 0;
}

/// Draws one picture, all lengths in units of a 32nd of its side.
class Drawing {
 public:
  Drawing(const PathfinderOptions& options, int64_t index)
      : strokes_(options.contour_strokes),
        random_(options.seed, hash_name("pathfinder", static_cast<uint64_t>(index))),
        // One of each pair, which one is left to chance.
        joined_((RandomStream(options.seed,
                              hash_name("pathfinder.labels", static_cast<uint64_t>(index / 2)))
                     .bits() +
                 static_cast<uint64_t>(index)) %
                    2 ==
                0) {
    while (!try_all()) {
    }
  }

  PathfinderExample render(int64_t side) {
    const double unit = static_cast<double>(side) / 32;
    PathfinderExample example{{}, joined_, contours_, discs_};
    GrayImage& image = example.image;
    image.width = image.height = side;
    image.pixels.resize(static_cast<size_t>(side * side));
    const auto paint = [&](Point low, Point high, double contrast, auto&& inside) {
      constexpr int kSamples = 4;  // of a pixel, in each direction
      const auto first = [&](double at) {
        return std::max<int64_t>(0, std::llround(at * unit) - 2);
      };
      const auto last = [&](double at) {
        return std::min<int64_t>(side - 1, std::llround(at * unit) + 2);
      };
      for (int64_t y = first(low.y); y <= last(high.y); ++y) {
        for (int64_t x = first(low.x); x <= last(high.x); ++x) {
          int covered = 0;
          for (int i = 0; i < kSamples * kSamples; ++i) {
            const double dx = (i % kSamples + 0.5) / kSamples;
            const int row = i / kSamples;
            const double dy = (row + 0.5) / kSamples;
            covered += inside(Point{(static_cast<double>(x) + dx) / unit,
                                    (static_cast<double>(y) + dy) / unit})
                           ? 1
                           : 0;
          }
          uint8_t& pixel = image.pixels[static_cast<size_t>(y * side + x)];
          pixel = std::max(pixel, static_cast<uint8_t>(std::lround(255 * contrast * covered /
                                                                   (kSamples * kSamples))));
        }
      }
    };
    for (const Contour& contour : contours_) {
      for (const Stroke& s : contour) {
        paint({std::min(s.begin.x, s.end.x), std::min(s.begin.y, s.end.y)},
              {std::max(s.begin.x, s.end.x), std::max(s.begin.y, s.end.y)}, kStrokeContrast,
              [&](Point p) { return distance(p, s) <= kHalfThickness; });
      }
    }
    const Point radius{kDiscRadius, kDiscRadius};
    for (const Point disc : discs_) {
      paint(disc - radius, disc + radius, 1,
            [&](Point p) { return distance(p, disc) <= kDiscRadius; });
    }
    const auto scale = [&](Point& p) { p = unit * p; };
    for (Contour& contour : example.contours) {
      for (Stroke& s : contour) {
        scale(s.begin);
        scale(s.end);
      }
    }
    for (Point& disc : example.discs) scale(disc);
    return example;
  }

 private:
  /// All contours and discs, or false when there was no room for one.
  bool try_all() {
    contours_.clear();
    const int64_t distractor = std::max<int64_t>(1, strokes_ / 3);
    for (int i = 0; i < 2; ++i) {
      if (!add_contour(strokes_)) return false;
    }
    for (int64_t i = 0; i < kDistractingStrokes / distractor; ++i) {
      if (!add_contour(distractor)) return false;
    }
    discs_ = {contours_[0].front().begin,
              joined_ ? contours_[0].back().end : contours_[1].front().begin};
    return distance(discs_[0], discs_[1]) >= kDiscDistance;
  }

  bool add_contour(int64_t strokes) {
    constexpr int kTries = 50;
    for (int i = 0; i < kTries; ++i) {
      Contour contour;
      while (std::ssize(contour) < strokes && add_stroke(contour)) {
      }
      if (std::ssize(contour) == strokes) {
        contours_.push_back(std::move(contour));
        return true;
      }
    }
    return false;
  }

  bool add_stroke(Contour& contour) {
    constexpr int kTries = 8;
    for (int i = 0; i < kTries; ++i) {
      Stroke stroke{};
      double angle = 0;
      if (contour.empty()) {
        angle = uniform(0, 2 * std::numbers::pi);
        stroke.begin = {uniform(kPadding, 32 - kPadding), uniform(kPadding, 32 - kPadding)};
      } else {
        // The gap points half way between the old direction and the new one.
        const double turn = uniform(-kLargestTurn, kLargestTurn);
        angle = angle_ + turn;
        stroke.begin = contour.back().end + 2 * kMargin * direction(angle_ + turn / 2);
      }
      stroke.end = stroke.begin + kStroke * direction(angle);
      if (!fits(stroke, contour)) continue;
      contour.push_back(stroke);
      angle_ = angle;
      return true;
    }
    return false;
  }

  bool fits(const Stroke& stroke, const Contour& own) const {
    const auto outside = [](double at) { return at < kPadding || at > 32 - kPadding; };
    const auto far = [&](const Stroke& other) {
      return !cross(stroke, other) && distance(stroke, other) >= kClearance;
    };
    for (const Point p : {stroke.begin, stroke.end}) {
      if (outside(p.x) || outside(p.y)) return false;
    }
    for (const Contour& contour : contours_) {
      if (!std::ranges::all_of(contour, far)) return false;
    }
    return own.empty() || std::all_of(own.begin(), own.end() - 1, far);
  }

  double uniform(double low, double high) { return low + (high - low) * random_.uniform(); }

  int64_t strokes_;
  RandomStream random_;
  bool joined_;
  double angle_ = 0;  // of the contour's last stroke
  std::vector<Contour> contours_;
  std::array<Point, 2> discs_{};
};

void write_png(const GrayImage& image, const fs::path& path) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&header, path.c_str(), 0, image.pixels.data(), 0, nullptr) == 0) {
    fail("{}: cannot be written: {}", path.string(), header.message);
  }
}

/// One line of a list, as the release's: folder, picture, index, label, continuity, strokes of a
/// contour and of a distractor, length, thickness and margin of a stroke, number of contrasts.
std::string list_line(const PathfinderOptions& options, int64_t folder, int64_t k, bool joined) {
  return fmt::format("imgs/{} sample_{}.png {} {} 1.0 {} {} {} {} {} 1\n", folder, k, k,
                     joined ? 1 : 0, options.contour_strokes, options.contour_strokes / 3, kStroke,
                     kHalfThickness, kMargin);
}

}  // namespace

PathfinderExample draw_pathfinder(const PathfinderOptions& options, int64_t index) {
  return Drawing(options, index).render(options.side);
}

fs::path generate_pathfinder(const PathfinderOptions& options, const fs::path& folder) {
  if (options.examples < 1) {
    fail("generate: there must be at least 1 example, got {}", options.examples);
  }
  fs::path place = folder / fmt::format("pathfinder{}", options.side) /
                   (options.contour_strokes == 6
                        ? "curv_baseline"
                        : fmt::format("curv_contour_length_{}", options.contour_strokes));
  std::error_code none;
  if (fs::exists(place, none) && !fs::is_empty(place, none) && !options.overwrite) {
    fail("generate: {} is there already; --overwrite replaces it", place.string());
  }
  make_directories(place.parent_path());
  clean_transactions(place.parent_path(), {place.filename().string()});
  DirectoryTransaction transaction(place);  // what is there stays until all is drawn
  const fs::path& drawn = transaction.temporary();
  std::vector<std::string> texts;
  for (int64_t first = 0; first < options.examples; first += kPicturesInFolder) {
    const int64_t number = first / kPicturesInFolder;
    const int64_t count = std::min(kPicturesInFolder, options.examples - first);
    const fs::path pictures = drawn / "imgs" / std::to_string(number);
    make_directories(pictures);
    std::vector<char> joined(static_cast<size_t>(count));
    std::string error;
#pragma omp parallel for schedule(dynamic, 8)
    for (int64_t k = 0; k < count; ++k) {
      const PathfinderExample example = draw_pathfinder(options, first + k);
      joined[static_cast<size_t>(k)] = example.joined ? 1 : 0;
      try {
        write_png(example.image, pictures / fmt::format("sample_{}.png", k));
      } catch (const Error& failed) {
#pragma omp critical
        error = failed.what();
      }
    }
    if (!error.empty()) throw Error(error);
    std::string& text = texts.emplace_back();
    for (int64_t k = 0; k < count; ++k) {
      text += list_line(options, number, k, joined[static_cast<size_t>(k)] != 0);
    }
  }
  make_directories(drawn / "metadata");
  for (size_t i = 0; i < texts.size(); ++i) {
    write_file_atomically(drawn / "metadata" / fmt::format("{}.npy", i), texts[i]);
  }
  transaction.commit();
  return place;
}

}  // namespace primal

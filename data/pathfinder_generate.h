#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/readers/png.h"

namespace primal {

/// Pictures of the kind of the Pathfinder task (Linsley et al., 2018) in the form in which the Long
/// Range Arena has them: two long dashed contours, short ones to distract, and two discs, which lie
/// on the ends of one long contour (label 1) or on an end of each (label 0).
struct PathfinderOptions {
  uint64_t seed = 1;
  int64_t examples = 200000;
  int64_t side = 32;             ///< pixels; lengths of what is drawn grow with it
  int64_t contour_strokes = 14;  ///< of a long contour; 6 is called easy, 9 intermediate, 14 hard
  bool overwrite = false;
};

struct PathfinderExample {
  struct Point {
    double x, y;  ///< pixels from the top left corner
  };
  struct Stroke {
    Point begin, end;
  };
  using Contour = std::vector<Stroke>;

  GrayImage image;
  bool joined = false;
  std::vector<Contour> contours;  ///< the two long ones first
  std::array<Point, 2> discs{};
};

/// Picture number `index` of a seed: a function of the arguments alone. Of pictures 2 i and 2 i + 1
/// one is joined. No stroke comes nearer to one of another contour, or to one of its own but its
/// neighbours, than 1.5 pixels at a side of 32.
PathfinderExample draw_pathfinder(const PathfinderOptions& options, int64_t index);

/// Writes pictures and lists, 1000 to each, as the release names them, to
/// `folder`/pathfinder32/curv_contour_length_14 (or what side and strokes say) and returns that.
/// The same options give the same bytes, for any number of threads. The lists come last: a folder
/// whose writing was interrupted has none. Error when there are lists already and overwrite is not
/// set.
std::filesystem::path generate_pathfinder(const PathfinderOptions& options,
                                          const std::filesystem::path& folder);

}  // namespace primal

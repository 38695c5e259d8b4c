#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace primal {

struct GrayImage {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  ///< row by row, 0 black
};

/// A PNG picture as 8-bit grey values. Error when it is damaged.
GrayImage read_gray_png(const std::filesystem::path& path);

}  // namespace primal

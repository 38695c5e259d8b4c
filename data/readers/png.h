#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace primal {

struct GrayImage {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  ///< row by row, 0 black
};

/// A PNG picture as 8-bit grey values. Error when it is damaged.
GrayImage read_gray_png(const std::filesystem::path& path);

/// The same from memory; `name` is used in the message.
GrayImage parse_gray_png(std::span<const std::byte> bytes, std::string_view name);

}  // namespace primal

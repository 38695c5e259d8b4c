#include "data/readers/png.h"

#include <png.h>

#include "core/error.h"
#include "core/files.h"

namespace primal {

GrayImage read_gray_png(const std::filesystem::path& path) {
  constexpr int64_t kLargest = 1 << 14;  // a side: what claims more is damaged
  const std::vector<std::byte> bytes = read_file(path);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  GrayImage out;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0) {
    out.width = image.width;
    out.height = image.height;
    if (out.width <= kLargest && out.height <= kLargest) {
      image.format = PNG_FORMAT_GRAY;
      out.pixels.resize(PNG_IMAGE_SIZE(image));
      if (png_image_finish_read(&image, nullptr, out.pixels.data(), 0, nullptr) != 0) return out;
    }
  }
  const std::string reason =
      image.message[0] != 0 ? image.message
                            : fmt::format("{} x {} pixels are too many", out.width, out.height);
  png_image_free(&image);
  fail("{}: not a readable PNG picture: {}", path.string(), reason);
}

}  // namespace primal

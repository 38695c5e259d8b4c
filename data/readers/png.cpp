#include "data/readers/png.h"

#include <png.h>

#include <cstring>
#include <string>

#include "core/error.h"
#include "core/files.h"

namespace primal {
namespace {

/// Whether a chunk before the pixels claims more bytes than the whole file has; libpng takes memory
/// for it before it notices.
bool has_endless_chunk(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<png_const_bytep>(bytes.data());
  constexpr size_t kSignature = 8;
  if (bytes.size() < kSignature || png_sig_cmp(data, 0, kSignature) != 0) return false;
  for (size_t at = kSignature; at + 8 <= bytes.size();) {  // length, type, data, checksum
    const size_t length = png_get_uint_32(data + at);
    if (length > bytes.size()) return true;
    if (std::memcmp(data + at + 4, "IDAT", 4) == 0) return false;
    at += 12 + length;
  }
  return false;
}

}  // namespace

GrayImage read_gray_png(const std::filesystem::path& path) {
  return parse_gray_png(read_file(path), path.string());
}

GrayImage parse_gray_png(std::span<const std::byte> bytes, std::string_view name) {
  constexpr int64_t kLargest = 1 << 14;  // a side: what claims more is damaged
  // A byte of a PNG file unpacks to at most 1032, each of at most eight pixels.
  const auto most = static_cast<int64_t>(bytes.size()) * 1032 * 8;
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  GrayImage out;
  std::string reason;
  if (has_endless_chunk(bytes)) {
    reason = "a chunk claims more bytes than the file has";
  } else if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0) {
    out.width = image.width;
    out.height = image.height;
    if (out.width > kLargest || out.height > kLargest || out.width * out.height > most) {
      reason = fmt::format("{} x {} pixels are too many", out.width, out.height);
    } else {
      image.format = PNG_FORMAT_GRAY;
      out.pixels.resize(PNG_IMAGE_SIZE(image));
      if (png_image_finish_read(&image, nullptr, out.pixels.data(), 0, nullptr) != 0) return out;
    }
  }
  // Where the size is the reason, the message may hold a mere warning.
  if (reason.empty()) reason = image.message;
  png_image_free(&image);
  fail("{}: not a readable PNG picture: {}", name, reason);
}

}  // namespace primal

#include "data/readers/png.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "tests/catch.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

fs::path seed(const char* name) {
  return fs::path(PRIMAL_SOURCE_DIR) / "tests/fuzz/seeds/png" / name;
}

/// What is said of a damaged picture.
std::string reason_of(const char* name) {
  try {
    parse_gray_png(read_file(seed(name)), "a.png");
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::string_view start = "a.png: not a readable PNG picture: ";
    REQUIRE(message.starts_with(start));
    return message.substr(start.size());
  }
  return "no error";
}

}  // namespace

TEST_CASE("PNG: grey values come row by row, of any kind of picture") {
  const GrayImage gray = read_gray_png(seed("gray.png"));
  CHECK(gray.width == 2);
  CHECK(gray.height == 2);
  CHECK(gray.pixels == std::vector<uint8_t>{0x00, 0x55, 0xAA, 0xFF});
  CHECK(read_gray_png(seed("interlaced.png")).pixels ==
        std::vector<uint8_t>{0x10, 0x20, 0x30, 0x40});
  CHECK(read_gray_png(seed("one_bit.png")).pixels == std::vector<uint8_t>{255, 0, 255, 0, 255, 0});
}

TEST_CASE("PNG: a picture that claims more than its file can hold takes no memory") {
  CHECK(reason_of("side_too_large.png") == "20000 x 1 pixels are too many");
  CHECK(reason_of("more_pixels_than_bytes.png") == "16384 x 16384 pixels are too many");
  CHECK(reason_of("chunk_past_the_end.png") == "a chunk claims more bytes than the file has");
  CHECK(reason_of("text_longer_than_the_file.png") ==
        "a chunk claims more bytes than the file has");
  // The file's wrong checksum is only a warning; the size is why it is refused.
  CHECK(reason_of("warning_and_too_large.png") == "20000 x 1 pixels are too many");
}

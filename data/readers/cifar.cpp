#include "data/readers/cifar.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace primal {
namespace {

/// The grey value by which the released code made the task from colours: ITU-R 601 weights on
/// [0, 1], scaled back and cut to a whole number.
uint8_t gray(uint8_t red, uint8_t green, uint8_t blue) {
  const float value = 0.2989F * (static_cast<float>(red) / 255) +
                      0.587F * (static_cast<float>(green) / 255) +
                      0.114F * (static_cast<float>(blue) / 255);
  return static_cast<uint8_t>(std::min(255.0F, value * 255.5F));
}

}  // namespace

void for_cifar_pictures(std::string_view bytes, std::string_view name,
                        const std::function<void(std::string_view, int32_t)>& f) {
  constexpr int64_t kPixels = 1024;
  constexpr int64_t kRecord = 1 + 3 * kPixels;
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    fail("lra: {}: {} bytes are no whole number of pictures of {} bytes", name, bytes.size(),
         kRecord);
  }
  std::string pixels(kPixels, '\0');
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    const auto* record = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    if (record[0] > 9) {
      fail("lra: {}: picture {} is of class {}; expected 0 to 9", name, at / kRecord, record[0]);
    }
    for (int64_t i = 0; i < kPixels; ++i) {
      pixels[i] = static_cast<char>(
          gray(record[1 + i], record[1 + kPixels + i], record[1 + 2 * kPixels + i]));
    }
    f(pixels, record[0]);
  }
}

}  // namespace primal

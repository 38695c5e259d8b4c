#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace primal {

/// Calls f(line, number) for each line of a text, numbers from 1; lines end in LF or CR LF, which
/// they are given without. A byte order mark at the start is left out.
template <class F>
void for_lines(std::string_view text, F&& f) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    f(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The same for a file, of which one line at a time is in memory. Returns the 64-bit FNV-1a
/// checksum of its bytes. Error when it cannot be read.
uint64_t for_file_lines(const std::filesystem::path& path,
                        const std::function<void(std::string_view, int64_t)>& f);

/// 0 or 1 of "0", "0.0", "neg", "1", "1.0", "pos"; -1 of anything else.
int32_t binary_label(std::string_view word);

/// A piece of a file for a message: short, and printable whatever its bytes are.
inline std::string quote(std::string_view text) {
  constexpr size_t kLongest = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace primal

#include "data/readers/lines.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "core/rng.h"

namespace primal {

uint64_t for_file_lines(const std::filesystem::path& path,
                        const std::function<void(std::string_view, int64_t)>& f) {
  std::ifstream file(path, std::ios::binary);
  uint64_t checksum = hash_name("");
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    checksum = hash_name(line, checksum);
    if (!file.eof()) checksum = hash_name("\n", checksum);
    std::string_view text = line;
    if (number == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (text.ends_with('\r')) text.remove_suffix(1);
    f(text, number);
  }
  if (!file.is_open() || file.bad()) {
    fail("{}: cannot be read: {}", path.string(), std::generic_category().message(errno));
  }
  return checksum;
}

int32_t binary_label(std::string_view word) {
  if (word == "0" || word == "0.0" || word == "neg") return 0;
  if (word == "1" || word == "1.0" || word == "pos") return 1;
  return -1;
}

}  // namespace primal

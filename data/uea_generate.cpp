#include "data/uea_generate.h"

#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kClasses = 4;
constexpr int64_t kChannels = 3;
constexpr int64_t kShortest = 16, kLongest = 32;
constexpr int64_t kMostCases = 1'000'000;
constexpr std::array<std::string_view, kClasses> kLabels = {"falling-fast", "falling-slow",
                                                            "rising-fast", "rising-slow"};

// Values are whole thousandths and the arithmetic is on integers, so that no machine's rounding or
// math library shows in the files.

// Between -bound and bound, humped in the middle.
int64_t noise(RandomStream& random, int64_t bound) {
  const auto draw = [&] { return static_cast<int64_t>(random.below(uint64_t(bound) + 1)); };
  return draw() + draw() - bound;
}

// A triangle wave of amplitude 1000 and the given period, in eighths of a time step.
int64_t triangle(int64_t time, int64_t period) {
  const int64_t phase = time % period;
  return std::abs(4000 * phase / period - 2000) - 1000;
}

std::string thousandths(int64_t value) {
  const int64_t size = std::abs(value);
  return fmt::format("{}{}.{:03}", value < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string one_case(int64_t label, RandomStream& random) {
  const bool rising = label / 2 == 1, slow = label % 2 == 1;
  const int64_t length =
      kShortest + static_cast<int64_t>(random.below(uint64_t{kLongest - kShortest + 1}));
  const int64_t period = slow ? 8 * 12 : 8 * 4;
  const int64_t shift = static_cast<int64_t>(random.below(8));  // less than one time step
  std::array<std::string, kChannels> channels;
  for (int64_t t = 0; t < length; ++t) {
    const int64_t ramp = 2000 * t / (length - 1) - 1000;
    const std::array<int64_t, kChannels> values = {
        (rising ? ramp : -ramp) + noise(random, 500),
        triangle(8 * t + shift, period) + noise(random, 500), noise(random, 1000)};
    for (size_t c = 0; c < channels.size(); ++c) {
      if (t > 0) channels[c] += ',';
      channels[c] += thousandths(values[c]);
    }
  }
  std::string row;
  for (const std::string& channel : channels) row += channel + ':';
  return row + std::string(kLabels[static_cast<size_t>(label)]) + '\n';
}

std::string file_text(const GenerateOptions& options, std::string_view part, int64_t cases) {
  std::string text = fmt::format(
      "# Generated data: the first channel rises or falls, the second swings fast or slowly, the "
      "third is noise.\n"
      "# seed {}, {} cases\n"
      "@problemName {}\n@timeStamps false\n@missing false\n@univariate false\n@dimensions {}\n"
      "@equalLength false\n@classLabel true {}\n@data\n",
      options.seed, cases, options.name, kChannels, fmt::join(kLabels, " "));
  RandomStream random(options.seed, hash_name(fmt::format("uea.generate.{}", part)));
  for (int64_t i = 0; i < cases; ++i) text += one_case(i % kClasses, random);
  return text;
}

// Whether `text` still has to be written to `path`.
bool is_new(const fs::path& path, const std::string& text, bool overwrite) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return true;
  if (fs::is_regular_file(path, ignored) && read_text_file(path) == text) return false;
  if (overwrite) return true;
  fail("uea: {} exists already with other content; --overwrite replaces it", path.string());
}

void check(const GenerateOptions& options) {
  for (const auto& [what, cases] : {std::pair{"train", options.train}, {"test", options.test}}) {
    if (cases < kClasses || cases > kMostCases) {
      fail("uea: {} cases to generate for {}; expected {} to {}", cases, what, kClasses,
           kMostCases);
    }
  }
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-';
  };
  bool fits = !options.name.empty();
  for (const char c : options.name) fits = fits && allowed(c);
  if (!fits) {
    fail("uea: name '{}' to generate; expected letters, digits, '_' and '-'", options.name);
  }
}

}  // namespace

GeneratedFiles generate_uea(const GenerateOptions& options, const fs::path& output) {
  check(options);
  const fs::path folder = output / options.name;
  const std::string train = file_text(options, "train", options.train);
  const std::string test = file_text(options, "test", options.test);
  GeneratedFiles files{folder / (options.name + "_TRAIN.ts"), folder / (options.name + "_TEST.ts")};
  const bool new_train = is_new(files.train, train, options.overwrite);
  const bool new_test = is_new(files.test, test, options.overwrite);
  files.written = new_train || new_test;
  if (files.written) make_directories(folder);
  if (new_train) write_file_atomically(files.train, train);
  if (new_test) write_file_atomically(files.test, test);
  return files;
}

}  // namespace primal

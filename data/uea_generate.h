#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace primal {

struct GenerateOptions {
  std::string name = "Generated";
  int64_t train = 160;  // cases
  int64_t test = 160;
  uint64_t seed = 1;
  bool overwrite = false;
};

struct GeneratedFiles {
  std::filesystem::path train, test;
  bool written = true;  // false: both were there already, byte for byte
};

/// Writes output/NAME/NAME_TRAIN.ts and NAME_TEST.ts: 4 classes of 3 noisy channels with 16 to 32
/// time steps. A class is a pair: channel 1 rises or falls, channel 2 swings fast or slowly;
/// channel 3 is noise. The bytes depend on the options alone. Throws if a file exists and
/// `overwrite` is false, or if writing fails; then neither file is left half written.
GeneratedFiles generate_uea(const GenerateOptions& options, const std::filesystem::path& output);

}  // namespace primal

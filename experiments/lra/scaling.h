#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace primal {

/// Training steps of the LRA classifier at one length, as they were measured, or why they were not.
struct ScalingCell {
  std::string attention;
  int64_t length = 0;
  nlohmann::json report;  ///< of `primal-bench step`; null where it failed
  std::string error;
};

/// "512,1024", or by doubling "512..2048". UsageError when it is neither.
std::vector<int64_t> parse_lengths(std::string_view text);

/// {"cells": [{"attention", "length", what add_measurement() says, "us_per_token"} or {"attention",
/// "length", "error"}]}.
nlohmann::ordered_json scaling_json(std::span<const ScalingCell> cells);
std::string scaling_csv(const nlohmann::ordered_json& scaling);
std::string scaling_markdown(const nlohmann::ordered_json& scaling);
/// A gnuplot program that draws time and memory against the length, on logarithmic axes, into
/// scaling.svg and scaling.png in the current folder.
std::string scaling_gnuplot(const nlohmann::ordered_json& scaling);

}  // namespace primal

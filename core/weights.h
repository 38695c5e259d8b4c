#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parameters.h"
#include "core/safetensors.h"
#include "core/task.h"

namespace primal {

/// A host copy of a flat buffer.
std::vector<float> download(const Backend& backend, const Tensor& flat);

/// One tensor per parameter, `prefix` + its name, as views of `flat`, which is laid out as the
/// parameters are and must outlive them.
std::vector<StoredTensor> stored_parameters(const ParameterSet& parameters,
                                            std::span<const float> flat,
                                            std::string_view prefix = "");

/// The reverse: a flat buffer out of a file that holds exactly these parameters (and, where
/// `prefix` is given, tensors without it). Error that lists every missing, unknown or misshapen
/// one.
std::vector<float> flat_parameters(const ParameterSet& parameters, const SafetensorsFile& file,
                                   std::string_view prefix = "");

/// Loads parameters from a file of our names or of the foreign ones, whichever it has more of.
/// Error that lists every missing, unknown or misshapen one.
void load_weights(const Backend& backend, ParameterSet& parameters, const SafetensorsFile& file,
                  std::span<const TaskConfig::ForeignName> foreign_names);

/// Writes the parameters under foreign names and shapes.
void write_foreign(const std::filesystem::path& path, const ParameterSet& parameters,
                   std::span<const float> flat,
                   std::span<const TaskConfig::ForeignName> foreign_names,
                   const std::map<std::string, std::string>& metadata);

}  // namespace primal

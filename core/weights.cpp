#include "core/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.h"

namespace primal {
namespace {

/// One parameter as a file is expected to hold it.
struct Expected {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in the flat buffer
};

std::vector<int64_t> sizes(const Shape& shape) {
  return {shape.sizes().begin(), shape.sizes().end()};
}

std::vector<Expected> own_names(const ParameterSet& parameters, std::string_view prefix) {
  std::vector<Expected> expected;
  for (const auto& entry : parameters.entries()) {
    expected.push_back({std::string(prefix) + entry.name, sizes(entry.shape), entry.offset});
  }
  return expected;
}

std::vector<Expected> foreign(const ParameterSet& parameters,
                              std::span<const TaskConfig::ForeignName> names) {
  std::vector<Expected> expected;
  for (const auto& name : names) {
    const auto& entry = parameters.entries().at(parameters.find(name.name).index);
    expected.push_back({name.foreign, name.foreign_shape, entry.offset});
  }
  return expected;
}

/// `what` and at most a few of the names, so that the message stays one readable line.
void complain(std::vector<std::string>& complaints, std::string_view what,
              const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  if (names.empty()) return;
  const size_t shown = std::min(names.size(), kShown);
  complaints.push_back(fmt::format(
      "{} {}{}", what,
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : ""));
}

std::vector<float> read(const SafetensorsFile& file, const std::vector<Expected>& expected,
                        int64_t count, std::string_view prefix) {
  std::vector<std::string> missing, misshapen, unknown;
  std::set<std::string_view> names;
  for (const Expected& e : expected) {
    names.insert(e.name);
    const StoredTensor* tensor = file.find(e.name);
    if (tensor == nullptr) {
      missing.push_back(e.name);
    } else if (tensor->shape != e.shape) {
      misshapen.push_back(fmt::format("{} ([{}], expected [{}])", e.name,
                                      fmt::join(tensor->shape, ", "), fmt::join(e.shape, ", ")));
    }
  }
  for (const StoredTensor& tensor : file.tensors()) {
    if (std::string_view(tensor.name).starts_with(prefix) && !names.contains(tensor.name)) {
      unknown.push_back(tensor.name);
    }
  }
  std::vector<std::string> complaints;
  complain(complaints, "missing:", missing);
  complain(complaints, "of another shape:", misshapen);
  complain(complaints, "unknown:", unknown);
  if (!complaints.empty()) {
    fail("weights: the file does not fit the model; {}", fmt::join(complaints, "; "));
  }
  std::vector<float> flat(static_cast<size_t>(count), 0.0F);
  for (const Expected& e : expected)
    std::ranges::copy(file.floats(e.name), flat.begin() + e.offset);
  return flat;
}

/// How many of the expected tensors the file has by name.
size_t found(const SafetensorsFile& file, const std::vector<Expected>& expected) {
  return static_cast<size_t>(std::ranges::count_if(
      expected, [&](const Expected& e) { return file.find(e.name) != nullptr; }));
}

}  // namespace

std::vector<float> download(const Backend& backend, const Tensor& flat) {
  std::vector<float> host(static_cast<size_t>(flat.count()));
  backend.op->download(backend.exec, flat.count(), flat.data(), host.data());
  return host;
}

std::vector<StoredTensor> stored_parameters(const ParameterSet& parameters,
                                            std::span<const float> flat, std::string_view prefix) {
  std::vector<StoredTensor> tensors;
  for (const auto& entry : parameters.entries()) {
    tensors.push_back(stored(
        std::string(prefix) + entry.name, sizes(entry.shape),
        flat.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.shape.count()))));
  }
  return tensors;
}

std::vector<float> flat_parameters(const ParameterSet& parameters, const SafetensorsFile& file,
                                   std::string_view prefix) {
  return read(file, own_names(parameters, prefix), parameters.count(), prefix);
}

void load_weights(const Backend& backend, ParameterSet& parameters, const SafetensorsFile& file,
                  std::span<const TaskConfig::ForeignName> foreign_names) {
  const auto own = own_names(parameters, "");
  const auto theirs = foreign(parameters, foreign_names);
  const bool ours = theirs.empty() || found(file, own) >= found(file, theirs);
  const auto flat = read(file, ours ? own : theirs, parameters.count(), "");
  backend.op->upload(backend.exec, parameters.count(), flat.data(), parameters.values().data());
}

void write_foreign(const std::filesystem::path& path, const ParameterSet& parameters,
                   std::span<const float> flat,
                   std::span<const TaskConfig::ForeignName> foreign_names,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<StoredTensor> tensors;
  for (const auto& name : foreign_names) {
    const auto& entry = parameters.entries().at(parameters.find(name.name).index);
    tensors.push_back(stored(
        name.foreign, name.foreign_shape,
        flat.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.shape.count()))));
  }
  write_safetensors(path, tensors, metadata);
}

}  // namespace primal

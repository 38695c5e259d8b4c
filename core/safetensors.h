#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace primal {

/// One named array in the terms of the safetensors format. `data` is a view: it belongs to the file
/// that was read, or to the caller who writes, and need not be aligned.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "I64", "BOOL", ... as the format spells it
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Views of the caller's numbers, row-major, for writing; the numbers must outlive the view.
StoredTensor stored(std::string name, std::vector<int64_t> shape, std::span<const float> values);
StoredTensor stored(std::string name, std::vector<int64_t> shape, std::span<const int64_t> values);

/// A safetensors file held in memory. Every claim of its header was checked against the data, so a
/// tensor's `data` and `bytes` can be trusted. Copies share the data.
///
/// Errors: `safetensors: FILE: tensor 'x': expected, found` for anything the format forbids.
class SafetensorsFile {
 public:
  static SafetensorsFile read(const std::filesystem::path& path);
  /// `name` stands for the file in error messages.
  static SafetensorsFile parse(std::vector<std::byte> contents, std::string name);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// nullptr when there is no such tensor.
  const StoredTensor* find(std::string_view name) const;
  /// Error when there is no such tensor.
  const StoredTensor& at(std::string_view name) const;

  /// Row-major copy of a F32, F64, F16 or BF16 tensor.
  std::vector<float> floats(std::string_view name) const;
  /// Row-major copy of an I64, I32, I16, I8, U8 or BOOL tensor.
  std::vector<int64_t> integers(std::string_view name) const;

 private:
  std::string name_;
  std::shared_ptr<const std::vector<std::byte>> contents_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> position in tensors_
};

/// Writes atomically (see write_file_atomically), data in the order given, so the same input gives
/// the same bytes. Errors: duplicate names, a size that is not shape x dtype, failed writes.
void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// The bytes of a safetensors file without a copy of the data: the header, then views of each
/// tensor. Move-only, because the first part views `header`.
struct EncodedSafetensors {
  EncodedSafetensors() = default;
  EncodedSafetensors(EncodedSafetensors&&) = default;
  EncodedSafetensors& operator=(EncodedSafetensors&&) = default;

  std::vector<std::byte> header;  // 8-byte length and JSON, padded with spaces to a multiple of 8
  std::vector<std::span<const std::byte>> parts;
};
/// `name` stands for the file in error messages.
EncodedSafetensors encode_safetensors(std::span<const StoredTensor> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::string_view name);

}  // namespace primal

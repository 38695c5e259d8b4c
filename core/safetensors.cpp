#include "core/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/files.h"

namespace primal {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the public library
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<std::pair<std::string_view, size_t>, 16> kDtypeBytes{{{"F64", 8},
                                                                           {"F32", 4},
                                                                           {"F16", 2},
                                                                           {"BF16", 2},
                                                                           {"F8_E4M3", 1},
                                                                           {"F8_E5M2", 1},
                                                                           {"C64", 8},
                                                                           {"I64", 8},
                                                                           {"I32", 4},
                                                                           {"I16", 2},
                                                                           {"I8", 1},
                                                                           {"U64", 8},
                                                                           {"U32", 4},
                                                                           {"U16", 2},
                                                                           {"U8", 1},
                                                                           {"BOOL", 1}}};

// A name from a file goes into one line of an error message, whatever it holds.
std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) {
    const bool printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
    result += printable ? c : '?';
  }
  return result + (text.size() > kLongest ? "...'" : "'");
}

// Bytes of shape x dtype; an error says what is wrong without saying where.
uint64_t expected_bytes(std::string_view dtype, std::span<const int64_t> shape) {
  const auto* known = std::find_if(kDtypeBytes.begin(), kDtypeBytes.end(),
                                   [&](const auto& candidate) { return candidate.first == dtype; });
  if (known == kDtypeBytes.end()) fail("unknown dtype {}", in_quotes(dtype));
  int64_t bytes = static_cast<int64_t>(known->second);
  for (const int64_t dimension : shape) {
    if (dimension < 0) fail("dimension {} is negative", dimension);
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      fail("shape [{}] is too large", fmt::join(shape, ", "));
    }
  }
  return static_cast<uint64_t>(bytes);
}

// Parses the header, and refuses what a JSON document would hide: repeated names and deep nesting.
json parse_header(std::string_view text) {
  std::set<std::string> tensor_names;
  std::set<std::string> field_names;
  const auto inspect = [&](int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth > 2) {
      fail("header: nested deeper than a tensor's shape");
    }
    if (event == Event::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (depth == 1) field_names.clear();
      if (!(depth == 1 ? tensor_names : field_names).insert(name).second) {
        fail("header: name {} occurs twice", in_quotes(name));
      }
    }
    return true;
  };
  if (!text.starts_with('{')) fail("header: does not begin with '{{'");
  // The JSON parser would take a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail("header: not valid JSON at byte {}", zero + 1);
  }
  try {
    return json::parse(text, inspect);
  } catch (const json::parse_error& error) {
    fail("header: not valid JSON at byte {}", error.byte);
  } catch (const json::exception&) {
    fail("header: a number is out of range");
  }
}

std::map<std::string, std::string> parse_metadata(const json& header) {
  std::map<std::string, std::string> metadata;
  const auto found = header.find(kMetadataKey);
  if (found == header.end()) return metadata;
  if (!found->is_object()) fail("{}: is not an object", kMetadataKey);
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) fail("{}: value of {} is not a string", kMetadataKey, in_quotes(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

int64_t parse_count(const json& value, std::string_view what) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    fail("{} is not a list of whole numbers >= 0", what);
  }
  return value.get<int64_t>();
}

// Everything about one tensor that can be checked without its neighbours.
StoredTensor parse_tensor(const json& entry, Bytes data) {
  if (!entry.is_object()) fail("is not an object");
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      fail("unknown field {}", in_quotes(key));
    }
  }
  const auto field = [&](const char* key) -> const json& {
    const auto found = entry.find(key);
    if (found == entry.end()) fail("has no {}", key);
    return *found;
  };
  StoredTensor tensor;
  const json& dtype = field("dtype");
  if (!dtype.is_string()) fail("dtype is not a string");
  tensor.dtype = dtype.get<std::string>();

  const json& shape = field("shape");
  if (!shape.is_array()) fail("shape is not a list of whole numbers >= 0");
  for (const json& dimension : shape) tensor.shape.push_back(parse_count(dimension, "shape"));

  const json& offsets = field("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) fail("data_offsets is not a pair");
  const auto begin = static_cast<uint64_t>(parse_count(offsets[0], "data_offsets"));
  const auto end = static_cast<uint64_t>(parse_count(offsets[1], "data_offsets"));
  if (begin > end) fail("data begins at byte {} and ends at {}", begin, end);
  if (end > data.size()) {
    fail("data ends at byte {}, the file holds {} bytes of data", end, data.size());
  }
  const uint64_t expected = expected_bytes(tensor.dtype, tensor.shape);
  if (end - begin != expected) {
    fail("{} [{}] takes {} bytes, data_offsets give {}", tensor.dtype,
         fmt::join(tensor.shape, ", "), expected, end - begin);
  }
  tensor.data = data.data() + begin;
  tensor.bytes = end - begin;
  return tensor;
}

template <class From>
From load(const StoredTensor& tensor, size_t index) {
  From value;
  std::memcpy(&value, tensor.data + index * sizeof(From), sizeof(From));
  return value;
}

template <class From, class To, class Convert>
std::vector<To> converted(const StoredTensor& tensor, Convert convert) {
  std::vector<To> result(tensor.bytes / sizeof(From));
  for (size_t i = 0; i < result.size(); ++i) result[i] = convert(load<From>(tensor, i));
  return result;
}

// IEEE binary16: value = 1.m x 2^(e-15), or 0.m x 2^-14 when e = 0.
float half_to_float(uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const int mantissa = half & 0x3FF;
  float magnitude = 0;
  if (exponent == 0x1F) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
  }
  return std::copysign(magnitude, (half & 0x8000) != 0 ? -1.0f : 1.0f);
}

template <class T>
StoredTensor stored_as(std::string dtype, std::string name, std::vector<int64_t> shape,
                       std::span<const T> values) {
  const Bytes bytes = std::as_bytes(values);
  return {std::move(name), std::move(dtype), std::move(shape), bytes.data(), bytes.size()};
}

}  // namespace

StoredTensor stored(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  return stored_as("F32", std::move(name), std::move(shape), values);
}

StoredTensor stored(std::string name, std::vector<int64_t> shape, std::span<const int64_t> values) {
  return stored_as("I64", std::move(name), std::move(shape), values);
}

SafetensorsFile SafetensorsFile::read(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

SafetensorsFile SafetensorsFile::parse(std::vector<std::byte> contents, std::string name) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  file.contents_ = std::make_shared<const std::vector<std::byte>>(std::move(contents));
  const Bytes all(*file.contents_);
  std::string place;  // the tensor at hand, for the message
  try {
    if (all.size() < kLengthBytes) {
      fail("{} bytes, expected at least {} for the header's length", all.size(), kLengthBytes);
    }
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, all.data(), kLengthBytes);
    const uint64_t most = std::min<uint64_t>(kMaxHeaderBytes, all.size() - kLengthBytes);
    if (header_bytes > most) {
      fail("header of {} bytes in a file of {} (limit {})", header_bytes, all.size(),
           kMaxHeaderBytes);
    }
    const Bytes header_text = all.subspan(kLengthBytes, header_bytes);
    const Bytes data = all.subspan(kLengthBytes + header_bytes);
    const json header =
        parse_header({reinterpret_cast<const char*>(header_text.data()), header_text.size()});
    file.metadata_ = parse_metadata(header);
    for (const auto& [key, entry] : header.items()) {
      if (key == kMetadataKey) continue;
      place = fmt::format("tensor {}: ", in_quotes(key));
      file.tensors_.push_back(parse_tensor(entry, data));
      file.tensors_.back().name = key;
    }

    // Each byte of the data belongs to exactly one tensor.
    const auto begin_of = [&](const StoredTensor& t) { return t.data - data.data(); };
    std::stable_sort(file.tensors_.begin(), file.tensors_.end(),
                     [](const StoredTensor& a, const StoredTensor& b) {
                       return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
                     });
    ptrdiff_t covered = 0;
    for (const StoredTensor& tensor : file.tensors_) {
      place = fmt::format("tensor {}: ", in_quotes(tensor.name));
      if (begin_of(tensor) != covered) {
        fail("data begins at byte {}, expected {}: tensors overlap or leave a hole",
             begin_of(tensor), covered);
      }
      covered += static_cast<ptrdiff_t>(tensor.bytes);
    }
    place.clear();
    if (covered != static_cast<ptrdiff_t>(data.size())) {
      fail("{} bytes of data, its tensors take {}", data.size(), covered);
    }
  } catch (const Error& error) {
    fail("safetensors: {}: {}{}", file.name_, place, error.what());
  }
  for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_[file.tensors_[i].name] = i;
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  fail("safetensors: {}: no tensor {} among its {}", name_, in_quotes(name), tensors_.size());
}

std::vector<float> SafetensorsFile::floats(std::string_view name) const {
  const StoredTensor& tensor = at(name);
  const auto cast = [](auto value) { return static_cast<float>(value); };
  if (tensor.dtype == "F32") return converted<float, float>(tensor, cast);
  if (tensor.dtype == "F64") return converted<double, float>(tensor, cast);
  if (tensor.dtype == "F16") return converted<uint16_t, float>(tensor, half_to_float);
  if (tensor.dtype == "BF16") {  // the upper half of a float
    return converted<uint16_t, float>(
        tensor, [](uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); });
  }
  fail("safetensors: {}: tensor {}: dtype {}, expected F32, F64, F16 or BF16", name_,
       in_quotes(name), tensor.dtype);
}

std::vector<int64_t> SafetensorsFile::integers(std::string_view name) const {
  const StoredTensor& tensor = at(name);
  const auto cast = [](auto value) { return static_cast<int64_t>(value); };
  if (tensor.dtype == "I64") return converted<int64_t, int64_t>(tensor, cast);
  if (tensor.dtype == "I32") return converted<int32_t, int64_t>(tensor, cast);
  if (tensor.dtype == "I16") return converted<int16_t, int64_t>(tensor, cast);
  if (tensor.dtype == "I8") return converted<int8_t, int64_t>(tensor, cast);
  if (tensor.dtype == "U8" || tensor.dtype == "BOOL") {
    return converted<uint8_t, int64_t>(tensor, cast);
  }
  fail("safetensors: {}: tensor {}: dtype {}, expected I64, I32, I16, I8, U8 or BOOL", name_,
       in_quotes(name), tensor.dtype);
}

EncodedSafetensors encode_safetensors(std::span<const StoredTensor> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::string_view name) {
  std::string header = "{";
  EncodedSafetensors encoded;
  encoded.parts.emplace_back();  // the header's place
  std::set<std::string_view> names;
  uint64_t end = 0;
  std::string place;
  try {
    if (!metadata.empty()) header += fmt::format("\"{}\":{},", kMetadataKey, json(metadata).dump());
    for (const StoredTensor& tensor : tensors) {
      place = fmt::format("tensor {}: ", in_quotes(tensor.name));
      if (tensor.name == kMetadataKey) fail("the name is reserved");
      if (!names.insert(tensor.name).second) fail("the name occurs twice");
      const uint64_t expected = expected_bytes(tensor.dtype, tensor.shape);
      if (tensor.bytes != expected) {
        fail("{} [{}] takes {} bytes, {} were given", tensor.dtype, fmt::join(tensor.shape, ", "),
             expected, tensor.bytes);
      }
      const uint64_t begin = std::exchange(end, end + tensor.bytes);
      header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                            json(tensor.name).dump(), tensor.dtype, fmt::join(tensor.shape, ","),
                            begin, end);
      encoded.parts.emplace_back(tensor.data, tensor.bytes);
    }
  } catch (const Error& error) {
    fail("safetensors: {}: {}{}", name, place, error.what());
  } catch (const json::exception&) {
    fail("safetensors: {}: {}text is not valid UTF-8", name, place);
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeaderBytes) {
    fail("safetensors: {}: header of {} bytes (limit {})", name, header.size(), kMaxHeaderBytes);
  }
  const uint64_t header_bytes = header.size();
  encoded.header.resize(kLengthBytes + header.size());
  std::memcpy(encoded.header.data(), &header_bytes, kLengthBytes);
  std::memcpy(encoded.header.data() + kLengthBytes, header.data(), header.size());
  encoded.parts.front() = encoded.header;
  return encoded;
}

void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, encode_safetensors(tensors, metadata, path.string()).parts);
}

}  // namespace primal

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "tests/catch.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

// The bytes of a file with this header and `data_bytes` bytes 0, 1, 2, ...
std::vector<std::byte> file_of(std::string header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  for (size_t i = 0; i < data_bytes; ++i) file[8 + header.size() + i] = std::byte(i);
  return file;
}

SafetensorsFile parsed(std::string header, size_t data_bytes) {
  return SafetensorsFile::parse(file_of(std::move(header), data_bytes), "w.safetensors");
}

std::vector<std::byte> encoded(std::span<const StoredTensor> tensors,
                               const std::map<std::string, std::string>& metadata = {}) {
  const EncodedSafetensors image = encode_safetensors(tensors, metadata, "w.safetensors");
  std::vector<std::byte> bytes;
  for (const Bytes part : image.parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct TemporaryFile {
  fs::path path = fs::temp_directory_path() /
                  ("primal-safetensors-" + std::to_string(getpid()) + ".safetensors");
  ~TemporaryFile() { fs::remove(path); }
};

}  // namespace

TEST_CASE("safetensors: what is written is read back") {
  const TemporaryFile file;
  const std::vector<float> weights{1.5f,   -0.0f, std::numeric_limits<float>::infinity(),
                                   1e-42f, 3.0f,  4.0f};
  const std::vector<int64_t> counts{-1, std::numeric_limits<int64_t>::max()};
  const std::byte flags[] = {std::byte{1}, std::byte{0}, std::byte{1}};
  const std::vector<StoredTensor> tensors{
      {"mask", "BOOL", {3}, flags, 3},
      stored("layers.1.weight", {2, 3}, weights),
      stored("empty", {0, 7}, std::span<const float>()),
      stored("count", {2}, counts),
      stored("scalar", {}, std::span(weights).first(1)),
  };
  write_safetensors(file.path, tensors, {{"heads", "2"}, {"note", "a \"quoted\"\nline"}});

  const SafetensorsFile read = SafetensorsFile::read(file.path);
  CHECK(read.metadata() ==
        std::map<std::string, std::string>{{"heads", "2"}, {"note", "a \"quoted\"\nline"}});
  REQUIRE(read.tensors().size() == tensors.size());
  CHECK(read.at("layers.1.weight").shape == std::vector<int64_t>{2, 3});
  CHECK(read.at("layers.1.weight").dtype == "F32");
  const std::vector<float> weights_read = read.floats("layers.1.weight");  // at an odd address
  REQUIRE(weights_read.size() == weights.size());
  CHECK(std::memcmp(weights_read.data(), weights.data(), weights.size() * sizeof(float)) == 0);
  CHECK(read.integers("count") == counts);
  CHECK(read.integers("mask") == std::vector<int64_t>{1, 0, 1});
  CHECK(read.at("empty").shape == std::vector<int64_t>{0, 7});
  CHECK(read.floats("empty").empty());
  CHECK(read.at("scalar").shape.empty());
  CHECK(read.floats("scalar") == std::vector<float>{1.5f});
  CHECK(read.find("absent") == nullptr);

  const SafetensorsFile copy = read;  // shares the data
  CHECK(copy.at("count").data == read.at("count").data);
}

TEST_CASE("safetensors: tensors keep the order of their data") {
  const std::vector<float> values{1, 2};
  const std::vector<StoredTensor> tensors{stored("z", {1}, std::span(values).first(1)),
                                          stored("a", {1}, std::span(values).last(1))};
  const SafetensorsFile read = SafetensorsFile::parse(encoded(tensors), "w");
  CHECK(read.tensors()[0].name == "z");
  CHECK(read.tensors()[1].name == "a");
}

TEST_CASE("safetensors: the header is compact JSON padded with spaces to a multiple of eight") {
  const std::vector<float> values{1};
  const std::vector<StoredTensor> tensors{stored("w", {1, 1}, values)};
  const std::vector<std::byte> bytes = encoded(tensors, {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  const std::string written(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  CHECK(written.substr(0, header.size()) == header);
  CHECK(written.find_first_not_of(' ', header.size()) == std::string::npos);
  CHECK(bytes.size() == 8 + length + 4);
}

TEST_CASE("safetensors: a file without tensors is allowed") {
  CHECK(parsed("{}", 0).tensors().empty());
  CHECK(SafetensorsFile::parse(encoded({}), "w").tensors().empty());
}

TEST_CASE("safetensors: half, bfloat16, double and the integer types are converted") {
  const auto tensor = [](const std::string& dtype, size_t size, std::vector<uint8_t> bytes) {
    std::vector<std::byte> file = file_of(
        "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + std::to_string(bytes.size() / size) +
            "],\"data_offsets\":[0," + std::to_string(bytes.size()) + "]}}",
        bytes.size());
    std::memcpy(file.data() + file.size() - bytes.size(), bytes.data(), bytes.size());
    return SafetensorsFile::parse(file, "w");
  };
  const std::vector<float> halves =
      tensor("F16", 2, {0x00, 0x3C, 0x00, 0xC0, 0x01, 0x00, 0xFF, 0x7B, 0x00, 0xFC, 0x00, 0x80})
          .floats("t");
  CHECK(halves[0] == 1.0f);
  CHECK(halves[1] == -2.0f);
  CHECK(halves[2] == std::ldexp(1.0f, -24));
  CHECK(halves[3] == 65504.0f);
  CHECK(halves[4] == -std::numeric_limits<float>::infinity());
  CHECK((halves[5] == 0.0f && std::signbit(halves[5])));
  CHECK(std::isnan(tensor("F16", 2, {0x01, 0x7E}).floats("t")[0]));
  CHECK(tensor("BF16", 2, {0xC0, 0x3F, 0x80, 0xFF}).floats("t") ==
        std::vector<float>{1.5f, -std::numeric_limits<float>::infinity()});
  CHECK(tensor("F64", 8, {0, 0, 0, 0, 0, 0, 0xF8, 0xBF}).floats("t") == std::vector<float>{-1.5f});
  CHECK(tensor("I32", 4, {0xFE, 0xFF, 0xFF, 0xFF}).integers("t") == std::vector<int64_t>{-2});
  CHECK(tensor("I16", 2, {0xFD, 0xFF}).integers("t") == std::vector<int64_t>{-3});
  CHECK(tensor("I8", 1, {0xFC}).integers("t") == std::vector<int64_t>{-4});
  CHECK(tensor("U8", 1, {0xFF}).integers("t") == std::vector<int64_t>{255});

  CHECK(message_of([&] {
          tensor("I32", 4, {0, 0, 0, 0}).floats("t");
        }) == "safetensors: w: tensor 't': dtype I32, expected F32, F64, F16 or BF16");
  CHECK(message_of([&] {
          tensor("F32", 4, {0, 0, 0, 0}).integers("t");
        }) == "safetensors: w: tensor 't': dtype F32, expected I64, I32, I16, I8, U8 or BOOL");
  CHECK(message_of([&] { tensor("U8", 1, {0}).at("v"); }) ==
        "safetensors: w: no tensor 'v' among its 1");
}

TEST_CASE("safetensors: a broken file is refused with file, tensor and what is wrong") {
  struct Broken {
    std::string header;
    size_t data_bytes;
    std::string message;
  };
  const auto one = [](std::string dtype, std::string shape, std::string offsets) {
    return "{\"x\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
           "}}";
  };
  const std::string first = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)";
  const std::vector<Broken> cases{
      {"", 0, "header: does not begin with '{'"},
      {" {}", 0, "header: does not begin with '{'"},
      {"[]", 0, "header: does not begin with '{'"},
      {"{\"a\":", 0, "header: not valid JSON at byte 6"},
      {"{}{}", 0, "header: not valid JSON at byte 3"},
      {std::string("{}\0", 3), 0, "header: not valid JSON at byte 3"},
      {"{\"\xFF\":1}", 0, "header: not valid JSON at byte 3"},
      {"{\"x\":1e999}", 0, "header: a number is out of range"},
      {"{\"x\":" + std::string(100000, '['), 0, "header: nested deeper than a tensor's shape"},
      {R"({"x":{"y":{"z":{}}}})", 0, "header: nested deeper than a tensor's shape"},
      {"{" + first + R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4,
       "header: name 'a' occurs twice"},
      {R"({"x":{"dtype":"U8","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4,
       "header: name 'dtype' occurs twice"},
      {R"({"__metadata__":{"k":"v","k":"w"}})", 0, "header: name 'k' occurs twice"},
      {R"({"__metadata__":{"k":1}})", 0, "__metadata__: value of 'k' is not a string"},
      {R"({"__metadata__":"k"})", 0, "__metadata__: is not an object"},
      {R"({"x":7})", 0, "tensor 'x': is not an object"},
      {R"({"x":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'x': has no dtype"},
      {R"({"x":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor 'x': has no shape"},
      {R"({"x":{"dtype":"U8","shape":[1]}})", 1, "tensor 'x': has no data_offsets"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})", 1,
       "tensor 'x': unknown field 'stride'"},
      {one("\"F31\"", "[1]", "[0,4]"), 4, "tensor 'x': unknown dtype 'F31'"},
      {one("32", "[1]", "[0,4]"), 4, "tensor 'x': dtype is not a string"},
      {one("\"U8\"", "4", "[0,4]"), 4, "tensor 'x': shape is not a list of whole numbers >= 0"},
      {one("\"U8\"", "[-4]", "[0,4]"), 4, "tensor 'x': shape is not a list of whole numbers >= 0"},
      {one("\"U8\"", "[4.0]", "[0,4]"), 4, "tensor 'x': shape is not a list of whole numbers >= 0"},
      {one("\"U8\"", "[\"4\"]", "[0,4]"), 4,
       "tensor 'x': shape is not a list of whole numbers >= 0"},
      {one("\"U8\"", "[18446744073709551615]", "[0,4]"), 4,
       "tensor 'x': shape is not a list of whole numbers >= 0"},
      {one("\"U8\"", "[18446744073709551616]", "[0,4]"), 4,
       "tensor 'x': shape is not a list of whole numbers >= 0"},
      {one("\"F32\"", "[4611686018427387905]", "[0,4]"), 4,
       "tensor 'x': shape [4611686018427387905] is too large"},
      {one("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0,
       "tensor 'x': shape [4294967296, 4294967296] is too large"},
      {one("\"U8\"", "[4]", "[0,4,8]"), 4, "tensor 'x': data_offsets is not a pair"},
      {one("\"U8\"", "[4]", "[4]"), 4, "tensor 'x': data_offsets is not a pair"},
      {one("\"U8\"", "[4]", "[-4,0]"), 4,
       "tensor 'x': data_offsets is not a list of whole numbers >= 0"},
      {one("\"U8\"", "[2]", "[4,2]"), 4, "tensor 'x': data begins at byte 4 and ends at 2"},
      {one("\"U8\"", "[5]", "[0,5]"), 4,
       "tensor 'x': data ends at byte 5, the file holds 4 bytes of data"},
      {one("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 4,
       "tensor 'x': data ends at byte 9223372036854775807, the file holds 4 bytes of data"},
      {one("\"F32\"", "[2,1]", "[0,4]"), 4,
       "tensor 'x': F32 [2, 1] takes 8 bytes, data_offsets give 4"},
      {"{" + first + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
       "tensor 'b': data begins at byte 1, expected 2: tensors overlap or leave a hole"},
      {"{" + first + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2,
       "tensor 'b': data begins at byte 0, expected 2: tensors overlap or leave a hole"},
      {"{" + first + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5,
       "tensor 'b': data begins at byte 3, expected 2: tensors overlap or leave a hole"},
      {"{" + first + R"("b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})", 2,
       "tensor 'b': data begins at byte 1, expected 2: tensors overlap or leave a hole"},
      {one("\"U8\"", "[2]", "[1,3]"), 3,
       "tensor 'x': data begins at byte 1, expected 0: tensors overlap or leave a hole"},
      {one("\"U8\"", "[2]", "[0,2]"), 3, "3 bytes of data, its tensors take 2"},
      {"{}", 1, "1 bytes of data, its tensors take 0"},
      {R"({"line\nbreak":7})", 0, "tensor 'line?break': is not an object"},
  };
  for (const Broken& broken : cases) {
    INFO(broken.header.substr(0, 200));
    CHECK(message_of([&] { parsed(broken.header, broken.data_bytes); }) ==
          "safetensors: w.safetensors: " + broken.message);
  }
}

TEST_CASE("safetensors: a header length beyond the file or the limit is refused") {
  const auto with_length = [](uint64_t length, size_t file_bytes) {
    std::vector<std::byte> file(file_bytes, std::byte{'{'});
    std::memcpy(file.data(), &length, 8);
    return message_of([&] { SafetensorsFile::parse(file, "w"); });
  };
  CHECK(with_length(9, 16) ==
        "safetensors: w: header of 9 bytes in a file of 16 (limit 100000000)");
  CHECK(with_length(std::numeric_limits<uint64_t>::max(), 16) ==
        "safetensors: w: header of 18446744073709551615 bytes in a file of 16 (limit 100000000)");
  CHECK(with_length(100'000'001, 100'000'100) ==
        "safetensors: w: header of 100000001 bytes in a file of 100000100 (limit 100000000)");
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    CHECK(message_of([&] { SafetensorsFile::parse(std::vector<std::byte>(bytes), "w"); }) ==
          "safetensors: w: " + std::to_string(bytes) +
              " bytes, expected at least 8 for the header's length");
  }
}

TEST_CASE("safetensors: no cut and no changed bit of a file is read as something else unnoticed") {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<StoredTensor> tensors{stored("first", {2, 2}, std::span(values).first(4)),
                                          stored("second", {2}, std::span(values).last(2))};
  const std::vector<std::byte> whole = encoded(tensors, {{"k", "v"}});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CHECK_THROWS_AS(SafetensorsFile::parse({whole.begin(), whole.begin() + bytes}, "w"), Error);
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), 8);
  for (size_t bit = 0; bit < 8 * (8 + header_bytes); ++bit) {
    std::vector<std::byte> changed = whole;
    changed[bit / 8] ^= std::byte(1u << (bit % 8));
    try {  // a changed name or value of the metadata is all that may pass
      const SafetensorsFile read = SafetensorsFile::parse(changed, "w");
      size_t bytes = 0;
      for (const StoredTensor& tensor : read.tensors()) bytes += tensor.bytes;
      CHECK(bytes == values.size() * sizeof(float));
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("safetensors: w: "));
    }
  }
}

TEST_CASE("safetensors: the writer refuses what a reader would refuse, and touches no file") {
  const TemporaryFile file;
  write_file_atomically(file.path, "old");
  const std::vector<float> values{1, 2};
  const auto message = [&](std::vector<StoredTensor> tensors,
                           std::map<std::string, std::string> metadata = {}) {
    return message_of([&] { write_safetensors(file.path, tensors, metadata); });
  };
  const std::string start = "safetensors: " + file.path.string() + ": ";
  CHECK(message({stored("a", {2}, values), stored("a", {2}, values)}) ==
        start + "tensor 'a': the name occurs twice");
  CHECK(message({stored("a", {3}, values)}) ==
        start + "tensor 'a': F32 [3] takes 12 bytes, 8 were given");
  CHECK(message({stored("a", {-1, -2}, values)}) == start + "tensor 'a': dimension -1 is negative");
  CHECK(message({StoredTensor{"a", "F33", {}, nullptr, 0}}) ==
        start + "tensor 'a': unknown dtype 'F33'");
  CHECK(message({stored("__metadata__", {2}, values)}) ==
        start + "tensor '__metadata__': the name is reserved");
  CHECK(message({stored("\xFF", {2}, values)}) == start + "tensor '\xFF': text is not valid UTF-8");
  CHECK(message({}, {{"k", "\xFF"}}) == start + "text is not valid UTF-8");
  CHECK(read_text_file(file.path) == "old");
}

TEST_CASE("safetensors: a missing file and a folder are named in the error") {
  CHECK(message_of([] { SafetensorsFile::read("no/such.safetensors"); }) ==
        "no/such.safetensors: cannot open: No such file or directory");
  CHECK(message_of([] { SafetensorsFile::read("/tmp"); }) == "/tmp: is not a regular file");
}

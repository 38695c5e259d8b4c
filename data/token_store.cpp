#include "data/token_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/error.h"

// File: the bytes, offsets (uint64), labels (int32), facts (JSON), and a trailer that says how long
// each of them is and what their checksum is. Little endian.

namespace primal {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMagic = 0x32534E454B4F5450;  // "PTOKENS2"
constexpr size_t kBlockBytes = size_t{1} << 20;

struct Trailer {
  uint64_t bytes = 0;
  uint64_t sequences = 0;
  uint64_t examples = 0;
  uint64_t facts = 0;
  uint64_t checksum = 0;  ///< CRC-32 of all that precedes the trailer
  uint64_t magic = kMagic;
};

[[noreturn]] void fail_system(std::string_view path, std::string_view what) {
  fail("{}: {}: {}", path, what, std::generic_category().message(errno));
}

void write_all(int descriptor, const fs::path& path, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_system(path.string(), "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

/// False when the file ends before.
bool read_at(int descriptor, std::span<uint8_t> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

template <class T>
std::span<uint8_t> raw(std::span<T> values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size_bytes()};
}
template <class T>
std::span<const uint8_t> raw(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

/// CRC-32 of the first `size` bytes of a file; nothing when it ends before.
std::optional<uint32_t> checksum_of(int descriptor, uint64_t size) {
  std::vector<uint8_t> block(std::min<uint64_t>(size, kBlockBytes));
  uint32_t checksum = 0;
  for (uint64_t at = 0; at < size; at += block.size()) {
    block.resize(std::min<uint64_t>(size - at, kBlockBytes));
    if (!read_at(descriptor, block, at)) return {};
    checksum = crc32(std::as_bytes(std::span(block)), checksum);
  }
  return checksum;
}

}  // namespace

TokenStore::TokenStore(TokenStore&& other) noexcept {
  *this = std::move(other);
}

TokenStore& TokenStore::operator=(TokenStore&& other) noexcept {
  std::swap(parts_, other.parts_);
  std::swap(labels_, other.labels_);
  std::swap(offsets_, other.offsets_);
  std::swap(bytes_, other.bytes_);
  std::swap(facts_, other.facts_);
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

TokenStore::~TokenStore() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int64_t TokenStore::length(int64_t example, int64_t part) const {
  const auto at = static_cast<size_t>(example * parts_ + part);
  return static_cast<int64_t>(offsets_[at + 1] - offsets_[at]);
}

void TokenStore::read(int64_t example, int64_t part, std::span<uint8_t> out) const {
  const uint64_t begin = offsets_[static_cast<size_t>(example * parts_ + part)];
  if (descriptor_ < 0) {
    std::copy_n(bytes_.begin() + static_cast<int64_t>(begin), out.size(), out.begin());
  } else if (!read_at(descriptor_, out, begin)) {
    fail("{}: was cut while in use; remove it, and it is made again", path_);
  }
}

std::optional<TokenStore> TokenStore::open(const fs::path& path) {
  TokenStore store;
  store.path_ = path.string();
  store.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (store.descriptor_ < 0) return {};
  const off_t size = ::lseek(store.descriptor_, 0, SEEK_END);
  Trailer trailer;
  const std::span<Trailer> whole(&trailer, 1);
  if (size < static_cast<off_t>(sizeof trailer) ||
      !read_at(store.descriptor_, raw(whole), static_cast<uint64_t>(size) - sizeof trailer)) {
    return {};
  }
  const auto total = static_cast<uint64_t>(size) - sizeof trailer;
  // Each is bounded by the file's size before they are added up.
  if (trailer.magic != kMagic || trailer.bytes > total || trailer.sequences >= total ||
      trailer.examples > total || trailer.facts > total || trailer.sequences == 0 ||
      trailer.examples == 0 || trailer.sequences % trailer.examples != 0 ||
      trailer.bytes + (trailer.sequences + 1) * sizeof(uint64_t) +
              trailer.examples * sizeof(int32_t) + trailer.facts !=
          total) {
    return {};
  }
  if (checksum_of(store.descriptor_, total) != trailer.checksum) return {};
  store.parts_ = static_cast<int64_t>(trailer.sequences / trailer.examples);
  store.offsets_.resize(trailer.sequences + 1);
  store.labels_.resize(trailer.examples);
  std::string facts(trailer.facts, '\0');
  uint64_t at = trailer.bytes;
  for (const std::span<uint8_t> part :
       {raw(std::span(store.offsets_)), raw(std::span(store.labels_)),
        raw(std::span(facts.data(), facts.size()))}) {
    if (!read_at(store.descriptor_, part, at)) return {};
    at += part.size();
  }
  if (store.offsets_.front() != 0 || store.offsets_.back() != trailer.bytes ||
      !std::ranges::is_sorted(store.offsets_)) {
    return {};
  }
  store.facts_ = nlohmann::json::parse(facts, nullptr, false);
  if (!store.facts_.is_object()) return {};
  return store;
}

TokenWriter::TokenWriter(int64_t parts, const fs::path& path)
    : path_(path), temporary_(path.string() + ".tmp-" + std::to_string(::getpid())) {
  store_.parts_ = parts;
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_system(temporary_.string(), "cannot be written");
}

TokenWriter::~TokenWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void TokenWriter::add(std::span<const uint8_t> sequence) {
  std::vector<uint64_t>& offsets = store_.offsets_;
  if (offsets.empty()) offsets.push_back(0);
  offsets.push_back(offsets.back() + sequence.size());
  std::vector<uint8_t>& to = descriptor_ < 0 ? store_.bytes_ : pending_;
  to.insert(to.end(), sequence.begin(), sequence.end());
  if (pending_.size() >= kBlockBytes) flush();
}

void TokenWriter::flush() {
  write(pending_);
  pending_.clear();
}

void TokenWriter::write(std::span<const uint8_t> bytes) {
  write_all(descriptor_, temporary_, bytes);
  checksum_ = crc32(std::as_bytes(bytes), checksum_);
}

TokenStore TokenWriter::finish(nlohmann::json facts) {
  if (store_.offsets_.empty()) store_.offsets_.push_back(0);
  if (descriptor_ < 0) {
    store_.facts_ = std::move(facts);
    return std::move(store_);
  }
  flush();
  const std::string text = facts.dump();
  write(raw(std::span<const uint64_t>(store_.offsets_)));
  write(raw(std::span<const int32_t>(store_.labels_)));
  write(raw(std::span<const char>(text)));
  const Trailer trailer{.bytes = store_.offsets_.back(),
                        .sequences = store_.offsets_.size() - 1,
                        .examples = store_.labels_.size(),
                        .facts = text.size(),
                        .checksum = checksum_};
  write(raw(std::span<const Trailer>(&trailer, 1)));
  if (::fsync(descriptor_) != 0) fail_system(temporary_.string(), "cannot be written");
  ::close(std::exchange(descriptor_, -1));
  std::error_code code;
  fs::rename(temporary_, path_, code);
  if (code) {
    ::unlink(temporary_.c_str());
    fail("{}: cannot be replaced: {}", path_.string(), code.message());
  }
  std::optional<TokenStore> store = TokenStore::open(path_);
  if (!store) fail("{}: cannot be read back", path_.string());
  return *std::move(store);
}

}  // namespace primal

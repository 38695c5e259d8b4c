#include "core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace primal {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporary = ".tmp-";  // being written
constexpr std::string_view kReplaced = ".old-";   // set aside until its replacement is in place
constexpr std::string_view kRemoved = ".del-";    // on its way out

[[noreturn]] void fail_with_errno(const fs::path& path, std::string_view action) {
  fail("{}: cannot {}: {}", path.string(), action, std::system_category().message(errno));
}

// A sibling of `path` that listings skip and that no other process uses.
fs::path hidden_sibling(const fs::path& path, std::string_view purpose) {
  return path.parent_path() /
         fmt::format(".{}{}{}", path.filename().string(), purpose, static_cast<long>(getpid()));
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, std::string_view action)
      : Descriptor(path, path, flags, action) {}
  // `name` is what errors call it.
  Descriptor(const fs::path& path, const fs::path& name, int flags, std::string_view action)
      : name_(name) {
    do {
      value_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (value_ < 0 && errno == EINTR);
    if (value_ < 0) fail_with_errno(name, action);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }

  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }
  // Network file systems report a failed write as late as here.
  void close() {
    if (::close(release()) != 0 && errno != EINTR) fail_with_errno(name_, "close");
  }

 private:
  fs::path name_;
  int value_ = -1;
};

// Writes everything or returns false with errno set.
bool write_fully(int descriptor, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

void sync_descriptor(int descriptor, const fs::path& path) {
  // EINVAL: a pipe, a device, or a file system that cannot sync a folder; there is nothing to sync.
  if (::fsync(descriptor) != 0 && errno != EINVAL) fail_with_errno(path, "sync");
}

// A rename or a new name is durable once the folder that holds it is synced.
void sync_directory(const fs::path& directory) {
  const fs::path path = directory.empty() ? fs::path(".") : directory;
  const Descriptor descriptor(path, O_RDONLY | O_DIRECTORY, "open");
  sync_descriptor(descriptor.get(), path);
}

// Errors call the file `name`, which it gets once it is complete.
WrittenFile write_and_sync(const fs::path& path, const fs::path& name,
                           std::span<const Bytes> parts) {
  Descriptor descriptor(path, name, O_WRONLY | O_CREAT | O_TRUNC, "create");
  WrittenFile result;
  for (const Bytes part : parts) {
    if (!write_fully(descriptor.get(), part)) fail_with_errno(name, "write");
    result.bytes += part.size();
    result.crc32 = crc32(part, result.crc32);
  }
  sync_descriptor(descriptor.get(), name);
  descriptor.close();
  return result;
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_with_errno(from, fmt::format("rename to {}", to.filename().string()));
  }
}

// If `name` is `.NAME` + purpose + digits, returns NAME, otherwise nothing.
std::string_view hidden_name(std::string_view name, std::string_view purpose) {
  const size_t at = name.rfind(purpose);
  if (!name.starts_with('.') || at == std::string_view::npos || at < 2) return {};
  const std::string_view process = name.substr(at + purpose.size());
  if (process.empty() || process.find_first_not_of("0123456789") != std::string_view::npos) {
    return {};
  }
  return name.substr(1, at - 1);
}

// tables[k][b]: CRC of byte b followed by k zero bytes, so that eight bytes are taken per step.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0u);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[k - 1][byte];
      tables[k][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}
constexpr CrcTables kCrcTables = make_crc_tables();

}  // namespace

Bytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

uint32_t crc32(Bytes bytes, uint32_t previous) {
  static_assert(std::endian::native == std::endian::little);
  const auto& t = kCrcTables;
  uint32_t crc = ~previous;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, bytes.data(), 4);
    std::memcpy(&high, bytes.data() + 4, 4);
    low ^= crc;
    crc = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF] ^ t[4][low >> 24] ^
          t[3][high & 0xFF] ^ t[2][(high >> 8) & 0xFF] ^ t[1][(high >> 16) & 0xFF] ^
          t[0][high >> 24];
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ t[0][(crc ^ std::to_integer<uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

std::vector<std::byte> read_file(const fs::path& path) {
  // Non-blocking: opening a pipe would wait for its writer, only to be refused below.
  const Descriptor descriptor(path, O_RDONLY | O_NONBLOCK, "open");
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail_with_errno(path, "read");
  if (!S_ISREG(status.st_mode)) fail("{}: is not a regular file", path.string());
  std::vector<std::byte> contents(static_cast<size_t>(status.st_size));
  size_t filled = 0;
  while (filled < contents.size()) {
    const ssize_t got =
        ::read(descriptor.get(), contents.data() + filled, contents.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      fail_with_errno(path, "read");
    }
    if (got == 0) {
      fail("{}: ended after {} of {} bytes while being read", path.string(), filled,
           contents.size());
    }
    filled += static_cast<size_t>(got);
  }
  return contents;
}

std::string read_text_file(const fs::path& path) {
  const std::vector<std::byte> contents = read_file(path);
  return std::string(reinterpret_cast<const char*>(contents.data()), contents.size());
}

void check_output_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status))
    fail("{}: is a folder; the name of a file is needed", path.string());
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  const fs::path target = fs::exists(status) ? fs::canonical(path, ignored) : path;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_with_errno(path, "create");
  if (!fs::is_directory(folder, ignored)) {
    fail("{}: cannot create: {} is not a folder", path.string(), folder.string());
  }
}

WrittenFile write_file_atomically(const fs::path& path, std::span<const Bytes> parts) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_and_sync(path, path, parts);
  fs::path target = path;
  if (fs::is_symlink(path, ignored) && fs::exists(status)) target = fs::canonical(path, ignored);
  const fs::path temporary = hidden_sibling(target, kTemporary);
  try {
    const WrittenFile result = write_and_sync(temporary, path, parts);
    rename_path(temporary, target);
    sync_directory(target.parent_path());
    return result;
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

WrittenFile write_file_atomically(const fs::path& path, std::string_view text) {
  const Bytes parts[] = {bytes_of(text)};
  return write_file_atomically(path, parts);
}

DirectoryTransaction::DirectoryTransaction(fs::path target)
    : target_(std::move(target)), temporary_(hidden_sibling(target_, kTemporary)) {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  if (::mkdir(temporary_.c_str(), 0777) != 0) fail_with_errno(temporary_, "create");
}

DirectoryTransaction::~DirectoryTransaction() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);  // after a commit: the folder that was replaced, if any
}

WrittenFile DirectoryTransaction::write(std::string_view file_name, std::span<const Bytes> parts) {
  return write_and_sync(temporary_ / file_name, target_ / file_name, parts);
}

WrittenFile DirectoryTransaction::write(std::string_view file_name, std::string_view text) {
  const Bytes parts[] = {bytes_of(text)};
  return write(file_name, parts);
}

void DirectoryTransaction::commit() {
  sync_directory(temporary_);
  if (std::error_code ignored; !fs::exists(fs::symlink_status(target_, ignored))) {
    rename_path(temporary_, target_);
  } else if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(),
                         RENAME_EXCHANGE) != 0) {
    // Not every file system can exchange two names in one step: clean_transactions() puts the old
    // folder back if the process dies between these two renames.
    const fs::path replaced = hidden_sibling(target_, kReplaced);
    rename_path(target_, replaced);
    try {
      rename_path(temporary_, target_);
    } catch (...) {
      ::rename(replaced.c_str(), target_.c_str());
      throw;
    }
    fs::remove_all(replaced, ignored);
  }
  sync_directory(target_.parent_path());
}

void clean_transactions(const fs::path& parent, std::initializer_list<std::string_view> of) {
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  for (const std::string& name : names) {
    const std::string_view originals[] = {
        hidden_name(name, kTemporary), hidden_name(name, kRemoved), hidden_name(name, kReplaced)};
    if (of.size() > 0 && std::ranges::find_first_of(originals, of) == std::end(originals)) continue;
    if (!hidden_name(name, kTemporary).empty() || !hidden_name(name, kRemoved).empty()) {
      fs::remove_all(parent / name, ignored);
    } else if (const std::string_view original = hidden_name(name, kReplaced); !original.empty()) {
      if (fs::exists(parent / original, ignored)) {
        fs::remove_all(parent / name, ignored);
      } else {
        fs::rename(parent / name, parent / original, ignored);
      }
    }
  }
}

void remove_directory_atomically(const fs::path& directory) {
  const fs::path removed = hidden_sibling(directory, kRemoved);
  rename_path(directory, removed);
  std::error_code ignored;
  fs::remove_all(removed, ignored);
}

void make_directories(const fs::path& directory) {
  std::error_code ignored;
  if (directory.empty() || fs::is_directory(directory, ignored)) return;
  make_directories(directory.parent_path());
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
    fail_with_errno(directory, "create");
  }
  if (!fs::is_directory(directory, ignored)) {
    fail("{}: is in the way: a folder is needed there", directory.string());
  }
  sync_directory(directory.parent_path());
}

AppendLog::AppendLog(fs::path path) : path_(std::move(path)) {
  Descriptor descriptor(path_, O_RDWR | O_CREAT | O_APPEND, "open");
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail_with_errno(path_, "read");
  size_ = static_cast<uint64_t>(status.st_size);
  descriptor_ = descriptor.release();
}

AppendLog::~AppendLog() {
  ::close(descriptor_);
}

void AppendLog::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos) {
    fail("{}: a line to append holds a line break", path_.string());
  }
  std::string text;
  text.reserve(line.size() + 1);
  text.append(line).push_back('\n');
  if (!write_fully(descriptor_, bytes_of(text))) {
    const int reason = errno;
    // Takes back a half line; if even that fails there is no better message than the first one.
    [[maybe_unused]] const int result = ::ftruncate(descriptor_, static_cast<off_t>(size_));
    errno = reason;
    fail_with_errno(path_, "append");
  }
  size_ += text.size();
}

void AppendLog::truncate_to(uint64_t bytes) {
  if (bytes > size_) {
    fail("{}: {} bytes, expected at least {}: lines were lost", path_.string(), size_, bytes);
  }
  if (bytes > 0) {
    char last = 0;
    if (::pread(descriptor_, &last, 1, static_cast<off_t>(bytes - 1)) != 1) {
      fail_with_errno(path_, "read");
    }
    if (last != '\n') {
      fail("{}: no line ends at byte {}: the file was changed", path_.string(), bytes);
    }
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    fail_with_errno(path_, "truncate");
  }
  size_ = bytes;
}

void AppendLog::sync() {
  sync_descriptor(descriptor_, path_);
}

}  // namespace primal

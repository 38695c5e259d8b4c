#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace primal {

// Files that survive a kill, a crash or a full disk. Every error is one line: path, what failed,
// and the system's reason.

using Bytes = std::span<const std::byte>;

Bytes bytes_of(std::string_view text);

/// CRC-32 as in zlib and PNG (reflected 0xEDB88320). Pass the last result to go on with more bytes.
uint32_t crc32(Bytes bytes, uint32_t previous = 0);

/// The whole of a regular file.
std::vector<std::byte> read_file(const std::filesystem::path& path);
std::string read_text_file(const std::filesystem::path& path);

/// Error when `path` cannot be written: it is a folder, or its folder is missing or closed to
/// writing. For a program to ask before the work whose result goes there.
void check_output_file(const std::filesystem::path& path);

struct WrittenFile {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

/// Replaces `path` by the parts, one after the other. After a kill or a failure the old content is
/// there, or the new, never a mixture: a temporary file in the same folder is written, fsynced and
/// renamed. A symbolic link is followed; a pipe or device such as /dev/stdout is written straight.
WrittenFile write_file_atomically(const std::filesystem::path& path, std::span<const Bytes> parts);
WrittenFile write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// A folder of files that appears as a whole or not at all.
///
/// Files are written and fsynced in `PARENT/.NAME.tmp-PID`; commit() renames that folder to
/// `PARENT/NAME`, replacing one of that name. Without commit() the destructor removes the temporary
/// folder and nothing else has been touched.
class DirectoryTransaction {
 public:
  /// The parent of `target` must exist.
  explicit DirectoryTransaction(std::filesystem::path target);
  DirectoryTransaction(const DirectoryTransaction&) = delete;
  DirectoryTransaction& operator=(const DirectoryTransaction&) = delete;
  ~DirectoryTransaction();

  WrittenFile write(std::string_view file_name, std::span<const Bytes> parts);
  WrittenFile write(std::string_view file_name, std::string_view text);
  /// The folder that is being filled, for files that other code writes.
  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
};

/// Tidies up `parent` after killed transactions and atomic writes: removes their temporary files,
/// and puts back a folder whose replacement never arrived; only those of the files and folders
/// named in `of`, unless it is empty. Failures are left for the next time.
void clean_transactions(const std::filesystem::path& parent,
                        std::initializer_list<std::string_view> of = {});

/// Removes a folder so that it is never seen half gone: it gets a hidden name first. Error when it
/// cannot be renamed.
void remove_directory_atomically(const std::filesystem::path& directory);

/// Creates a folder and its parents durably; no error when it is there already.
void make_directories(const std::filesystem::path& directory);

/// A text file that grows by whole lines. Each line is one write() to the system, so a killed
/// process loses no line it has appended, and a full disk leaves no half line.
class AppendLog {
 public:
  /// Creates the file, or goes on at its end.
  explicit AppendLog(std::filesystem::path path);
  AppendLog(const AppendLog&) = delete;
  AppendLog& operator=(const AppendLog&) = delete;
  ~AppendLog();

  /// `line` without its newline.
  void append(std::string_view line);
  /// Size of the file in bytes: what a checkpoint keeps, so that a resumed run can truncate_to()
  /// it.
  uint64_t size() const { return size_; }
  /// Drops what was written after the first `bytes`. Error unless a line ends there.
  void truncate_to(uint64_t bytes);
  /// Makes the lines survive a power failure, too. Call it before a checkpoint records size().
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace primal

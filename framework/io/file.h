// Crash-safe files: a replaced file has either the old or the new content, never a mixture. A write that does not reach
// the disk throws Error with the path, the bytes and the reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// CRC-32 (zlib's polynomial) of bytes, continuing from crc (0 for the first call).
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// A file open for reading. Its size is read once, when it is opened. Throws Error if it is missing or no regular file.
class FileReader {
 public:
  explicit FileReader(const std::string& path);  ///< opens it; for errors see above
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  const std::string& path() const { return path_; }  ///< as given to the constructor
  std::size_t size() const { return size_; }         ///< in bytes, when it was opened
  /// Fills `to` from offset on. Throws Error if the file is too short, or becomes so during the call.
  void read(std::size_t offset, std::span<std::byte> to) const;
  /// The whole file, mapped read-only for the life of the FileReader. read_ahead: use false for small scattered reads.
  /// copies_on_write: the pages may be written, without effect on the file or other readers. If another program
  /// truncates the file, this process is killed (SIGBUS).
  std::span<const std::byte> map(bool read_ahead = true, bool copies_on_write = false);

 private:
  std::string path_;
  int fd_ = -1;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
};

/// The whole file as bytes. Throws Error if it is missing, unreadable or no regular file.
std::vector<std::byte> read_bytes(const std::string& path);

/// The whole file as text. Throws Error if it is larger than at_most bytes.
std::string read_text(const std::string& path, std::size_t at_most);
/// CRC-32 of the whole file, which is read in pieces.
std::uint32_t crc32_of_file(const std::string& path);

/// Writes a new file; throws Error if it exists. Without a finish() the file is removed again.
class FileWriter {
 public:
  /// total: number of bytes to come. Throws Error, and leaves no file, if less space is free.
  FileWriter(std::string path, std::size_t total);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  /// Appends. Throws Error with the path, the bytes written so far and in total, and the reason (a full disk).
  void write(std::span<const std::byte> bytes);
  /// Replaces bytes that were written before, from offset on. crc() does not change.
  void overwrite(std::size_t offset, std::span<const std::byte> bytes);
  /// Makes the file durable (fsync) and closes it.
  void finish();
  std::size_t size() const { return size_; }  ///< bytes appended so far
  std::uint32_t crc() const { return crc_; }  ///< CRC-32 of the bytes appended so far

 private:
  [[noreturn]] void broken(const char* what) const;
  std::string path_;
  std::size_t total_, size_ = 0;
  std::uint32_t crc_ = 0;
  int fd_ = -1;
  bool finished_ = false;
};

/// Name of the temporary file in which path's content is written before rename_durably(); unique to this thread.
std::string temporary_name(const std::string& path);
/// rename(from, to), followed by fsync of to's directory.
void rename_durably(const std::string& from, const std::string& to);
/// Replaces path atomically: temporary file, fsync, rename, fsync of the directory. fill writes the content, `bytes`
/// bytes.
void replace_file(const std::string& path, std::size_t bytes, const std::function<void(FileWriter&)>& fill);
/// As above, with a text as the content.
void replace_file(const std::string& path, std::string_view text);
/// Writes and fsyncs a new file; throws Error if it exists. Does not fsync its directory.
void write_new_file(const std::string& path, std::string_view text);
/// Makes the directory's entries durable (fsync).
void sync_directory(const std::string& path);
/// Creates the directory and its parents durably, if missing.
void make_directories(const std::string& path);
/// Reserves disk space for all `bytes` bytes of an open file, if the file system supports that. Throws Error, and
/// reserves nothing, if less than the missing space is free.
void reserve_room(int fd, const std::string& path, std::size_t bytes);
/// Throws Error unless a file can be created in the directory (which is created if missing) and `bytes` bytes are free.
void check_writable(const std::string& directory, std::size_t bytes);

}  // namespace trireme

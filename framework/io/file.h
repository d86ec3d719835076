// Files that survive a crash: what is replaced is either the old or the new content, never a mixture, and a write that
// did not reach the disk is an Error with the path, the bytes and the reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// CRC-32 (zlib's polynomial) of bytes, continuing from crc (0 to begin).
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// A file open for reading; its size is taken once, on opening. Throws Error when it is missing or not a regular file.
class FileReader {
 public:
  explicit FileReader(const std::string& path);  ///< opens it; see above for errors
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  const std::string& path() const { return path_; }  ///< as it was given
  std::size_t size() const { return size_; }         ///< bytes, when it was opened
  /// Fills `to` from offset on. Throws Error when the file is shorter than that, before or during the call.
  void read(std::size_t offset, std::span<std::byte> to) const;
  /// The whole file, mapped read-only until the FileReader ends. read_ahead: false for small reads here and there.
  /// Another program that cuts the file short meanwhile ends this one (SIGBUS).
  /// copies_on_write: the pages may be written to, which changes neither the file nor what other readers see.
  std::span<const std::byte> map(bool read_ahead = true, bool copies_on_write = false);

 private:
  std::string path_;
  int fd_ = -1;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
};

/// The whole file as bytes. Throws Error when it is missing, unreadable or not a regular file.
std::vector<std::byte> read_bytes(const std::string& path);

/// The whole file as text. Throws Error when it is larger than at_most bytes.
std::string read_text(const std::string& path, std::size_t at_most);
/// CRC-32 of the whole file, read in pieces.
std::uint32_t crc32_of_file(const std::string& path);

/// A new file being written (an existing one is an Error). Unless finish() was reached it is removed again.
class FileWriter {
 public:
  /// total: how many bytes are to come. Throws Error, and leaves no file, where fewer are free.
  FileWriter(std::string path, std::size_t total);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  /// Appends. Throws Error with the path, the bytes written of the total, and the reason (a full disk).
  void write(std::span<const std::byte> bytes);
  /// Replaces bytes that were written before, from offset on. crc() stays that of the bytes before.
  void overwrite(std::size_t offset, std::span<const std::byte> bytes);
  /// fsync and close.
  void finish();
  std::size_t size() const { return size_; }  ///< bytes written so far, of write()
  std::uint32_t crc() const { return crc_; }  ///< CRC-32 of what was written so far

 private:
  [[noreturn]] void broken(const char* what) const;
  std::string path_;
  std::size_t total_, size_ = 0;
  std::uint32_t crc_ = 0;
  int fd_ = -1;
  bool finished_ = false;
};

/// Where the content of path is written before rename_durably() puts it in place; unique to this thread.
std::string temporary_name(const std::string& path);
/// rename(from, to), then fsync of to's directory.
void rename_durably(const std::string& from, const std::string& to);
/// Writes path as temporary file + fsync + rename + directory fsync; fill writes the content, `bytes` in all.
void replace_file(const std::string& path, std::size_t bytes, const std::function<void(FileWriter&)>& fill);
/// The same with text as the whole content.
void replace_file(const std::string& path, std::string_view text);
/// Writes a new file (one that exists is an Error), synced; its directory is not.
void write_new_file(const std::string& path, std::string_view text);
/// Makes the directory's entries durable.
void sync_directory(const std::string& path);
/// Creates the directory (and its parents) durably, unless it is there.
void make_directories(const std::string& path);
/// Takes the disk's blocks for all `bytes` of an open file, where the file system can do that. Throws Error, before it
/// takes any, where fewer are free than the file still lacks.
void reserve_room(int fd, const std::string& path, std::size_t bytes);
/// Throws Error unless a file of some bytes can be created in the directory (made if missing) and at least `bytes` are
/// free.
void check_writable(const std::string& directory, std::size_t bytes);

}  // namespace trireme

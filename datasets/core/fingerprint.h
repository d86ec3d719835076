// Fingerprint: a short text that identifies the content of data (like Hugging Face's Dataset fingerprint). A resumed
// run or an evaluation uses it to detect changed data under the same path.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// A CRC-32 of texts, bytes and files in the order of addition, with the number and total size of the files.
class Fingerprint {
 public:
  void add(std::string_view text);  ///< adds a text
  /// Adds bytes.
  void add(std::span<const std::byte> bytes);
  /// Adds a file's name (not its path) and size. Throws Error if the file is missing.
  void add_file(const std::string& name, const std::string& path);
  /// Adds parts of a file's content: all of it up to 4 MiB, else 64 evenly spread pieces of 64 KiB; after a total of
  /// 256 MiB only the first 4 KiB. Throws Error if it cannot be read.
  void add_content(const std::string& path);
  /// Adds a file's name, size and content; for a folder, the names and sizes of all files below it without hidden ones,
  /// and the content of at most 256 of them. times: also adds modification times. Throws Error as add_file().
  void add_path(const std::string& name, const std::string& path, bool times = false);
  /// "12 files of 3456 bytes, checksum 89abcdef"; without files "checksum 89abcdef".
  std::string text() const;

 private:
  std::uint32_t crc_ = 0;
  std::uint64_t files_ = 0, bytes_ = 0, read_ = 0;
};

}  // namespace trireme

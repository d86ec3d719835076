// Fingerprint: a short text that tells one content from another (Hugging Face's Dataset fingerprint), so that a run
// that goes on, or an evaluation, notices that its data are others under the same path.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// A CRC-32 of texts, bytes and files in the order in which they are added, and what the files hold together.
class Fingerprint {
 public:
  void add(std::string_view text);
  void add(std::span<const std::byte> bytes);
  /// A file's name, not its path, and its size. Throws Error where there is no such file.
  void add_file(const std::string& name, const std::string& path);
  /// Parts of a file's content: all of it up to 4 MiB, else 64 pieces of 64 KiB that are spread over it; once 256 MiB
  /// have been read, the first 4 KiB. Throws Error where it cannot be read.
  void add_content(const std::string& path);
  /// A file by both, of a folder all files in it and in its folders, without hidden ones, by their names and sizes, and
  /// the content of at most 256 of them. times: with the time of each file's last change. Throws Error as add_file().
  void add_path(const std::string& name, const std::string& path, bool times = false);
  /// "12 files of 3456 bytes, checksum 89abcdef"; without files "checksum 89abcdef".
  std::string text() const;

 private:
  std::uint32_t crc_ = 0;
  std::uint64_t files_ = 0, bytes_ = 0, read_ = 0;
};

}  // namespace trireme

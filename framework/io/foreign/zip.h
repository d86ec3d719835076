// Reads ZIP archives (PKWARE APPNOTE 6.3): stored and deflated entries, ZIP64. Entries are found by their exact name
// and are never extracted to files. Throws Error for encrypted or split archives, overlapping entries, and a directory
// that contradicts the entries.
#pragma once
#include <map>

#include "framework/io/foreign/file_array.h"

namespace trireme {

struct ZipEntry {
  std::string_view name;
  std::size_t size = 0;    ///< unpacked size in bytes
  std::size_t begin = 0;   ///< offset of the packed bytes in the archive
  std::size_t packed = 0;  ///< packed size in bytes
  std::uint32_t crc = 0;
  bool deflated = false;
};

class ZipReader {
 public:
  /// file must outlive the reader. op: beginning of the messages. Throws Error naming the file and the entry.
  ZipReader(const NamedBytes& file, std::string_view op);
  const std::vector<ZipEntry>& entries() const { return entries_; }  ///< in the order of their bytes
  const ZipEntry* find(std::string_view name) const;                 ///< null if there is none
  /// The unpacked entry. Throws Error if it is damaged (its CRC is checked) or has another size than declared.
  std::vector<std::byte> read(const ZipEntry&) const;

 private:
  ZipEntry parse_entry(std::span<const std::byte>& directory, std::uint64_t number) const;
  void locate_data(std::size_t end);

  const NamedBytes& file_;
  std::string_view op_;
  std::vector<ZipEntry> entries_;
  std::map<std::string_view, std::size_t> by_name_;  // index of entries_
};

}  // namespace trireme

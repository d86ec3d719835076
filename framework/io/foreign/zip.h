// ZIP archives, read (PKWARE APPNOTE 6.3): stored and deflated entries, ZIP64. What lies in one is looked up by its
// exact name and never written anywhere. An archive that is not as it should be is refused: encrypted or split ones,
// overlapping entries, a directory that disagrees with the entries it lists.
#pragma once
#include <map>

#include "framework/io/foreign/file_array.h"

namespace trireme {

struct ZipEntry {
  std::string_view name;
  std::size_t size = 0;    ///< bytes once unpacked
  std::size_t begin = 0;   ///< of its packed bytes in the archive
  std::size_t packed = 0;  ///< how many
  std::uint32_t crc = 0;
  bool deflated = false;
};

class ZipReader {
 public:
  /// Borrows file. op begins the messages. Throws Error naming the file and the entry.
  ZipReader(const NamedBytes& file, std::string_view op);
  const std::vector<ZipEntry>& entries() const { return entries_; }  ///< in the order of their bytes
  const ZipEntry* find(std::string_view name) const;                 ///< null: there is none
  /// The entry, unpacked. Throws Error when it is damaged (its CRC is checked) or not of the size it declares.
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

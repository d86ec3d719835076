// ZIP archives, read (PKWARE APPNOTE 6.3): stored and deflated entries, ZIP64. What lies in one is looked up by its
// exact name and never written anywhere. An archive that is not as it should be is refused: encrypted or split ones,
// overlapping entries, a directory that disagrees with what it lists.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/io/byte_source.h"

namespace trireme {

struct ZipEntry {
  std::string name;
  std::size_t size = 0;    ///< unpacked
  std::size_t packed = 0;  ///< in the archive
  std::size_t begin = 0;   ///< of its packed bytes in the archive
  std::uint32_t crc = 0;
  bool deflated = false;
};

class ZipReader {
 public:
  /// op begins the messages. Throws Error naming the source and what is wrong.
  ZipReader(ByteSource source, std::string_view op);
  const std::vector<ZipEntry>& entries() const { return entries_; }  ///< in the order of their bytes
  const ByteSource& source() const { return source_; }
  const ZipEntry* find(std::string_view name) const;
  /// Memory that read() takes: the unpacked bytes, and the packed ones while it runs.
  static std::size_t memory(const ZipEntry& e) { return e.size + (e.deflated ? e.packed : 0); }
  /// The entry, unpacked. Throws Error when it is damaged (its CRC is checked) or not of the size it declares.
  std::vector<std::byte> read(const ZipEntry&) const;

 private:
  void read_directory(std::size_t begin, std::size_t size, std::uint64_t count);
  void locate_data(std::size_t end);

  ByteSource source_;
  std::string_view op_;
  std::vector<ZipEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // indices of entries_
};

}  // namespace trireme

#include "framework/io/foreign/zip.h"

#include <libdeflate.h>

#include <algorithm>
#include <memory>

#include "framework/io/file.h"

namespace trireme {
namespace {

using Span = std::span<const std::byte>;

constexpr std::uint32_t end_magic = 0x06054b50, end64_magic = 0x06064b50, locator_magic = 0x07064b50,
                        directory_magic = 0x02014b50, local_magic = 0x04034b50;
constexpr std::size_t end_size = 22, end64_size = 56, locator_size = 20, directory_size = 46, local_size = 30;
constexpr std::uint32_t in_zip64 = 0xffffffff;  // marks a number that is in the ZIP64 record
constexpr std::size_t deflate_ratio = 1032;     // maximum ratio of deflate

std::uint16_t u16(Span bytes, std::size_t at) { return little_endian<std::uint16_t>(bytes.subspan(at, 2)); }
std::uint32_t u32(Span bytes, std::size_t at) { return little_endian<std::uint32_t>(bytes.subspan(at, 4)); }
std::uint64_t u64(Span bytes, std::size_t at) { return little_endian<std::uint64_t>(bytes.subspan(at, 8)); }
std::string_view text(Span bytes, std::size_t at, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, size};
}

/// Position of the directory and of the record after it.
struct Directory {
  std::uint64_t begin = 0, size = 0, count = 0, end = 0;
};

/// Finds the archive's end record (the last one whose comment ends with the file), or the ZIP64 record if there is one
/// just before it.
Directory find_directory(const NamedBytes& file, std::string_view op) {
  const Span all = file.bytes;
  const std::size_t most = end_size + 0xffff, lowest = all.size() > most ? all.size() - most : 0;
  for (std::size_t at = all.size() < end_size ? 0 : all.size() - end_size + 1; at-- > lowest;) {
    const Span end = all.subspan(at);
    const bool found = u32(end, 0) == end_magic && u16(end, 20) == end.size() - end_size;
    if (!found || u16(end, 4) != 0 || u16(end, 6) != 0 || u16(end, 8) != u16(end, 10)) continue;
    if (at >= locator_size + end64_size && u32(all, at - locator_size) == locator_magic)
      if (const std::uint64_t wide = u64(all, at - locator_size + 8);
          wide <= at - locator_size - end64_size && u32(all, wide) == end64_magic)
        return {u64(all, wide + 48), u64(all, wide + 40), u64(all, wide + 32), wide};
    return {u32(end, 16), u32(end, 12), u16(end, 10), at};
  }
  fail(ErrorKind::data, op, "{}: is no whole ZIP archive: its end is missing (truncated, or another format)",
       file.name);
}

/// Reads from the ZIP64 extra field the numbers that the directory entry does not have. False if the field is too
/// short.
bool apply_zip64(Span extra, std::uint64_t& size, std::uint64_t& packed, std::uint64_t& begin) {
  while (extra.size() >= 4) {
    const std::size_t length = u16(extra, 2);
    if (length > extra.size() - 4) return false;
    Span field = extra.subspan(4, length);
    const bool zip64 = u16(extra, 0) == 1;
    extra = extra.subspan(4 + length);
    if (!zip64) continue;
    for (std::uint64_t* number : {&size, &packed, &begin}) {
      if (*number != in_zip64) continue;
      if (field.size() < 8) return false;
      *number = u64(field, 0);
      field = field.subspan(8);
    }
    return true;
  }
  return true;
}

}  // namespace

ZipReader::ZipReader(const NamedBytes& file, std::string_view op) : file_(file), op_(op) {
  const Directory d = find_directory(file, op);
  check(d.begin <= d.end && d.size == d.end - d.begin, ErrorKind::data, op,
        "{}: its ZIP directory of {} bytes at offset {} does not reach to its end record at {}", file.name, d.size,
        d.begin, d.end);
  check(d.count <= d.size / directory_size, ErrorKind::data, op,
        "{}: its ZIP directory of {} bytes cannot hold {} entries", file.name, d.size, d.count);
  Span rest = file.bytes.subspan(d.begin, d.size);
  for (std::uint64_t i = 0; i < d.count; ++i) entries_.push_back(parse_entry(rest, i));
  check(rest.empty(), ErrorKind::data, op, "{}: {} bytes follow the {} entries of its ZIP directory", file.name,
        rest.size(), d.count);
  locate_data(d.begin);
}

/// Parses the next entry of the directory. Its begin is that of the headers before the packed bytes.
ZipEntry ZipReader::parse_entry(Span& rest, std::uint64_t number) const {
  const bool whole = rest.size() >= directory_size && u32(rest, 0) == directory_magic;
  check(whole, ErrorKind::data, op_, "{}: entry {} of its ZIP directory is damaged", file_.name, number);
  const std::size_t name = u16(rest, 28), extra = u16(rest, 30), size = directory_size + name + extra + u16(rest, 32);
  check(size <= rest.size(), ErrorKind::data, op_, "{}: entry {} of its ZIP directory is cut off", file_.name, number);
  ZipEntry e{.name = text(rest, directory_size, name), .crc = u32(rest, 16), .deflated = u16(rest, 10) == 8};
  if (u16(rest, 8) & 1) fail(ErrorKind::data, op_, "{}: entry {} is encrypted", file_.name, in_quotes(e.name));
  if (const int method = u16(rest, 10); method != 0 && method != 8)
    fail(ErrorKind::data, op_, "{}: entry {} is packed by method {}; stored (0) and deflated (8) are read", file_.name,
         in_quotes(e.name), method);
  std::uint64_t unpacked = u32(rest, 24), packed = u32(rest, 20), local = u32(rest, 42);
  const bool good = apply_zip64(rest.subspan(directory_size + name, extra), unpacked, packed, local);
  if (!good || (e.deflated ? unpacked / deflate_ratio > packed : unpacked != packed))
    fail(ErrorKind::data, op_, "{}: entry {} cannot hold {} bytes in {}", file_.name, in_quotes(e.name), unpacked,
         packed);
  e.size = unpacked;
  e.packed = packed;
  e.begin = local;
  rest = rest.subspan(size);
  return e;
}

/// Replaces the position of headers by that of packed bytes. Entries must not overlap (else a bomb could list the same
/// bytes many times) or reach into the directory.
void ZipReader::locate_data(std::size_t end) {
  std::sort(entries_.begin(), entries_.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  std::size_t free = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    ZipEntry& e = entries_[i];
    if (e.begin < free || e.begin > end || end - e.begin < local_size)
      fail(ErrorKind::data, op_, "{}: entry {} at offset {} overlaps another, or the directory at {}", file_.name,
           in_quotes(e.name), e.begin, end);
    const Span header = file_.bytes.subspan(e.begin, end - e.begin);
    const std::size_t name = u16(header, 26), before = local_size + name + u16(header, 28);
    const bool fits = u32(header, 0) == local_magic && before <= header.size() && e.packed <= header.size() - before;
    if (!fits || u16(header, 8) != (e.deflated ? 8 : 0) || name != e.name.size())
      fail(ErrorKind::data, op_, "{}: entry {} is not at offset {} as the ZIP directory says", file_.name,
           in_quotes(e.name), e.begin);
    if (const std::string_view own = text(header, local_size, name); own != e.name)
      fail(ErrorKind::data, op_, "{}: entry {} is called {} in the ZIP directory", file_.name, in_quotes(own),
           in_quotes(e.name));
    e.begin += before;
    free = e.begin + e.packed;
    if (!by_name_.emplace(e.name, i).second)
      fail(ErrorKind::data, op_, "{}: two entries are called {}", file_.name, in_quotes(e.name));
  }
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

std::vector<std::byte> ZipReader::read(const ZipEntry& e) const {
  const Span packed = file_.bytes.subspan(e.begin, e.packed);
  std::vector<std::byte> bytes(e.size);
  if (e.deflated) {
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> tool(
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    std::size_t used = 0, made = 0;
    const bool good =
        tool != nullptr && libdeflate_deflate_decompress_ex(tool.get(), packed.data(), packed.size(), bytes.data(),
                                                            bytes.size(), &used, &made) == LIBDEFLATE_SUCCESS;
    if (!good || used != e.packed || made != e.size)
      fail(ErrorKind::data, op_, "{}: entry {} is damaged: it does not unpack to the {} bytes it declares", file_.name,
           in_quotes(e.name), e.size);
  } else {
    std::ranges::copy(packed, bytes.begin());
  }
  if (crc32(bytes) != e.crc)
    fail(ErrorKind::data, op_, "{}: entry {} is damaged: its checksum is wrong", file_.name, in_quotes(e.name));
  return bytes;
}

}  // namespace trireme

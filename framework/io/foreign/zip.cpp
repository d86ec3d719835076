#include "framework/io/foreign/zip.h"

#include <libdeflate.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace trireme {
namespace {

using Bytes = std::vector<std::byte>;
using Span = std::span<const std::byte>;

constexpr std::uint32_t end_magic = 0x06054b50, end64_magic = 0x06064b50, locator_magic = 0x07064b50,
                        directory_magic = 0x02014b50, local_magic = 0x04034b50;
constexpr std::size_t end_size = 22, end64_size = 56, locator_size = 20, directory_size = 46, local_size = 30;
constexpr std::uint32_t in_zip64 = 0xffffffff;  // stands for "the number is in the ZIP64 record"
constexpr std::size_t deflate_ratio = 1032;     // the best that deflate can do

std::uint16_t u16(Span bytes, std::size_t at) { return little_endian<std::uint16_t>(bytes.subspan(at, 2)); }
std::uint32_t u32(Span bytes, std::size_t at) { return little_endian<std::uint32_t>(bytes.subspan(at, 4)); }
std::uint64_t u64(Span bytes, std::size_t at) { return little_endian<std::uint64_t>(bytes.subspan(at, 8)); }

Bytes read_range(const ByteSource& source, std::size_t begin, std::size_t size) {
  Bytes bytes(size);
  source.read(begin, bytes);
  return bytes;
}

/// Where the directory lies.
struct Directory {
  std::uint64_t begin = 0, size = 0, count = 0;
};

/// The record that ends the archive: the last one whose comment reaches exactly to the end of the file.
std::optional<std::pair<std::size_t, Directory>> find_end(const ByteSource& source) {
  const std::size_t tail = std::min(source.size, end_size + 0xffff);
  const Bytes bytes = read_range(source, source.size - tail, tail);
  for (std::size_t at = tail < end_size ? 0 : tail - end_size + 1; at-- > 0;) {
    if (u32(bytes, at) != end_magic || u16(bytes, at + 20) != tail - at - end_size) continue;
    const bool one_disk =
        u16(bytes, at + 4) == 0 && u16(bytes, at + 6) == 0 && u16(bytes, at + 8) == u16(bytes, at + 10);
    if (!one_disk) continue;
    return std::pair(source.size - tail + at, Directory{u32(bytes, at + 16), u32(bytes, at + 12), u16(bytes, at + 10)});
  }
  return std::nullopt;
}

/// The same numbers from the ZIP64 record, if the archive has one right before its end record.
std::optional<std::pair<std::size_t, Directory>> find_end64(const ByteSource& source, std::size_t end) {
  if (end < locator_size + end64_size) return std::nullopt;
  const Bytes locator = read_range(source, end - locator_size, locator_size);
  if (u32(locator, 0) != locator_magic) return std::nullopt;
  const std::uint64_t at = u64(locator, 8);
  if (at > end - locator_size - end64_size) return std::nullopt;
  const Bytes record = read_range(source, at, end64_size);
  if (u32(record, 0) != end64_magic) return std::nullopt;
  return std::pair(static_cast<std::size_t>(at), Directory{u64(record, 48), u64(record, 40), u64(record, 32)});
}

/// Replaces the numbers that the directory entry leaves to its ZIP64 extra field. False when the field is too short.
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

ZipReader::ZipReader(ByteSource source, std::string_view op) : source_(std::move(source)), op_(op) {
  const auto end = find_end(source_);
  check(end.has_value(), op_, "{}: is no whole ZIP archive: its end is missing (truncated, or another format)",
        source_.name);
  auto [at, directory] = *end;
  if (const auto wide = find_end64(source_, at)) std::tie(at, directory) = *wide;
  check(directory.begin <= at && directory.size == at - directory.begin, op_,
        "{}: its ZIP directory of {} bytes at offset {} does not reach to its end record at {}", source_.name,
        directory.size, directory.begin, at);
  read_directory(directory.begin, directory.size, directory.count);
  locate_data(directory.begin);
}

void ZipReader::read_directory(std::size_t begin, std::size_t size, std::uint64_t count) {
  check(count <= size / directory_size, op_, "{}: its ZIP directory of {} bytes cannot hold {} entries", source_.name,
        size, count);
  entries_.reserve(count);
  const Bytes directory = read_range(source_, begin, size);
  Span rest = directory;
  for (std::uint64_t i = 0; i < count; ++i) {
    bool good = rest.size() >= directory_size && u32(rest, 0) == directory_magic;
    check(good, op_, "{}: entry {} of its ZIP directory is damaged", source_.name, i);
    const std::size_t name = u16(rest, 28), extra = u16(rest, 30),
                      whole = directory_size + name + extra + u16(rest, 32);
    check(whole <= rest.size(), op_, "{}: entry {} of its ZIP directory is cut off", source_.name, i);
    ZipEntry e{{reinterpret_cast<const char*>(rest.data()) + directory_size, name}};
    const std::uint16_t flags = u16(rest, 8), method = u16(rest, 10);
    std::uint64_t unpacked = u32(rest, 24), packed = u32(rest, 20), local = u32(rest, 42);
    good = apply_zip64(rest.subspan(directory_size + name, extra), unpacked, packed, local);
    e.size = unpacked, e.packed = packed, e.begin = local, e.crc = u32(rest, 16), e.deflated = method == 8;
    if (flags & 1) fail(op_, "{}: entry {} is encrypted", source_.name, shown(e.name));
    if (method != 0 && method != 8)
      fail(op_, "{}: entry {} is packed by method {}; stored (0) and deflated (8) are read", source_.name,
           shown(e.name), method);
    good = good && (e.deflated ? unpacked / deflate_ratio <= packed : unpacked == packed);
    if (!good) fail(op_, "{}: entry {} cannot hold {} bytes in {}", source_.name, shown(e.name), unpacked, packed);
    entries_.push_back(std::move(e));
    rest = rest.subspan(whole);
  }
  check(rest.empty(), op_, "{}: {} bytes follow the {} entries of its ZIP directory", source_.name, rest.size(), count);
}

/// From the headers before the packed bytes: where those begin. Entries must not overlap (a bomb could otherwise list
/// the same bytes many times) nor reach into the directory.
void ZipReader::locate_data(std::size_t end) {
  std::sort(entries_.begin(), entries_.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  std::size_t free = 0;
  for (ZipEntry& e : entries_) {
    if (e.begin < free || e.begin > end || end - e.begin < local_size)
      fail(op_, "{}: entry {} at offset {} overlaps another, or the directory at {}", source_.name, shown(e.name),
           e.begin, end);
    const Bytes header = read_range(source_, e.begin, local_size);
    const std::size_t room = end - e.begin - local_size;
    const std::size_t name = u16(header, 26), before = name + u16(header, 28);
    const bool fits = u32(header, 0) == local_magic && before <= room && e.packed <= room - before;
    if (!fits || u16(header, 8) != (e.deflated ? 8 : 0) || name != e.name.size())
      fail(op_, "{}: entry {} is not at offset {} as the ZIP directory says", source_.name, shown(e.name), e.begin);
    std::string own(name, '\0');
    source_.read(e.begin + local_size, std::as_writable_bytes(std::span(own)));
    if (own != e.name)
      fail(op_, "{}: entry {} is called {} in the ZIP directory", source_.name, shown(own), shown(e.name));
    e.begin += local_size + before;
    free = e.begin + e.packed;
  }
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  auto name = [this](std::uint32_t i) -> const std::string& { return entries_[i].name; };
  std::sort(by_name_.begin(), by_name_.end(), [&](auto a, auto b) { return name(a) < name(b); });
  const auto twice =
      std::adjacent_find(by_name_.begin(), by_name_.end(), [&](auto a, auto b) { return name(a) == name(b); });
  if (twice != by_name_.end()) fail(op_, "{}: two entries are called {}", source_.name, shown(name(*twice)));
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](std::uint32_t i, std::string_view n) { return entries_[i].name < n; });
  return at != by_name_.end() && entries_[*at].name == name ? &entries_[*at] : nullptr;
}

std::vector<std::byte> ZipReader::read(const ZipEntry& e) const {
  Bytes bytes = read_range(source_, e.begin, e.packed);
  if (e.deflated) {
    Bytes unpacked(e.size);
    std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> tool(
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    std::size_t used = 0, made = 0;
    const bool good =
        tool != nullptr && libdeflate_deflate_decompress_ex(tool.get(), bytes.data(), bytes.size(), unpacked.data(),
                                                            unpacked.size(), &used, &made) == LIBDEFLATE_SUCCESS;
    if (!good || used != e.packed || made != e.size)
      fail(op_, "{}: entry {} is damaged: it does not unpack to the {} bytes it declares", source_.name, shown(e.name),
           e.size);
    bytes = std::move(unpacked);
  }
  if (crc32(bytes) != e.crc) fail(op_, "{}: entry {} is damaged: its checksum is wrong", source_.name, shown(e.name));
  return bytes;
}

}  // namespace trireme

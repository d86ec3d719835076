#include "datasets/formats/idx.h"

#include <fmt/ranges.h>
#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <memory>

#include "framework/io/bytes.h"
#include "framework/io/file.h"

namespace trireme {
namespace {

constexpr std::string_view idx_op = "idx";

/// Decompresses a gzip file of one member. Its last four bytes give the decompressed size.
std::vector<std::uint8_t> unzip(std::span<const std::byte> bytes, const std::string& source) {
  constexpr std::size_t smallest = 18, deflate_ratio = 1032;  // highest compression ratio of deflate
  check(bytes.size() >= smallest, ErrorKind::data, idx_op, "{}: truncated: {} bytes of gzip data", source,
        bytes.size());
  const std::size_t size = little_endian<std::uint32_t>(bytes.last(4));
  const auto damaged = [&] {
    fail(ErrorKind::data, idx_op, "{}: truncated or damaged gzip data: fetch the file again", source);
  };
  if (size / deflate_ratio > bytes.size()) damaged();
  // Input and values together stay within 64 MB + 4 x the input. The decompressor's memory is small compared with this.
  const std::size_t most = (std::size_t{64} << 20) - (std::size_t{1} << 18) + 3 * bytes.size();
  check(size <= most, ErrorKind::data, idx_op,
        "{}: declares {} bytes, over the {} allowed for {} bytes of gzip data: unpack it with gunzip", source, size,
        most, bytes.size());
  std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> tool(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  std::vector<std::uint8_t> out(size);
  std::size_t used = 0;
  if (tool == nullptr ||
      libdeflate_gzip_decompress_ex(tool.get(), bytes.data(), bytes.size(), out.data(), out.size(), &used, nullptr) !=
          LIBDEFLATE_SUCCESS ||
      used != bytes.size())
    damaged();
  return out;
}

std::uint32_t big_endian(std::span<const std::uint8_t> bytes, std::size_t at = 0) {
  return __builtin_bswap32(little_endian<std::uint32_t>(std::as_bytes(bytes).subspan(at)));
}

/// Name of an element type from 0x08 on; empty for a type that IDX does not have.
std::string_view type_name(std::uint8_t type) {
  constexpr std::array<std::string_view, 7> names{"u8", "i8", "", "i16", "i32", "f32", "f64"};
  return type >= 8 && type < 8 + names.size() ? names[type - 8u] : "";
}

std::vector<Index> read_extents(std::span<const std::uint8_t> bytes, const std::string& source) {
  check(bytes.size() >= 4, ErrorKind::data, idx_op, "{}: truncated: {} bytes, the header alone takes 8 or more", source,
        bytes.size());
  const std::string_view type = type_name(bytes[2]);
  const int rank = bytes[3];
  const bool idx = bytes[0] == 0 && bytes[1] == 0 && rank > 0 && !type.empty();
  check(idx, ErrorKind::data, idx_op,
        "{}: wrong magic {:#010x}; a label file begins with 0x00000801, an image file with 0x00000803", source,
        big_endian(bytes));
  check(type == "u8", ErrorKind::data, idx_op, "{}: holds {} values (type {:#04x}), only u8 (0x08) is read", source,
        type, bytes[2]);
  check(rank <= Shape::max_rank, ErrorKind::data, idx_op, "{}: has {} axes, at most {} are read", source, rank,
        int(Shape::max_rank));
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(rank);
  check(bytes.size() >= header, ErrorKind::data, idx_op, "{}: truncated: {} bytes, its header takes {}", source,
        bytes.size(), header);
  std::vector<Index> extents;
  for (std::size_t at = 4; at < header; at += 4) extents.push_back(big_endian(bytes, at));
  return extents;
}

}  // namespace

Idx parse_idx(std::span<const std::byte> bytes, const std::string& source) {
  check(!bytes.empty(), ErrorKind::data, idx_op, "{}: is empty", source);
  Idx idx;
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b}) {
    idx.values = unzip(bytes, source);
  } else {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    idx.values.assign(begin, begin + bytes.size());
  }
  idx.extents = read_extents(idx.values, source);
  const bool none = std::find(idx.extents.begin(), idx.extents.end(), 0) != idx.extents.end();
  Index count = none ? 0 : 1;
  for (Index extent : idx.extents)
    check(none || !__builtin_mul_overflow(count, extent, &count), ErrorKind::data, idx_op,
          "{}: its header declares an absurd size, [{}]", source, fmt::join(idx.extents, ", "));
  const std::size_t header = 4 + 4 * idx.extents.size(), declared = static_cast<std::size_t>(count);
  const std::size_t held = idx.values.size() - header;
  check(declared <= held, ErrorKind::data, idx_op, "{}: truncated: {} bytes, its header declares {}", source,
        idx.values.size(), header + declared);
  check(declared == held, ErrorKind::data, idx_op, "{}: {} trailing bytes after the values its header declares", source,
        held - declared);
  idx.values.erase(idx.values.begin(), idx.values.begin() + static_cast<std::ptrdiff_t>(header));
  return idx;
}

Idx read_idx(const std::string& path) { return parse_idx(read_bytes(path), path); }

}  // namespace trireme

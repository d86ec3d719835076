// The IDX format as described on Yann LeCun's MNIST page: big-endian throughout.
#include <fmt/ranges.h>
#include <libdeflate.h>
#include <zlib.h>

#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "datasets/core/files.h"
#include "datasets/formats/datasets.h"

namespace trireme {
namespace {

constexpr std::string_view op = "idx";

/// The bytes of an IDX file in order: as they are, or inflated on the way when they begin like gzip.
class ByteSource {
 public:
  ByteSource(std::span<const std::byte> bytes, const std::string& name) : rest_(bytes), name_(name) {
    gzip_ = bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
    const int gzip_only = 16;
    if (gzip_) check(inflateInit2(&z_, MAX_WBITS + gzip_only) == Z_OK, op, "{}: zlib cannot start", name_);
  }
  ~ByteSource() {
    if (gzip_) inflateEnd(&z_);
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  bool gzip() const { return gzip_; }
  /// Input bytes not used yet.
  std::size_t rest() const { return rest_.size(); }
  /// Fills out as far as the bytes reach; returns how far. Throws Error for damaged gzip data (wrong checksum
  /// included).
  std::size_t read(std::span<std::uint8_t> out) {
    if (gzip_) return inflate_into(out);
    const std::size_t n = std::min(out.size(), rest_.size());
    if (n > 0) std::memcpy(out.data(), rest_.data(), n);
    rest_ = rest_.subspan(n);
    return n;
  }
  /// Throws Error unless everything was read and the gzip stream, if it is one, is whole.
  void finish() {
    std::uint8_t extra;
    const std::size_t trailing = gzip_ ? inflate_into({&extra, 1}) : rest_.size();
    if (gzip_) {
      check(trailing == 0, op, "{}: holds more bytes than its header declares", name_);
      check(ended_, op, "{}: truncated: the gzip data ends before its checksum", name_);
      check(rest_.empty(), op, "{}: {} trailing bytes after the gzip data", name_, rest_.size());
    }
    check(trailing == 0, op, "{}: {} trailing bytes after the values its header declares", name_, trailing);
  }

 private:
  std::size_t inflate_into(std::span<std::uint8_t> out) {
    const std::size_t most = std::numeric_limits<uInt>::max();
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      const auto in = static_cast<uInt>(std::min(rest_.size(), most));
      const auto room = static_cast<uInt>(std::min(out.size() - done, most));
      z_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
      z_.avail_in = in;
      z_.next_out = out.data() + done;
      z_.avail_out = room;
      const int status = inflate(&z_, Z_NO_FLUSH);
      rest_ = rest_.subspan(in - z_.avail_in);
      done += room - z_.avail_out;
      if (status == Z_BUF_ERROR) break;  // no progress: the input is used up
      ended_ = status == Z_STREAM_END;
      check(ended_ || status == Z_OK, op, "{}: damaged gzip data: {}", name_,
            z_.msg != nullptr ? z_.msg : zError(status));
    }
    return done;
  }

  std::span<const std::byte> rest_;
  const std::string& name_;
  bool gzip_ = false, ended_ = false;
  z_stream z_{};
};

std::uint32_t big_endian(const std::uint8_t* b) {
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

std::string_view type_name(std::uint8_t type) {
  switch (type) {
    case 0x09: return "i8";
    case 0x0b: return "i16";
    case 0x0c: return "i32";
    case 0x0d: return "f32";
    case 0x0e: return "f64";
    default: return "";
  }
}

std::vector<Index> read_extents(ByteSource& bytes, const std::string& source) {
  std::uint8_t magic[4] = {};
  const std::size_t got = bytes.read(magic);
  check(got == 4, op, "{}: truncated: {} bytes, the header alone takes 8 or more", source, got);
  const std::string_view other = type_name(magic[2]);
  const int rank = magic[3];
  const bool idx = magic[0] == 0 && magic[1] == 0 && rank > 0 && (magic[2] == 0x08 || !other.empty());
  check(idx, op, "{}: wrong magic {:#010x}; a label file begins with 0x00000801, an image file with 0x00000803", source,
        big_endian(magic));
  check(other.empty(), op, "{}: holds {} values (type {:#04x}), only u8 (0x08) is read", source, other, magic[2]);
  check(rank <= Shape::max_rank, op, "{}: has {} axes, at most {} are read", source, rank, int(Shape::max_rank));

  std::uint8_t header[4 * Shape::max_rank];
  const std::size_t wanted = 4 * static_cast<std::size_t>(rank);
  const std::size_t found = bytes.read({header, wanted});
  check(found == wanted, op, "{}: truncated: {} bytes, its header takes {}", source, 4 + found, 4 + wanted);
  std::vector<Index> extents;
  for (int axis = 0; axis < rank; ++axis) extents.push_back(big_endian(header + 4 * axis));
  return extents;
}

/// Number of values. Throws Error when they cannot be there, or would not fit in memory, before any is
/// allocated.
std::size_t count_values(const std::vector<Index>& extents, const ByteSource& bytes, std::size_t input,
                         const std::string& source) {
  const bool none = std::find(extents.begin(), extents.end(), 0) != extents.end();
  Index count = none ? 0 : 1;
  bool overflow = false;
  for (Index extent : extents)
    if (!none) overflow = overflow || __builtin_mul_overflow(count, extent, &count);
  check(!overflow, op, "{}: its header declares an absurd size, [{}]", source, fmt::join(extents, ", "));

  const auto values = static_cast<std::size_t>(count);
  const std::size_t header = 4 + 4 * extents.size();
  if (!bytes.gzip()) {
    check(values <= bytes.rest(), op, "{}: truncated: {} bytes, its header declares {}", source, input,
          header + values);
    return values;
  }
  const std::size_t deflate_ratio = 1032;  // the best that deflate can do
  check(values / deflate_ratio <= input, op,
        "{}: truncated: {} bytes of gzip data cannot hold the {} bytes its header declares", source, input,
        header + values);
  // Input and values together stay within 64 MB + 4 x the input; zlib's window is small beside the rounding.
  const std::size_t most = (std::size_t{64} << 20) - (std::size_t{1} << 18) + 3 * input;
  check(values <= most, op,
        "{}: declares {} bytes, over the {} allowed for {} bytes of gzip data: unpack it with gunzip", source,
        header + values, most, input);
  return values;
}

/// All of a gzip file of exactly header + values bytes, three times as fast as zlib; nothing when anything about it is
/// not as it should be: zlib then finds out what.
std::optional<std::vector<std::uint8_t>> inflate_whole(std::span<const std::byte> bytes, std::size_t header,
                                                       std::size_t values) {
  std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> tool(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  std::vector<std::uint8_t> out(header + values);
  std::size_t used = 0;
  if (tool == nullptr ||
      libdeflate_gzip_decompress_ex(tool.get(), bytes.data(), bytes.size(), out.data(), out.size(), &used, nullptr) !=
          LIBDEFLATE_SUCCESS ||
      used != bytes.size())
    return std::nullopt;
  out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(header));
  return out;
}

}  // namespace

Idx parse_idx(std::span<const std::byte> bytes, const std::string& source) {
  check(!bytes.empty(), op, "{}: is empty", source);
  ByteSource input(bytes, source);
  Idx idx{read_extents(input, source), {}};
  const std::size_t header = 4 + 4 * idx.extents.size();
  const std::size_t values = count_values(idx.extents, input, bytes.size(), source);
  if (input.gzip())
    if (auto inflated = inflate_whole(bytes, header, values)) return {std::move(idx.extents), std::move(*inflated)};
  idx.values.resize(values);
  const std::size_t got = input.read(idx.values);
  check(got == idx.values.size(), op, "{}: truncated: {} bytes once unpacked, its header declares {}", source,
        header + got, header + idx.values.size());
  input.finish();
  return idx;
}

Idx read_idx(const std::string& path) { return parse_idx(read_bytes(path), path); }

}  // namespace trireme

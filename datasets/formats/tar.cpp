#include "datasets/formats/tar.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

constexpr char tar_op[] = "tar";
constexpr std::size_t block = 512;
constexpr std::size_t longest_record = std::size_t{1} << 20;  // largest extended header or long name
constexpr std::size_t most_padding = std::size_t{1} << 20;    // zeros after the end mark; tar rounds up to 10 kB

using Block = std::span<const std::byte, block>;

std::string_view field(Block header, std::size_t at, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + at, size);
  return text.substr(0, text.find('\0'));
}

/// A number in octal digits between spaces, or in base 256 (GNU) if the first bit is set.
std::optional<std::uint64_t> number(Block header, std::size_t at, std::size_t size) {
  const auto bytes = header.subspan(at, size);
  if ((bytes[0] & std::byte{0x80}) != std::byte{0}) {
    std::uint64_t value = std::to_integer<std::uint64_t>(bytes[0] & std::byte{0x7f});
    for (std::byte b : bytes.subspan(1)) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | std::to_integer<std::uint64_t>(b);
    }
    return value;
  }
  const std::string_view text = trimmed(field(header, at, size));
  std::uint64_t value = 0;
  return text.empty() || parse_number(text, value, 8) ? std::optional(value) : std::nullopt;
}

/// Checks the sum of the header's bytes, in which the checksum field counts as spaces.
bool checksum_is_right(Block header) {
  constexpr std::size_t at = 148, size = 8;
  std::int64_t plain = 0, as_signed = 0;  // old tar programs summed signed chars
  for (std::size_t i = 0; i < block; ++i) {
    const auto b = i >= at && i < at + size ? std::uint8_t{' '} : std::to_integer<std::uint8_t>(header[i]);
    plain += b;
    as_signed += static_cast<std::int8_t>(b);
  }
  const auto stated = number(header, at, size);
  return stated && (static_cast<std::int64_t>(*stated) == plain || static_cast<std::int64_t>(*stated) == as_signed);
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

class Scan {
 public:
  Scan(const NamedBytes& source, const std::function<void(const TarMember&)>& f) : source_(source), f_(f) {}

  void run() {
    for (;;) {
      const Block header = header_at(at_);
      if (is_zero(header)) return end();
      if (!checksum_is_right(header))
        fail(ErrorKind::data, tar_op, "{}: no tar header at byte {}: its checksum is wrong", source_.name, at_);
      member(header);
    }
  }

 private:
  Block header_at(std::size_t at) const {
    check(at < source_.bytes.size() && source_.bytes.size() - at >= block, ErrorKind::data, tar_op,
          "{}: truncated: the two zero blocks that end a tar archive are missing at byte {}", source_.name, at);
    return source_.bytes.subspan(at).first<block>();
  }

  void member(Block header) {
    const auto type = std::to_integer<char>(header[156]);
    const bool extends = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    std::string name = extends ? "" : take_name(header);
    std::size_t size = number(header, 124, 12).value_or(SIZE_MAX);
    if (!extends && size_) size = *std::exchange(size_, std::nullopt);
    const std::size_t data = at_ + block, room = source_.bytes.size() - data;
    if (size > room)
      fail(ErrorKind::data, tar_op, "{}: truncated, or damaged: member {} at byte {} declares {} bytes, {} are left",
           source_.name, in_quotes(name), at_, size, room);
    at_ = data + size + (block - size % block) % block;
    switch (type) {
      case 'x':
      case 'g': return extended(type, text_of(data, size));
      case 'L': name_ = text_of(data, size).substr(0, text_of(data, size).find('\0')); return;
      case 'K': return;  // a long link's target; the link itself is an error
      case '5': return;  // a directory
      case '0':
      case '7':
      case '\0': break;
      default:
        fail(ErrorKind::data, tar_op, "{}: member {} is {}; shards hold plain files", source_.name, in_quotes(name),
             type == '1' || type == '2' ? "a link, which is not followed" : "no plain file");
    }
    if (type == '\0' && name.ends_with('/')) return;  // a directory in the format before POSIX
    check_name(name);
    f_({std::move(name), data, size});
  }

  /// The name from an extended header, or the header's own name.
  std::string take_name(Block header) {
    if (name_) {
      std::string name = std::move(*name_);
      name_.reset();
      return name;
    }
    std::string name(field(header, 0, 100));
    const bool ustar = field(header, 257, 6) == "ustar";  // GNU's magic "ustar  " uses the prefix field for other data
    if (const std::string_view prefix = field(header, 345, 155); ustar && !prefix.empty())
      name = std::string(prefix) + "/" + name;
    return name;
  }

  void check_name(const std::string& name) const {
    bool good = !name.empty() && name[0] != '/' && name.find('\0') == name.npos;
    good = good && std::ranges::count(split_text(name, '/'), "..") == 0;
    if (!good)
      fail(ErrorKind::data, tar_op, "{}: member {} has a name that leads elsewhere", source_.name, in_quotes(name));
  }

  std::string_view text_of(std::size_t at, std::size_t size) const {
    check(size <= longest_record, ErrorKind::data, tar_op,
          "{}: an extended header of {} bytes at byte {}; at most {} are read", source_.name, size, at,
          std::size_t{longest_record});
    return {reinterpret_cast<const char*>(source_.bytes.data()) + at, size};
  }

  /// Parses records "27 path=some/where/else.jpg\n". Only path and size are used.
  void extended(char type, std::string_view text) {
    const auto wrong = [&](std::string_view what) {
      fail(ErrorKind::data, tar_op, "{}: the extended header before byte {} {}", source_.name, at_, what);
    };
    while (!text.empty()) {
      std::size_t length = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<std::size_t>(end - text.data());
      if (error != std::errc() || length > text.size() || length < digits + 3 || text[digits] != ' ' ||
          text[length - 1] != '\n')
        wrong("is damaged");
      const std::string_view record = text.substr(digits + 1, length - digits - 2);
      text.remove_prefix(length);
      const std::string_view key = record.substr(0, record.find('='));
      if (key.size() == record.size()) wrong("is damaged");
      const std::string_view value = record.substr(key.size() + 1);
      if (key.starts_with("GNU.sparse.")) wrong("makes a sparse file, which is not read");
      if (key != "path" && key != "size") continue;
      if (type == 'g') wrong("gives all members one name or size");
      if (key == "path") {
        name_ = value;
        continue;
      }
      std::uint64_t size = 0;
      if (!parse_number(value, size)) wrong("has a size that is no number");
      size_ = size;
    }
  }

  /// Called after a zero block: checks the second zero block, and that only zeros follow.
  void end() {
    if (name_ || size_)
      fail(ErrorKind::data, tar_op, "{}: an extended header without its member before byte {}", source_.name, at_);
    const bool second = is_zero(header_at(at_ + block));
    check(second, ErrorKind::data, tar_op, "{}: a single zero block at byte {}, two end a tar archive", source_.name,
          at_);
    const std::size_t begin = at_ + 2 * block, rest = source_.bytes.size() - begin;
    check(rest <= most_padding && is_zero(source_.bytes.subspan(begin)), ErrorKind::data, tar_op,
          "{}: {} bytes follow the end of the archive at byte {} (archives put together by cat? tar -A joins them)",
          source_.name, rest, begin);
  }

  const NamedBytes& source_;
  const std::function<void(const TarMember&)>& f_;
  std::size_t at_ = 0;
  std::optional<std::string> name_;  // of the next member, from an extended header
  std::optional<std::size_t> size_;
};

}  // namespace

void scan_tar(const NamedBytes& archive, const std::function<void(const TarMember&)>& f) { Scan(archive, f).run(); }

}  // namespace trireme

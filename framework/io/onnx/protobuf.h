// Protobuf: encodes one message of Google's wire format (protobuf.dev/programming-guides/encoding), field by field. It
// only writes. libprotobuf is not used, since it would clash with the copy of a program that links this library.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

class Protobuf {
 public:
  /// Fields of type int64, int32, uint64, bool or enum. A negative number takes ten bytes.
  Protobuf& integer(int field, std::int64_t value) {
    tag(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  /// float
  Protobuf& number(int field, float value) {
    tag(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  /// double
  Protobuf& real(int field, double value) {
    tag(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  /// string, bytes
  Protobuf& text(int field, std::string_view value) {
    announce(field, value.size());
    bytes_ += value;
    return *this;
  }
  Protobuf& message(int field, const Protobuf& value) { return text(field, value.bytes_); }
  /// repeated double, packed
  Protobuf& reals(int field, std::span<const double> values) {
    announce(field, 8 * values.size());
    for (double v : values) fixed(std::bit_cast<std::uint64_t>(v), 8);
    return *this;
  }
  /// Tag and length of a field whose `size` bytes are written separately, so that large fields are not copied.
  Protobuf& announce(int field, std::size_t size) {
    tag(field, 2);
    varint(size);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  bool operator==(const Protobuf&) const = default;

 private:
  void tag(int field, unsigned wire_type) { varint(static_cast<std::uint64_t>(field) << 3 | wire_type); }
  void varint(std::uint64_t v) {
    for (; v >= 0x80; v >>= 7) bytes_ += static_cast<char>(v | 0x80);
    bytes_ += static_cast<char>(v);
  }
  void fixed(std::uint64_t v, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(v >> 8 * i);
  }
  std::string bytes_;
};

}  // namespace trireme

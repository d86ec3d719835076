// A reader of protobuf's wire format, for tests: a message as its fields in order.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"

namespace trireme::test {

struct Field {
  std::uint64_t number = 0;  ///< varint, or the bits of a fixed32 or fixed64
  std::string_view bytes = {};
  double real() const {
    double d;
    std::memcpy(&d, &number, sizeof d);
    return d;
  }
  float single() const {
    const auto bits = static_cast<std::uint32_t>(number);
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }
};

/// Borrows the bytes. Throws Error unless they are a whole message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {
    while (!rest_.empty()) {
      const std::uint64_t tag = varint();
      Field f;
      switch (tag & 7) {
        case 0: f.number = varint(); break;
        case 1: f.number = fixed(8); break;
        case 2: f.bytes = take(varint()); break;
        case 5: f.number = fixed(4); break;
        default: fail("protobuf", "wire type {}", tag & 7);
      }
      fields_[static_cast<int>(tag >> 3)].push_back(f);
    }
  }
  const std::vector<Field>& all(int field) const {
    static const std::vector<Field> none;
    const auto at = fields_.find(field);
    return at == fields_.end() ? none : at->second;
  }
  bool has(int field) const { return fields_.contains(field); }
  /// The only one.
  const Field& one(int field) const {
    check(all(field).size() == 1, "protobuf", "field {} is there {} times", field, all(field).size());
    return all(field)[0];
  }
  Fields message(int field) const { return Fields(one(field).bytes); }
  std::string text(int field) const { return std::string(one(field).bytes); }

 private:
  std::string_view take(std::uint64_t n) {
    check(n <= rest_.size(), "protobuf", "{} bytes wanted, {} left", n, rest_.size());
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  std::uint64_t fixed(std::size_t n) {
    std::uint64_t v = 0;
    std::memcpy(&v, take(n).data(), n);
    return v;
  }
  std::uint64_t varint() {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      v |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return v;
    }
    fail("protobuf", "a varint of more than ten bytes");
  }
  std::string_view rest_;
  std::map<int, std::vector<Field>> fields_;
};

}  // namespace trireme::test

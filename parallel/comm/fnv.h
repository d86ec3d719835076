// Fnv: FNV-1a, 64 bits (Fowler, Noll, Vo), of numbers and texts. A text is hashed with its length.
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

class Fnv {
 public:
  /// Adds numbers and enumerators of any type, and texts.
  template <class... V>
  void add(const V&... values) {
    (add_one(values), ...);
  }
  /// The hash of everything added so far.
  std::uint64_t value() const { return hash_; }

 private:
  template <class V>
  void add_one(V number) {
    for (int i = 0; i < 8; ++i)
      hash_ = (hash_ ^ ((static_cast<std::uint64_t>(number) >> (8 * i)) & 0xff)) * 0x100000001b3u;
  }
  void add_one(const std::string& text) {
    add_one(text.size());
    for (unsigned char c : text) hash_ = (hash_ ^ c) * 0x100000001b3u;
  }
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace trireme

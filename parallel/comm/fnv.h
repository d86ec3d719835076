// Fnv: FNV-1a, 64 bits (Fowler, Noll, Vo), over numbers and texts; a text goes in with its length.
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

class Fnv {
 public:
  void add(std::uint64_t v) {
    for (int i = 0; i < 8; ++i) hash_ = (hash_ ^ ((v >> (8 * i)) & 0xff)) * 0x100000001b3u;
  }
  void add(const std::string& text) {
    add(text.size());
    for (unsigned char c : text) hash_ = (hash_ ^ c) * 0x100000001b3u;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace trireme

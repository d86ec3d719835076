// What readers of binary formats share: bytes with a name, little-endian numbers, and texts as messages show them.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// The bytes of a file, in memory or mapped (FileReader::map()), and its name for messages. Borrowed.
struct NamedBytes {
  std::string name;
  std::span<const std::byte> bytes;
};

/// The little-endian number of type T at the front of bytes, which must hold it. So is the machine.
template <class T>
T little_endian(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// A text of unknown origin, quoted for a message: what is not printable ASCII becomes '?', and it is cut at 80.
inline std::string shown(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string out = "\"";
  for (char c : text.substr(0, longest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace trireme

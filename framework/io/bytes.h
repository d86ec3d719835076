// Helpers for readers of binary formats: bytes with a name, little-endian numbers, and quoted texts for messages.
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

/// The little-endian number of type T at the beginning of bytes, which must be long enough. The machine must be
/// little-endian.
template <class T>
T little_endian(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Quotes an untrusted text for a message: non-printable characters become '?', and it is cut after 80 characters.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string out = "\"";
  for (char c : text.substr(0, longest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace trireme

// UTF-8 decoding, and the classes of code points that tokenizers use (\p{L}, \p{N}, \s of regular expressions).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// The character at the front of a text.
struct CodePoint {
  std::uint32_t code = 0;  ///< code point if valid, else the first byte
  std::size_t size = 0;    ///< bytes; if not valid, the bytes that one U+FFFD replaces, at least 1
  bool valid = false;      ///< well-formed UTF-8 (Unicode, table 3-7): no surrogates, no overlong forms
  bool cut = false;        ///< not valid, but further bytes after the text could complete it
};
/// The first character of a non-empty text.
CodePoint code_point(std::string_view text);
/// Appends the code point as UTF-8.
void append_utf8(std::string& to, std::uint32_t code);
/// A name for messages: "U+00E9".
std::string code_name(std::uint32_t code);

/// The class of a character in a pattern; invalid UTF-8 is `other`.
enum class CharacterClass : std::uint8_t { other, letter, number, space };
/// The class of a character.
CharacterClass class_of(const CodePoint&);

}  // namespace trireme

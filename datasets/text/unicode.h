// UTF-8, and the classes of code points that tokenizers cut text by (\p{L}, \p{N}, \s of regular expressions).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// The character at the front of a text.
struct CodePoint {
  std::uint32_t code = 0;  ///< valid: its number; else the first byte
  std::size_t size = 0;    ///< bytes; not valid: those that a replacement character stands for, at least 1
  bool valid = false;      ///< well-formed UTF-8 (Unicode, table 3-7): no surrogate, no longer form than needed
  bool cut = false;        ///< not valid, but bytes behind the text could make it so
};
/// Of a text that is not empty.
CodePoint code_point(std::string_view text);
/// Appends the code point as UTF-8.
void append_utf8(std::string& to, std::uint32_t code);
/// For messages: U+00E9.
std::string code_name(std::uint32_t code);

/// What a character is to a pattern; bytes that are no UTF-8 are `other`.
enum class CharacterClass : std::uint8_t { other, letter, number, space };
CharacterClass class_of(const CodePoint&);

}  // namespace trireme

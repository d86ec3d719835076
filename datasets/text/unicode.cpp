#include "datasets/text/unicode.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>

#include "datasets/text/unicode_ranges.h"

namespace trireme {
namespace {

using detail::CodeRange;

/// White_Space of Unicode's PropList.txt, unchanged since Unicode 6.3.
constexpr CodeRange spaces[] = {{0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                {0x205f, 0x205f}, {0x3000, 0x3000}};

bool lies_in(std::span<const CodeRange> ranges, std::uint32_t code) {
  const auto after = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
  return after != ranges.begin() && code <= std::prev(after)->last;
}

CharacterClass look_up(std::uint32_t code) {
  if (lies_in({detail::letter_ranges, detail::letter_ranges_count}, code)) return CharacterClass::letter;
  if (lies_in({detail::number_ranges, detail::number_ranges_count}, code)) return CharacterClass::number;
  return lies_in(spaces, code) ? CharacterClass::space : CharacterClass::other;
}

constexpr auto ascii_classes = [] {
  std::array<CharacterClass, 128> all{};
  for (std::size_t c = 0; c < all.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) all[c] = CharacterClass::letter;
    if (c >= '0' && c <= '9') all[c] = CharacterClass::number;
    if (c == ' ' || (c >= 0x9 && c <= 0xd)) all[c] = CharacterClass::space;
  }
  return all;
}();

}  // namespace

CodePoint code_point(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : 4;
  if (lead < 0xc2 || lead > 0xf4) return {lead, 1};
  // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF.
  std::uint32_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  std::uint32_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i, low = 0x80, high = 0xbf) {
    if (i >= text.size()) return {.code = lead, .size = i, .cut = true};
    if (byte(i) < low || byte(i) > high) return {lead, i};
    code = code << 6 | (byte(i) & 0x3f);
  }
  return {code, length, true};
}

void append_utf8(std::string& to, std::uint32_t code) {
  const auto rest = [&](int shift) { to += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return to.push_back(static_cast<char>(code));
  if (code < 0x800) {
    to.push_back(static_cast<char>(0xc0 | code >> 6));
    return rest(0);
  }
  if (code < 0x10000) {
    to.push_back(static_cast<char>(0xe0 | code >> 12));
    rest(6);
    return rest(0);
  }
  to.push_back(static_cast<char>(0xf0 | code >> 18));
  rest(12);
  rest(6);
  rest(0);
}

std::string code_name(std::uint32_t code) { return fmt::format("U+{:04X}", code); }

CharacterClass class_of(const CodePoint& c) {
  if (!c.valid) return CharacterClass::other;
  return c.code < 128 ? ascii_classes[c.code] : look_up(c.code);
}

}  // namespace trireme

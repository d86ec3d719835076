#include "datasets/text/words.h"

#include <algorithm>

#include "datasets/text/unicode.h"

namespace trireme {
namespace {

/// End of the run of characters of a class from `at` on, at most `most` characters.
std::size_t run_end(std::string_view text, std::size_t at, CharacterClass kind, std::size_t most = -1) {
  while (at < text.size() && most-- != 0) {
    const CodePoint c = code_point(text.substr(at));
    if (class_of(c) != kind) break;
    at += c.size;
  }
  return at;
}
CharacterClass class_at(std::string_view text, std::size_t at) { return class_of(code_point(text.substr(at))); }

/// Bytes of the contraction at the start of the text ("'s", "'re"); 0: none. any_case: Unicode's (?i:...), in which
/// U+017F matches s.
std::size_t contraction(std::string_view text, bool any_case) {
  if (!text.starts_with('\'')) return 0;
  const std::string_view rest = text.substr(1, 2);
  const auto is = [&](std::string_view letters) {
    return rest.size() >= letters.size() &&
           std::ranges::equal(letters, rest.substr(0, letters.size()), [&](char a, char b) {
             return a == b || (any_case && b >= 'A' && b <= 'Z' && a == b - 'A' + 'a');
           });
  };
  for (const std::string_view letters : {"s", "t", "re", "ve", "m", "ll", "d"})
    if (is(letters)) return 1 + letters.size();
  return any_case && rest == "\u017f" ? 3 : 0;
}

/// End of the word that begins with white space: all of it at the end of the text, else all but its last character, if
/// there is another. The last character belongs to the next word.
std::size_t space_end(std::string_view text, std::size_t at) {
  std::size_t last = at, end = at;
  while (end < text.size()) {
    const CodePoint c = code_point(text.substr(end));
    if (class_of(c) != CharacterClass::space) break;
    last = end;
    end += c.size;
  }
  return end == text.size() || last == at ? end : last;
}

std::size_t gpt2_end(std::string_view text, std::size_t at) {
  if (const std::size_t size = contraction(text.substr(at), false)) return at + size;
  const std::size_t begin = at + (text[at] == ' ' && at + 1 < text.size() ? 1 : 0);
  const CharacterClass kind = class_at(text, begin);
  return kind == CharacterClass::space ? space_end(text, at) : run_end(text, begin, kind);
}

std::size_t llama3_end(std::string_view text, std::size_t at) {
  if (const std::size_t size = contraction(text.substr(at), true)) return at + size;
  const CodePoint first = code_point(text.substr(at));
  const CharacterClass kind = class_of(first);
  const std::size_t second = at + first.size;
  const auto is_newline = [](char c) { return c == '\r' || c == '\n'; };
  const bool before_letters = kind != CharacterClass::number && !is_newline(text[at]) && second < text.size();
  if (kind == CharacterClass::letter || (before_letters && class_at(text, second) == CharacterClass::letter))
    return run_end(text, second, CharacterClass::letter);
  if (kind == CharacterClass::number) return run_end(text, at, kind, 3);
  const std::size_t begin = text[at] == ' ' ? second : at;
  if (begin < text.size() && class_at(text, begin) == CharacterClass::other) {
    std::size_t end = run_end(text, begin, CharacterClass::other);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const std::string_view spaces = text.substr(at, run_end(text, at, CharacterClass::space) - at);
  const std::size_t newline = spaces.find_last_of("\r\n");
  return newline == spaces.npos ? space_end(text, at) : at + newline + 1;
}

}  // namespace

std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t at) {
  switch (pattern) {
    case WordPattern::gpt2: return gpt2_end(text, at);
    case WordPattern::llama3: return llama3_end(text, at);
    case WordPattern::whole: break;
  }
  return text.size();
}

}  // namespace trireme

// Splits text that people write, and reads numbers from it.
#pragma once
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The pieces between separators: one more than there are separators; pieces may be empty.
inline std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(separator, begin), text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
  }
  return pieces;
}

/// The text without the characters of `spaces` at both ends.
inline std::string_view trimmed(std::string_view text, std::string_view spaces = " ") {
  const std::size_t begin = text.find_first_not_of(spaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(spaces) + 1 - begin);
}

/// Reads the whole text as a number of type T, in a given base if there is one (std::from_chars). False if it is not
/// one.
template <class T, class... Base>
bool parse_number(std::string_view text, T& value, Base... base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace trireme

// Catch2, whichever major version the distribution has. Where they differ, tests use: Approx, and
// contains("...") for the matcher of part of a text. CHECK_ERROR(f(), usage, "wte", 50257) asks for an Error of this
// kind whose message names these values, wherever they stand in it.
#pragma once
#include <fmt/format.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"
#ifdef CATCH_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace trireme::test {
inline auto contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
template <class T>
using MatcherBase = Catch::Matchers::MatcherBase<T>;
}  // namespace trireme::test
#else
#include <catch2/catch.hpp>
namespace trireme::test {
inline auto contains(const std::string& part) { return Catch::Matchers::Contains(part); }
template <class T>
using MatcherBase = Catch::MatcherBase<T>;
}  // namespace trireme::test
#endif

namespace trireme::test {

/// Whether a text names a value: not as a part of a longer word or number, so that 3 is not in 13, 3.5 or f32.
inline bool names(std::string_view text, std::string_view value) {
  const auto joins = [](char a, char b) {
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    return is_word(a) && is_word(b);
  };
  for (std::size_t at = text.find(value); at != text.npos; at = text.find(value, at + 1)) {
    const std::size_t end = at + value.size();
    const bool begins = at == 0 || value.empty() || !joins(text[at - 1], value.front());
    const bool ends = end == text.size() || value.empty() || !joins(value.back(), text[end]);
    const bool fraction = end + 1 < text.size() && text[end] == '.' && !value.empty() &&
                          std::isdigit(static_cast<unsigned char>(value.back())) != 0 &&
                          std::isdigit(static_cast<unsigned char>(text[end + 1])) != 0;
    if (begins && ends && !fraction) return true;
  }
  return false;
}

class ErrorMatcher : public MatcherBase<Error> {
 public:
  template <class... V>
  explicit ErrorMatcher(ErrorKind kind, const V&... values) : kind_(kind), values_{fmt::format("{}", values)...} {}
  bool match(const Error& e) const override {
    for (const std::string& value : values_)
      if (!names(e.what(), value)) return false;
    return e.kind() == kind_;
  }
  std::string describe() const override {
    std::string text = fmt::format("is of the kind {} and names", name_of(kind_));
    for (const std::string& value : values_) text += fmt::format(" <{}>", value);
    return text;
  }

 private:
  ErrorKind kind_;
  std::vector<std::string> values_;
};

/// Kind and message, for mentions(): "data: idx: F: is empty".
inline std::string told(const Error& e) { return fmt::format("{}: {}", name_of(e.kind()), e.what()); }

class MentionsMatcher : public MatcherBase<std::string> {
 public:
  template <class... V>
  explicit MentionsMatcher(const V&... values) : values_{fmt::format("{}", values)...} {}
  bool match(const std::string& text) const override {
    for (const std::string& value : values_)
      if (!names(text, value)) return false;
    return true;
  }
  std::string describe() const override {
    std::string text = "mentions";
    for (const std::string& value : values_) text += fmt::format(" <{}>", value);
    return text;
  }

 private:
  std::vector<std::string> values_;
};
/// The matcher of a text that names these values: CHECK_THAT(told(e), mentions("data", 15, 18)).
template <class... V>
MentionsMatcher mentions(const V&... values) {
  return MentionsMatcher(values...);
}

}  // namespace trireme::test

namespace Catch {
/// What a failure shows: the kind and the message.
template <>
struct StringMaker<trireme::Error> {
  static std::string convert(const trireme::Error& e) {
    return fmt::format("{}: {}", trireme::name_of(e.kind()), e.what());
  }
};
}  // namespace Catch

/// kind: usage, data, ... (ErrorKind). The values are texts, numbers, shapes: what fmt writes.
#define CHECK_ERROR(expression, kind, ...)           \
  CHECK_THROWS_MATCHES(expression, ::trireme::Error, \
                       ::trireme::test::ErrorMatcher(::trireme::ErrorKind::kind __VA_OPT__(, ) __VA_ARGS__))
#define REQUIRE_ERROR(expression, kind, ...)           \
  REQUIRE_THROWS_MATCHES(expression, ::trireme::Error, \
                         ::trireme::test::ErrorMatcher(::trireme::ErrorKind::kind __VA_OPT__(, ) __VA_ARGS__))

// The one exception type of Trireme, and check(), the one way to throw it.
#pragma once
#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

/// Thrown for every failure the library detects. what() reads "op: what came, what was expected, the remedy".
class Error : public std::runtime_error {
 public:
  Error(std::string message, std::source_location where) : std::runtime_error(std::move(message)), where_(where) {}
  const std::source_location& where() const { return where_; }

 private:
  std::source_location where_;
};

/// A format string that remembers where it was written, so check() can report its caller without a macro.
template <class... A>
struct Message {
  template <class S>
  consteval Message(const S& text, std::source_location at = std::source_location::current())  // NOLINT: implicit
      : format(text), where(at) {}
  fmt::format_string<A...> format;
  std::source_location where;
};

namespace detail {
[[noreturn, gnu::cold]] void throw_error(std::string_view op, fmt::string_view format, fmt::format_args,
                                         std::source_location);
}

/// Throws Error("op: text").
template <class... A>
[[noreturn]] void fail(std::string_view op, Message<std::type_identity_t<A>...> text, A&&... args) {
  detail::throw_error(op, text.format, fmt::make_format_args(args...), text.where);
}

/// Throws Error("op: text") unless ok. The text is formatted only on failure.
template <class... A>
void check(bool ok, std::string_view op, Message<std::type_identity_t<A>...> text, A&&... args) {
  if (!ok) [[unlikely]]
    fail<A...>(op, text, std::forward<A>(args)...);
}

}  // namespace trireme

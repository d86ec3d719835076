// The one exception type of Trireme, and check(), the one way to throw it.
#pragma once
#include <fmt/core.h>

#include <concepts>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace trireme {

/// Thrown for every failure the library detects. what() reads "op: what came, what was expected, the remedy".
class Error : public std::runtime_error {
 public:
  /// message: all of what(); check() and fail() put it together.
  Error(std::string message, std::source_location where) : std::runtime_error(std::move(message)), where_(where) {}
  /// The call of check() or fail(), in the library's source.
  const std::source_location& where() const { return where_; }

 private:
  std::source_location where_;
};

/// A format string that remembers where it was written, so check() can report its caller without a macro.
template <class... A>
struct Message {
  /// From a literal; that it suits the arguments A is checked at compile time (fmt).
  template <class S>
  consteval Message(const S& text, std::source_location at = std::source_location::current())  // NOLINT: implicit
      : format(text), where(at) {}
  fmt::format_string<A...> format;  ///< text with {} for each argument
  std::source_location where;       ///< of the literal
};

namespace detail {
[[noreturn, gnu::cold]] void throw_error(std::string_view op, fmt::string_view format, fmt::format_args,
                                         std::source_location);
template <class A>
decltype(auto) shown(A& argument) {
  if constexpr (std::invocable<A&>)
    return argument();
  else
    return (argument);
}
/// What a message shows of an argument: itself or, where it can be called, its result.
template <class A>
using Shown = std::remove_cvref_t<decltype(shown(std::declval<A&>()))>;
}  // namespace detail

/// Throws Error("op: text"). An argument that can be called is called for what the text shows.
template <class... A>
[[noreturn, gnu::cold, gnu::noinline]] void fail(std::string_view op,
                                                 Message<std::type_identity_t<detail::Shown<A>>...> text, A&&... args) {
  [&](auto&&... shown) {
    detail::throw_error(op, text.format, fmt::make_format_args(shown...), text.where);
  }(detail::shown(args)...);
  __builtin_unreachable();
}

/// Throws Error("op: text") unless ok. The text is formatted only on failure; an argument that costs anything is a
/// lambda (or a function without parameters), called only then: check(block, "allocate", "out of memory{}", place).
template <class... A>
[[gnu::always_inline]] inline void check(bool ok, std::string_view op,
                                         Message<std::type_identity_t<detail::Shown<A>>...> text, A&&... args) {
  if (!ok) [[unlikely]]
    fail<A...>(op, text, std::forward<A>(args)...);
}

}  // namespace trireme

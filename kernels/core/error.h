// Error: the only exception type of Trireme. check() and fail(): the only functions that throw it.
#pragma once
#include <fmt/core.h>

#include <concepts>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace trireme {

/// What went wrong. It determines the exit status of `trireme`. For the kinds with "yes", `trireme train -n` restarts
/// the training, since another attempt may succeed:
///
///   kind           status  again  what went wrong
///   usage               2  no     a setting, an argument, an operand or the order of calls
///   data               65  no     the contents of a file or data set are malformed, or do not suit the model
///   file               66  yes    a file, folder, pipe or program cannot be opened, read, written or started
///   device             67  yes    a device is missing, or CUDA, cuDNN, cuBLAS or oneDNN reports a failure
///   communicator       68  yes    another rank failed, hangs or calls something else, or MPI or NCCL reports a failure
///   numerics           69  no     a loss, a gradient or a weight is NaN or infinite, or has left its range
///   out_of_memory      70  yes    the memory of the host or of a device does not suffice, or a limit is reached
///   internal           71  yes    the library contradicts itself; also any exception that is not an Error
///
/// Other statuses:
/// - 0: success
/// - 1: a negative answer (verify: the results differ; doctor: the run does not progress), or failed runs (scaling,
/// tune, and launch if a rank was killed or crashed without an error)
/// - 85: stopped on request, after saving
/// - 128 + N: killed by signal N (under mpiexec N itself)
enum class ErrorKind : int { usage, data, file, device, communicator, numerics, out_of_memory, internal };

/// "usage", "data", ...
std::string_view name_of(ErrorKind);
/// The exit status of a process that stops because of an error of this kind.
int exit_status(ErrorKind);
/// The kind with this exit status; empty if no kind has it.
std::optional<ErrorKind> kind_of_status(int status);

/// The exception for every failure that the library detects. what() is one line: "op: what came, what was expected,
/// what to do".
class Error : public std::runtime_error {
 public:
  /// For callers: Error::Kind::usage.
  using Kind = ErrorKind;
  /// message: the complete text of what(). Use check() or fail(), which compose it.
  Error(std::string message, std::source_location where, Kind kind = Kind::usage)
      : std::runtime_error(std::move(message)), where_(where), kind_(kind) {}
  /// The source line in the library that called check() or fail().
  const std::source_location& where() const { return where_; }
  /// The kind. An error that is passed on to another rank or process keeps its kind.
  Kind kind() const { return kind_; }

 private:
  std::source_location where_;
  Kind kind_;
};

/// The kind of the exception that is being handled: an Error's kind, out_of_memory for std::bad_alloc, file for
/// std::filesystem::filesystem_error, else internal.
ErrorKind current_kind();
/// The message of the std::exception that is being handled: what(), or for std::bad_alloc the cause and the remedy. It
/// is one line: line feeds (possible in file names) become "\\n", other control characters "?".
std::string current_message();

/// A format string with its source line, so that check() can report its caller without a macro.
template <class... A>
struct Message {
  /// From a literal. The compiler checks it against the types A of the arguments (fmt).
  template <class S>
  consteval Message(const S& text, std::source_location at = std::source_location::current())  // NOLINT: implicit
      : format(text), where(at) {}
  fmt::format_string<A...> format;  ///< text with {} for each argument
  std::source_location where;       ///< line of the literal
};

namespace detail {
[[noreturn, gnu::cold]] void throw_error(ErrorKind, std::string_view op, fmt::string_view format, fmt::format_args,
                                         std::source_location);
template <class A>
decltype(auto) shown(A& argument) {
  if constexpr (std::invocable<A&>)
    return argument();
  else
    return (argument);
}
/// The type that a message prints for an argument: its own type or, for a callable, the type of its result.
template <class A>
using Shown = std::remove_cvref_t<decltype(shown(std::declval<A&>()))>;
}  // namespace detail

/// Throws Error("op: text") of this kind. An argument that is callable is called, and its result is printed.
template <class... A>
[[noreturn, gnu::cold, gnu::noinline]] void fail(ErrorKind kind, std::string_view op,
                                                 Message<std::type_identity_t<detail::Shown<A>>...> text, A&&... args) {
  [&](auto&&... shown) {
    detail::throw_error(kind, op, text.format, fmt::make_format_args(shown...), text.where);
  }(detail::shown(args)...);
  __builtin_unreachable();
}

/// As above, of kind usage.
template <class... A>
[[noreturn, gnu::cold]] void fail(std::string_view op, Message<std::type_identity_t<detail::Shown<A>>...> text,
                                  A&&... args) {
  fail<A...>(ErrorKind::usage, op, text, std::forward<A>(args)...);
}

/// Throws Error("op: text") of this kind unless ok. The text is formatted only on failure. Pass an argument that is
/// expensive to compute as a lambda (or a function without parameters), which is called only on failure:
/// check(block, ErrorKind::out_of_memory, "allocate", "no block of {} bytes{}", bytes, place).
template <class... A>
[[gnu::always_inline]] inline void check(bool ok, ErrorKind kind, std::string_view op,
                                         Message<std::type_identity_t<detail::Shown<A>>...> text, A&&... args) {
  if (!ok) [[unlikely]]
    fail<A...>(kind, op, text, std::forward<A>(args)...);
}

/// As above, of kind usage.
template <class... A>
[[gnu::always_inline]] inline void check(bool ok, std::string_view op,
                                         Message<std::type_identity_t<detail::Shown<A>>...> text, A&&... args) {
  if (!ok) [[unlikely]]
    fail<A...>(ErrorKind::usage, op, text, std::forward<A>(args)...);
}

}  // namespace trireme

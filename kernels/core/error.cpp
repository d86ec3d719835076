#include "kernels/core/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <utility>

#include "kernels/core/view.h"

namespace trireme {

namespace {
constexpr std::array<std::pair<std::string_view, int>, 8> kinds{{{"usage", 2},
                                                                 {"data", 65},
                                                                 {"file", 66},
                                                                 {"device", 67},
                                                                 {"communicator", 68},
                                                                 {"numerics", 69},
                                                                 {"out_of_memory", 70},
                                                                 {"internal", 71}}};
}  // namespace

std::string_view name_of(ErrorKind kind) { return kinds[static_cast<std::size_t>(kind)].first; }
int exit_status(ErrorKind kind) { return kinds[static_cast<std::size_t>(kind)].second; }
std::optional<ErrorKind> kind_of_status(int status) {
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (kinds[i].second == status) return static_cast<ErrorKind>(i);
  return {};
}

ErrorKind current_kind() {
  try {
    throw;
  } catch (const Error& e) { return e.kind(); } catch (const std::bad_alloc&) {
    return ErrorKind::out_of_memory;
  } catch (const std::filesystem::filesystem_error&) { return ErrorKind::file; } catch (...) {
    return ErrorKind::internal;
  }
}

std::string current_message() {
  std::string text;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "out of memory: the host's memory does not suffice; try a smaller batch or model";
  } catch (const std::exception& e) { text = e.what(); }
  std::string line;
  for (const char c : text) {
    if (c == '\n')
      line += "\\n";
    else
      line += static_cast<unsigned char>(c) < ' ' || c == 127 ? '?' : c;
  }
  return line;
}

}  // namespace trireme

namespace trireme::detail {

void throw_error(ErrorKind kind, std::string_view op, fmt::string_view format, fmt::format_args args,
                 std::source_location where) {
  std::string message = fmt::format("{}: {}", op, fmt::vformat(format, args));
  std::ranges::replace(message, '\0', '?');  // where what() would end
  throw Error(std::move(message), where, kind);
}

namespace {
/// fmt::format_to() would compile all of fmt's formatting here.
fmt::format_context::iterator written(fmt::format_context& context, std::string_view text) {
  return std::ranges::copy(text, context.out()).out;
}
}  // namespace

template <>
fmt::format_context::iterator Formatter<Shape>::format(const Shape& shape, fmt::format_context& context) const {
  return written(context, to_string(shape));
}
template <>
fmt::format_context::iterator Formatter<DType>::format(const DType& dtype, fmt::format_context& context) const {
  return written(context, name_of(dtype));
}
template <>
fmt::format_context::iterator Formatter<Device>::format(const Device& device, fmt::format_context& context) const {
  return written(context, to_string(device));
}

void no_such_axis(int axis, const Shape& shape) {
  fail("shape", "there is no axis {}, the tensor has {} axes: {}", axis, shape.rank(), shape);
}
void wrong_element_type(DType is, DType asked) {
  fail("data", "the elements are {}, but were requested as {}: convert them with to({})", is, asked, asked);
}

}  // namespace trireme::detail

namespace trireme {

std::size_t checked_bytes(std::string_view op, const Shape& shape, DType dtype) {
  Index bytes = size_of(dtype);
  bool fits = true, none = false;
  for (Index extent : shape) {
    check(extent >= 0, op, "got shape {}, expected extents >= 0", shape);
    if (extent == 0)
      none = true;
    else
      fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
  }
  check(fits, op, "{} of {} has more bytes than 64 bits can count", shape, dtype);
  return none ? 0 : static_cast<std::size_t>(bytes);
}

}  // namespace trireme

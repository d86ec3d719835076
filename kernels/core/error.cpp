#include "kernels/core/error.h"

#include <fmt/format.h>

#include "kernels/core/view.h"

namespace trireme::detail {

void throw_error(std::string_view op, fmt::string_view format, fmt::format_args args, std::source_location where) {
  throw Error(fmt::format("{}: {}", op, fmt::vformat(format, args)), where);
}

template <>
fmt::format_context::iterator Formatter<Shape>::format(const Shape& shape, fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", to_string(shape));
}
template <>
fmt::format_context::iterator Formatter<DType>::format(const DType& dtype, fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", name_of(dtype));
}
template <>
fmt::format_context::iterator Formatter<Device>::format(const Device& device, fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", to_string(device));
}

void no_such_axis(int axis, const Shape& shape) {
  fail("shape", "axis {} of a tensor with {} axes: {}", axis, shape.rank(), shape);
}
void wrong_element_type(DType is, DType asked) {
  fail("data", "the elements are {}, and are asked for as {}: use to({})", is, asked, asked);
}

}  // namespace trireme::detail

namespace trireme {

std::size_t checked_bytes(std::string_view op, const Shape& shape, DType dtype) {
  Index bytes = size_of(dtype);
  bool fits = true, none = false;
  for (Index extent : shape) {
    check(extent >= 0, op, "{} is not a shape: extents are >= 0", shape);
    if (extent == 0)
      none = true;
    else
      fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
  }
  check(fits, op, "{} of {} has more bytes than 64 bits can count", shape, dtype);
  return none ? 0 : static_cast<std::size_t>(bytes);
}

}  // namespace trireme

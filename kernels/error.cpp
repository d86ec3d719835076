#include "kernels/error.h"

#include <fmt/format.h>

#include "kernels/view.h"

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

}  // namespace trireme::detail

#include "framework/io/foreign/file_array.h"

#include <array>
#include <cstring>

#include "kernels/core/half_types.h"

namespace trireme {
namespace {

constexpr std::array<ElementType, 10> types{{{"f64", 8, DType::f64},
                                             {"f32", 4, DType::f32},
                                             {"f16", 2, DType::f32},
                                             {"bf16", 2, DType::bf16},
                                             {"i64", 8, DType::i64},
                                             {"i32", 4, DType::i32},
                                             {"i16", 2, DType::i32},
                                             {"i8", 1, DType::i32},
                                             {"u8", 1, DType::u8},
                                             {"bool", 1, DType::u8}}};

/// n elements, stride apart, to n neighbours: each loaded as From, converted and stored as To.
template <class From, class To, class Convert>
void convert_run(const std::byte* from, Index stride, Index n, std::byte* to, Convert convert) {
  for (Index i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from + i * stride * Index{sizeof(From)}, sizeof(From));
    const To converted = convert(value);
    std::memcpy(to + i * Index{sizeof(To)}, &converted, sizeof(To));
  }
}

constexpr auto same = [](auto value) { return value; };

void copy_run(const ElementType& type, const std::byte* from, Index stride, Index n, std::byte* to) {
  if (type.name == "f16") return convert_run<std::uint16_t, float>(from, stride, n, to, from_half);
  if (type.name == "i16") return convert_run<std::int16_t, std::int32_t>(from, stride, n, to, same);
  if (type.name == "i8") return convert_run<std::int8_t, std::int32_t>(from, stride, n, to, same);
  if (type.name == "bool")
    return convert_run<std::uint8_t, std::uint8_t>(from, stride, n, to, [](std::uint8_t b) { return b != 0; });
  if (stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n * type.size));
    return;
  }
  if (type.size == 8) return convert_run<std::uint64_t, std::uint64_t>(from, stride, n, to, same);
  if (type.size == 4) return convert_run<std::uint32_t, std::uint32_t>(from, stride, n, to, same);
  if (type.size == 2) return convert_run<std::uint16_t, std::uint16_t>(from, stride, n, to, same);
  convert_run<std::uint8_t, std::uint8_t>(from, stride, n, to, same);
}

/// Elements from the first to one past the last that the array touches; nothing for an array of none. Overflow
/// saturates.
std::size_t reach(const Shape& shape, const Strided& at) {
  if (shape.numel() == 0) return 0;
  std::size_t last = at.offset;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    std::size_t step = 0;
    if (__builtin_mul_overflow(static_cast<std::size_t>(shape[axis] - 1), static_cast<std::size_t>(at.strides[axis]),
                               &step) ||
        __builtin_add_overflow(last, step, &last))
      return SIZE_MAX;
  }
  return last == SIZE_MAX ? last : last + 1;
}

}  // namespace

const ElementType* find_element_type(std::string_view name) {
  for (const ElementType& type : types)
    if (type.name == name) return &type;
  return nullptr;
}

std::size_t count_elements(const FileArray& array, std::string_view op, const std::string& source) {
  Index n = 8;  // room for the widest type, and a sign
  bool good = true, empty = false;
  for (Index extent : array.shape) {
    good = good && extent >= 0;
    empty = empty || extent == 0;
    if (extent > 0) good = good && !__builtin_mul_overflow(n, extent, &n);
  }
  if (!good) fail(op, "{}: array {} has the impossible shape {}", source, shown(array.name), array.shape);
  return empty ? 0 : static_cast<std::size_t>(n / 8);
}

Strided dense(const Shape& shape) {
  Strided at{0, shape};
  Index step = 1;
  for (int axis = shape.rank(); axis-- > 0; step *= shape[axis]) at.strides[axis] = step;
  return at;
}

Strided columns_first(const Shape& shape) {
  Strided at{0, shape};
  Index step = 1;
  for (int axis = 0; axis < shape.rank(); step *= shape[axis++]) at.strides[axis] = step;
  return at;
}

void gather(const FileArray& array, const Strided& at, std::span<const std::byte> elements, std::byte* to,
            std::string_view op, const std::string& source) {
  const ElementType& type = *array.type;
  Shape shape = array.shape;
  const std::size_t held = elements.size() / static_cast<std::size_t>(type.size);
  if (reach(shape, at) > held)
    fail(op, "{}: array {} of shape {} reaches beyond the {} elements stored for it", source, shown(array.name), shape,
         held);
  if (shape.numel() == 0) return;

  Shape strides = at.strides;
  if (strides == dense(shape).strides) shape = {shape.numel()}, strides = {1};  // one run
  const int outer = std::max(0, shape.rank() - 1);
  const Index n = shape.rank() > 0 ? shape[-1] : 1, stride = shape.rank() > 0 ? strides[-1] : 1;
  Shape index = shape;
  std::fill_n(&index[0], Shape::max_rank, 0);
  for (Index run = shape.product(0, outer); run > 0; --run) {
    auto from = static_cast<Index>(at.offset);
    for (int axis = 0; axis < outer; ++axis) from += index[axis] * strides[axis];
    copy_run(type, elements.data() + from * type.size, stride, n, to);
    to += n * size_of(type.becomes);
    for (int axis = outer; axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

void MemoryLimit::take(std::size_t bytes, std::string_view op, const std::string& name) {
  if (bytes > left_)
    fail(op,
         "{}: {} needs {} bytes more, over the {} left of what a file of {} bytes may take; if it truly "
         "is that large, store it uncompressed and without expanded views",
         source_.name, shown(name), bytes, left_, source_.size);
  left_ -= bytes;
}

}  // namespace trireme

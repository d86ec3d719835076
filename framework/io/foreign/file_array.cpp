#include "framework/io/foreign/file_array.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

/// Number of elements from the first to one past the last that the array uses; 0 for an empty array. Saturates on
/// overflow.
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

std::size_t count_elements(const FileArray& array, std::string_view op, const std::string& source) {
  Index n = 8;  // room for the widest type, and a sign
  bool good = true, empty = false;
  for (Index extent : array.shape) {
    good = good && extent >= 0;
    empty = empty || extent == 0;
    if (extent > 0) good = good && !__builtin_mul_overflow(n, extent, &n);
  }
  if (!good)
    fail(ErrorKind::data, op, "{}: array {} has the impossible shape {}", source, in_quotes(array.name), array.shape);
  return empty ? 0 : static_cast<std::size_t>(n / 8);
}

Strided dense(const Shape& shape, bool columns_first) {
  Strided at{0, shape};
  Index step = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    const int axis = columns_first ? i : shape.rank() - 1 - i;
    at.strides[axis] = std::exchange(step, step * shape[axis]);
  }
  return at;
}

void gather(const FileArray& array, const Strided& at, std::span<const std::byte> elements, std::byte* to,
            std::string_view op, const std::string& source) {
  const ElementType& type = *array.type;
  Shape shape = array.shape;
  const std::size_t held = elements.size() / type.size;
  if (reach(shape, at) > held)
    fail(ErrorKind::data, op, "{}: array {} of shape {} reaches beyond the {} elements stored for it", source,
         in_quotes(array.name), shape, held);
  if (shape.numel() == 0) return;

  Shape strides = at.strides;
  if (strides == dense(shape).strides) {
    shape = {shape.numel()};
    strides = {1};
  }  // one run
  const int outer = std::max(0, shape.rank() - 1);
  const Index n = shape.rank() > 0 ? shape[-1] : 1, stride = shape.rank() > 0 ? strides[-1] : 1;
  Shape index = shape;
  std::fill_n(&index[0], Shape::max_rank, 0);
  for (Index run = shape.product(0, outer); run > 0; --run) {
    auto from = static_cast<Index>(at.offset);
    for (int axis = 0; axis < outer; ++axis) from += index[axis] * strides[axis];
    type.copy(elements.data() + from * static_cast<Index>(type.size), stride, n, to);
    to += n * size_of(type.becomes);
    for (int axis = outer; axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

void MemoryLimit::take(std::size_t bytes, std::string_view op, std::string_view name) {
  if (bytes > left_)
    fail(ErrorKind::data, op,
         "{}: {} needs {} bytes more, over the {} left of what a file of {} bytes may take; if it truly "
         "is that large, store it uncompressed and without expanded views",
         file_.name, in_quotes(name), bytes, left_, file_.bytes.size());
  left_ -= bytes;
}

}  // namespace trireme

// Shape and View: the part of a tensor that a kernel gets. A View is a dense, row-major block with channels last that
// the kernel borrows.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "kernels/core/device.h"
#include "kernels/core/dtype.h"

namespace trireme {

using Index = std::int64_t;  ///< for extents, positions and numbers of elements

class Shape;
namespace detail {
[[noreturn, gnu::cold]] void no_such_axis(int axis, const Shape&);
[[noreturn, gnu::cold]] void wrong_element_type(DType is, DType asked);
}  // namespace detail

/// Up to six extents, outermost first, stored inline. Images are N,H,W,C, volumes N,D,H,W,C, filters O,H,W,I.
class Shape {
 public:
  static constexpr int max_rank = 6;  ///< maximum number of axes
  Shape() = default;                  ///< the shape of a scalar: rank 0
  /// {2, 28, 28, 1}. Throws Error for more than max_rank extents. Negative extents are allowed here.
  Shape(std::initializer_list<Index> extents) { assign(extents.begin(), extents.size()); }
  /// The same from a span.
  explicit Shape(std::span<const Index> extents) { assign(extents.data(), extents.size()); }

  int rank() const { return rank_; }  ///< number of axes
  /// Extent of axis i; a negative i counts from the last axis. Throws Error if the axis does not exist.
  Index operator[](int i) const { return extents_[at(i)]; }
  /// As above, writable.
  Index& operator[](int i) { return extents_[at(i)]; }
  /// Number of elements; 1 for a scalar (rank 0). Overflow is not checked: see checked_bytes().
  Index numel() const { return product(0, rank_); }
  /// Product of the extents of axes [from, to). Requires 0 <= from and to <= rank(), which is not checked.
  Index product(int from, int to) const {
    Index n = 1;
    for (int i = from; i < to; ++i) n *= extents_[i];
    return n;
  }
  /// The shape without one axis, counted from 0; unchanged if the axis does not exist.
  Shape without(int axis) const {
    Shape s;
    for (int i = 0; i < rank_; ++i)
      if (i != axis) s.push_back(extents_[i]);
    return s;
  }
  /// Adds an innermost axis. Throws Error beyond max_rank.
  void push_back(Index extent) {
    check(rank_ < max_rank, "shape", "at most {} axes", int(max_rank));
    extents_[rank_++] = extent;
  }
  const Index* begin() const { return extents_; }        ///< extents in order, outermost first
  const Index* end() const { return extents_ + rank_; }  ///< past the innermost extent
  /// Same rank and extents.
  bool operator==(const Shape& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  int at(int i) const {
    const int axis = i < 0 ? i + rank_ : i;
    if (axis < 0 || axis >= rank_) [[unlikely]]
      detail::no_such_axis(i, *this);
    return axis;
  }
  void assign(const Index* extents, std::size_t n) {
    check(n <= max_rank, "shape", "at most {} axes, got {}", int(max_rank), n);
    std::copy_n(extents, n, extents_);
    rank_ = static_cast<int>(n);
  }
  Index extents_[max_rank] = {};
  int rank_ = 0;
};

/// "[2, 28, 28, 1]".
inline std::string to_string(const Shape& s) {
  std::string text = "[";
  for (int i = 0; i < s.rank(); ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text + "]";
}

/// Size in bytes of a tensor of this shape; 0 if an extent is 0. Throws Error naming op for a negative extent, and if
/// the product of the non-zero extents and the element size exceeds 63 bits. So no partial product overflows.
std::size_t checked_bytes(std::string_view op, const Shape&, DType);

/// The types that may view memory of any element type: void, std::byte, char.
template <class T>
constexpr bool is_raw =
    std::is_void_v<T> || std::is_same_v<std::remove_cv_t<T>, std::byte> || std::is_same_v<std::remove_cv_t<T>, char>;

/// A dense block that another object owns. View{} (data == nullptr) stands for an absent optional operand.
struct View {
  void* data = nullptr;      ///< first element, in the memory of device
  Shape shape;               ///< row-major, without gaps
  DType dtype = DType::f32;  ///< of the elements
  Device device;             ///< where data is stored

  explicit operator bool() const { return data != nullptr; }      ///< false: the optional operand is absent
  Index numel() const { return shape.numel(); }                   ///< number of elements
  Index bytes() const { return shape.numel() * size_of(dtype); }  ///< size in bytes
  /// The elements, without a check of dtype: for kernels, which have dispatched on dtype.
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  /// The elements. Throws Error unless T is the type of dtype. On a GPU the span is in the GPU's memory.
  template <class T>
  std::span<T> span() const {
    static_assert(!is_raw<T>, "a span has elements");
    require<T>();
    return {static_cast<T*>(data), static_cast<std::size_t>(numel())};
  }
  /// Throws Error unless T is the type of dtype, or void, std::byte or char.
  template <class T>
  void require() const {
    if constexpr (!is_raw<T>)
      if (data != nullptr && dtype_of<std::remove_cv_t<T>>() != dtype) [[unlikely]]
        detail::wrong_element_type(dtype, dtype_of<std::remove_cv_t<T>>());
  }
};

namespace detail {
/// Formats T by to_string() or name_of() in messages.
template <class T>
struct Formatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const T& value, fmt::format_context& context) const;
};
}  // namespace detail

}  // namespace trireme

template <>
struct fmt::formatter<trireme::Shape> : trireme::detail::Formatter<trireme::Shape> {};
template <>
struct fmt::formatter<trireme::DType> : trireme::detail::Formatter<trireme::DType> {};
template <>
struct fmt::formatter<trireme::Device> : trireme::detail::Formatter<trireme::Device> {};

// Arrays as foreign files hold them (NumPy's, PyTorch's): element types beside ours, strides; and how they become dense
// row-major blocks of our types, every value kept exactly.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/bytes.h"
#include "framework/io/element_type.h"

namespace trireme {

struct FileArray {
  std::string name;
  const ElementType* type = nullptr;
  Shape shape;
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel() * size_of(type->becomes)); }  ///< as ours
};
/// Where an array's values go: a reader asks once per array, in the file's order, and fills array.bytes() bytes there.
using RoomFor = std::function<std::byte*(const FileArray&)>;

/// Number of elements, kept far from overflow. Throws Error naming source and array for a negative extent or an absurd
/// product, also when another extent is 0.
std::size_t count_elements(const FileArray&, std::string_view op, const std::string& source);

/// Elements of a shape among others: element (i, j, ...) lies at offset + i * strides[0] + j * strides[1] + ...
struct Strided {
  std::size_t offset = 0;
  Shape strides;  ///< not negative; as many as the shape has axes
};
/// All elements from the start: row-major, or with columns first, in Fortran's order.
Strided dense(const Shape&, bool columns_first = false);
/// Copies the array's elements, converted, to `to` in row-major order. elements holds whole elements of array.type.
/// Throws Error when one lies outside.
void gather(const FileArray&, const Strided&, std::span<const std::byte> elements, std::byte* to, std::string_view op,
            const std::string& source);

/// Memory that reading one file may take, beside the file: 56 MB + 3 times its size, so that with all small things a
/// reader stays within 64 MB + 4 times the file.
class MemoryLimit {
 public:
  explicit MemoryLimit(const NamedBytes& file) : file_(file), left_((std::size_t{56} << 20) + 3 * file.bytes.size()) {}
  /// Throws Error when bytes more are too many.
  void take(std::size_t bytes, std::string_view op, std::string_view name);
  void give_back(std::size_t bytes) { left_ += bytes; }

 private:
  const NamedBytes& file_;
  std::size_t left_;
};

}  // namespace trireme

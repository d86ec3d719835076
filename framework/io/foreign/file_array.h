// Arrays in foreign files (NumPy's, PyTorch's), with other element types and strides, and their exact conversion to
// dense row-major blocks of our types.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/bytes.h"
#include "framework/io/element_type.h"

namespace trireme {

/// An array of a file.
struct FileArray {
  std::string name;                   ///< name in the file, for messages and results
  const ElementType* type = nullptr;  ///< type of the elements in the file, and the DType that they become
  Shape shape;                        ///< may be empty: a scalar
  /// Bytes of the elements after conversion to type->becomes.
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel() * size_of(type->becomes)); }
};
/// Returns the memory for an array's values. A reader calls it once per array, in the file's order, and writes
/// array.bytes() bytes there.
using RoomFor = std::function<std::byte*(const FileArray&)>;

/// Number of elements, checked against overflow. Throws Error naming source and array for a negative extent or a too
/// large product, even if another extent is 0.
std::size_t count_elements(const FileArray&, std::string_view op, const std::string& source);

/// Position of a shape's elements: element (i, j, ...) is at offset + i * strides[0] + j * strides[1] + ...
struct Strided {
  std::size_t offset = 0;
  Shape strides;  ///< not negative; one per axis of the shape
};
/// All elements from the beginning: row-major, or column-major (Fortran's order) if columns_first.
Strided dense(const Shape&, bool columns_first = false);
/// Converts the array's elements and writes them to `to` in row-major order, array.bytes() bytes. elements: the bytes
/// in the file that the strides refer to, elements of array.type. Throws Error that names op and source if an element
/// of the array is outside of them.
void gather(const FileArray&, const Strided&, std::span<const std::byte> elements, std::byte* to, std::string_view op,
            const std::string& source);

/// Limits the memory for reading one file to 56 MB + 3 times the file's size, in addition to the file. With small
/// allocations a reader then stays below 64 MB + 4 times the file.
class MemoryLimit {
 public:
  explicit MemoryLimit(const NamedBytes& file) : file_(file), left_((std::size_t{56} << 20) + 3 * file.bytes.size()) {}
  /// Throws Error if `bytes` more bytes exceed the limit.
  void take(std::size_t bytes, std::string_view op, std::string_view name);
  void give_back(std::size_t bytes) { left_ += bytes; }  ///< call after memory of take() was released

 private:
  const NamedBytes& file_;
  std::size_t left_;
};

}  // namespace trireme

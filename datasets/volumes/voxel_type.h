// VoxelType: the number types of volume files, with NumPy's names, and their conversion to and from tensor types.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/core/dtype.h"
#include "kernels/core/view.h"

namespace trireme {

/// A number type of volume files.
struct VoxelType {
  std::string_view name;  ///< uint8, int8, uint16, ..., int64, float16, float32, float64, bool
  std::string_view code;  ///< NumPy's typestr without byte order: "u2" for uint16
  Index size = 0;         ///< bytes per number
  DType dtype =
      DType::f32;  ///< tensor type that holds all values: i32 for uint16, i64 for uint32 and uint64, f32 for float16
  bool as_is = false;  ///< whether dtype has the same bytes
  /// Converts n numbers in this machine's byte order to type `as`: dtype, f32, f64, or i64 for integers. No alignment
  /// is needed. Returns false for another type, and for a uint64 of 2^63 or more with i64.
  bool (*decode)(const std::byte* from, Index n, DType as, std::byte* to) = nullptr;
  /// The inverse of decode(). f32 and f64 are accepted for any type and rounded to integers (ties to even) or to
  /// shorter floats. Returns false for another type, and for a number that does not fit: a NaN for an integer, or a
  /// finite number that would become infinite.
  bool (*encode)(const std::byte* from, DType of, Index n, std::byte* to) = nullptr;
  bool is_integer() const { return code[0] != 'f'; }  ///< true for bool, too
  /// Whether decode() and encode() support this tensor type.
  bool converts(DType t) const {
    return t == dtype || t == DType::f32 || t == DType::f64 || (t == DType::i64 && is_integer());
  }
};
/// The type with this name or code; null: none.
const VoxelType* find_voxel_type(std::string_view name_or_code);
/// The names for messages: "uint8, int8, ...".
std::string voxel_type_names();

}  // namespace trireme

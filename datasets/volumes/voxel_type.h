// The types of numbers that files of volumes hold, by NumPy's names, and how they become numbers of tensors and back.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/core/dtype.h"
#include "kernels/core/view.h"

namespace trireme {

struct VoxelType {
  std::string_view name;     ///< uint8, int8, uint16, ..., int64, float16, float32, float64, bool
  std::string_view code;     ///< NumPy's typestr without byte order: "u2" for uint16
  Index size = 0;            ///< bytes of one number
  DType dtype = DType::f32;  ///< holds all its values: i32 those of uint16, i64 of uint32 and uint64, f32 of float16
  bool as_is = false;        ///< numbers of dtype have the same bytes
  /// n numbers, in this machine's byte order, become n of `as`: dtype, f32, f64 or, of integers, i64. Nothing need be
  /// aligned. False for another type, and where a uint64 of 2^63 or more was to become an i64.
  bool (*decode)(const std::byte* from, Index n, DType as, std::byte* to) = nullptr;
  /// Back, from numbers of the types that decode() makes, f32 and f64 of any type: they are rounded to integers, ties
  /// to even, and to shorter floats. False for another type, and where a number does not fit: NaN is no integer, and
  /// what is finite must not become infinite.
  bool (*encode)(const std::byte* from, DType of, Index n, std::byte* to) = nullptr;
  bool is_integer() const { return code[0] != 'f'; }  ///< truth values, too
  /// Whether decode() makes numbers of this type, and encode() takes them.
  bool converts(DType t) const {
    return t == dtype || t == DType::f32 || t == DType::f64 || (t == DType::i64 && is_integer());
  }
};
/// By name or code; null: there is none such.
const VoxelType* find_voxel_type(std::string_view name_or_code);
/// "uint8, int8, ...", for messages.
std::string voxel_type_names();

}  // namespace trireme

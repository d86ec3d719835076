// Element types in files, by safetensors' names, and their conversion to DTypes.
#pragma once
#include <cstddef>
#include <string_view>

#include "kernels/core/dtype.h"
#include "kernels/core/view.h"

namespace trireme {

/// An element type in files, and the DType that holds all its values: F16 becomes f32, U16 i32, U32 and U64 i64.
struct ElementType {
  std::string_view name;  ///< F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL
  std::size_t size = 0;   ///< bytes per element in the file, little-endian
  DType becomes = DType::f32;
  bool as_is = false;  ///< the bytes are used unchanged
  /// Converts n elements, `stride` elements apart, to contiguous elements of `becomes`. False: a value does not fit
  /// (U64 of 2^63 or more).
  bool (*copy)(const std::byte* from, Index stride, Index n, std::byte* to) = nullptr;
};
/// The type of this name, or null.
const ElementType* find_element_type(std::string_view name);

}  // namespace trireme

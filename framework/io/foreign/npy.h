// NumPy's .npy files as tensors.
#pragma once
#include <string>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace trireme {

/// The array of an .npy file. Throws Error as read_npz() of framework/io/foreign/npz.h, and for a file that cannot be
/// read.
Tensor read_npy(const std::string& path);
/// The bytes with which an .npy file begins whose elements, in C's order, are of this type of NumPy's: "<f4".
std::string npy_front(const Shape&, std::string_view descr);
/// Writes an .npy file, replaced as a whole; a bf16 tensor, which NumPy has no type for, is refused.
void write_npy(const std::string& path, const Tensor&);

}  // namespace trireme

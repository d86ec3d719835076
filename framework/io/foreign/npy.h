// Reads and writes NumPy's .npy files as tensors.
#pragma once
#include <string>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace trireme {

/// The array of an .npy file. Throws Error as read_npz() (framework/io/foreign/npz.h), and for a file that cannot be
/// read.
Tensor read_npy(const std::string& path);
/// The header of an .npy file with elements of this NumPy type in C order: "<f4".
std::string npy_front(const Shape&, std::string_view descr);
/// Writes an .npy file atomically. Throws Error for a bf16 tensor, since NumPy has no such type.
void write_npy(const std::string& path, const Tensor&);

}  // namespace trireme

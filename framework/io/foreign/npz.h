// NumPy's .npy arrays (numpy.lib.format 1.0 to 3.0), and .npz: a ZIP archive of them. Nothing in one is ever executed:
// object arrays, which are pickles, are refused.
#pragma once
#include "framework/io/foreign/file_array.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Every array by its name without ".npy", in the file's order. Either byte order; Fortran order becomes row-major.
/// Throws Error naming file and array for other element types, more axes than Shape holds, data that is not as long
/// as the header declares, and arrays that need more memory than MemoryLimit allows.
void read_npz(const NamedBytes&, const RoomFor& room);

/// One .npy array, with the errors of read_npz(); its name is the file's.
void read_npy(const NamedBytes&, const RoomFor& room);
/// The array of an .npy file. Throws Error as read_npz(), and for a file that cannot be read.
Tensor read_npy(const std::string& path);
/// Where the elements of an .npy array lie.
struct NpyLayout {
  std::size_t begin = 0;  ///< first byte
  Shape shape;
  DType dtype = DType::f32;
};
/// Throws Error as read_npz(), for elements in Fortran's order or big-endian, and for types that no DType is.
NpyLayout npy_layout(const NamedBytes&);
/// Writes an .npy file, replaced as a whole; a bf16 tensor, which NumPy has no type for, is refused.
void write_npy(const std::string& path, const Tensor&);

}  // namespace trireme

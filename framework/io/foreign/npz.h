// NumPy's .npy arrays (numpy.lib.format 1.0 to 3.0), and .npz: a ZIP archive of them. Nothing in one is ever executed:
// object arrays, which are pickles, are refused.
#pragma once
#include "framework/io/foreign/file_array.h"

namespace trireme {

/// Every array by its name without ".npy", in the file's order. Either byte order; Fortran order becomes row-major.
/// Throws Error naming file and array for other element types, more axes than Shape holds, data that is not as long
/// as the header declares, and arrays that need more memory than MemoryLimit allows.
void read_npz(const NamedBytes&, const RoomFor& room);

/// One .npy array, with the errors of read_npz(); its name is the file's.
void read_npy(const NamedBytes&, const RoomFor& room);
/// What the header of an .npy array says.
struct NpyHeader {
  std::string descr;           ///< type and byte order of the elements, as "<f4"
  bool columns_first = false;  ///< Fortran's order
  Shape shape;
  std::size_t begin = 0;  ///< byte of the first element
};
/// No header is longer than this.
inline constexpr std::size_t longest_npy_front = 65'536 + 12;
/// From the bytes with which a file begins, of which longest_npy_front are enough; what follows is not looked at.
/// Throws Error as read_npz().
NpyHeader npy_header(const NamedBytes& front);
/// Where the elements of an .npy array lie.
struct NpyLayout {
  std::size_t begin = 0;  ///< first byte
  Shape shape;
  DType dtype = DType::f32;
};
/// Throws Error as read_npz(), for elements in Fortran's order or big-endian, and for types that no DType is.
NpyLayout npy_layout(const NamedBytes&);

}  // namespace trireme

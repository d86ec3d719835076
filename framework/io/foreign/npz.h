// Reads NumPy's .npy arrays (numpy.lib.format 1.0 to 3.0) and .npz (a ZIP archive of them). Nothing is ever executed:
// object arrays, which are pickles, are refused.
#pragma once
#include "framework/io/foreign/file_array.h"

namespace trireme {

/// Reads every array by its name without ".npy", in the file's order. Accepts either byte order; Fortran order becomes
/// row-major. Throws Error naming file and array for other element types, more axes than Shape supports, data of
/// another length than in the header, and arrays that exceed MemoryLimit.
void read_npz(const NamedBytes&, const RoomFor& room);

/// Reads one .npy array with the errors of read_npz(); its name is the file's name.
void read_npy(const NamedBytes&, const RoomFor& room);
/// The header of an .npy array.
struct NpyHeader {
  std::string descr;           ///< NumPy's type and byte order of the elements: "<f4"
  bool columns_first = false;  ///< Fortran order
  Shape shape;
  std::size_t begin = 0;  ///< offset of the first element, in bytes
};
/// Maximum length of a header, in bytes.
inline constexpr std::size_t longest_npy_front = 65'536 + 12;
/// Parses the header from the beginning of a file (longest_npy_front bytes are enough); ignores what follows. Throws
/// Error as read_npz().
NpyHeader npy_header(const NamedBytes& front);
/// Position of the elements of an .npy array.
struct NpyLayout {
  std::size_t begin = 0;  ///< offset of the first byte
  Shape shape;
  DType dtype = DType::f32;
};
/// Throws Error as read_npz(), for Fortran order, big-endian elements, and types without a DType.
NpyLayout npy_layout(const NamedBytes&);

}  // namespace trireme

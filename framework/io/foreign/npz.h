// NumPy's .npz: a ZIP archive of .npy arrays (numpy.lib.format 1.0 to 3.0). Nothing in one is ever executed: object
// arrays, which are pickles, are refused.
#pragma once
#include "framework/io/foreign/file_array.h"

namespace trireme {

/// Every array by its name without ".npy", in the file's order. Either byte order; Fortran order becomes row-major.
/// Throws Error naming file and array for other element types, more axes than Shape holds, data that is not as long
/// as the header declares, and arrays that need more memory than MemoryLimit allows.
void read_npz(const NamedBytes&, const RoomFor& room);

}  // namespace trireme

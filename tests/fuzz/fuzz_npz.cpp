// libFuzzer entry for the reader of .npz; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/element_type.cpp framework/io/file.cpp framework/io/foreign/zip.cpp
// sources: framework/io/foreign/file_array.cpp framework/io/foreign/npz.cpp framework/io/json.cpp
// libraries: -ldeflate
// The input is an archive, then an array in one.
#include "framework/io/foreign/npz.h"

#include "tests/fuzz/foreign_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  fuzz::try_read(read_npz, std::as_bytes(std::span(data, size)), "npz");
  const std::string file = fuzz::zip({{"a.npy", {reinterpret_cast<const char*>(data), size}}});
  fuzz::try_read(read_npz, std::as_bytes(std::span(file)), "npz");
  // And an array by itself, read and laid out.
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::try_read(read_npy, bytes, "npz");
  try {
    const NpyLayout layout = npy_layout(NamedBytes{"F", bytes});
    fuzz::require(layout.begin + static_cast<std::size_t>(layout.shape.numel() * size_of(layout.dtype)) == size);
  } catch (const Error& e) { fuzz::require_line(e, "npz"); }
  return 0;
}

// libFuzzer entry for volumes in TIFF files; tools/fuzz builds and runs it. libtiff itself is not instrumented.
// sources: kernels/core/error.cpp framework/io/file.cpp framework/io/json.cpp datasets/volumes/voxel_type.cpp
// sources: datasets/volumes/volume_source.cpp datasets/volumes/dense_voxels.cpp datasets/volumes/tiff_volume.cpp
// libraries: -ldeflate -ltiff
// What is accepted is a volume, each voxel of a box of which is read once; an error is one line that names the file.
#include "datasets/volumes/tiff_volume.h"
#include "tests/fuzz/volume_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string path = trireme::fuzz::file_of({data, size});
  trireme::fuzz::accepts(path, [&] { trireme::fuzz::read_boxes(*trireme::open_tiff(path)); });
  return 0;
}

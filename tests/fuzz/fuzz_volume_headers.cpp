// libFuzzer entry for what volumes in .npy, raw and Zarr files say of themselves, and for chunks by
// Blosc and Zstandard, whose libraries are not instrumented; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/element_type.cpp framework/io/file.cpp framework/io/json.cpp
// sources: framework/io/foreign/zip.cpp framework/io/foreign/file_array.cpp framework/io/foreign/npz.cpp
// sources: datasets/volumes/voxel_type.cpp datasets/volumes/volume_source.cpp datasets/volumes/dense_voxels.cpp
// sources: datasets/volumes/npy_volume.cpp datasets/volumes/raw_volume.cpp datasets/volumes/zarr_volume.cpp
// sources: datasets/volumes/chunk_codecs.cpp
// libraries: -ldeflate -lblosc -lzstd
// What is accepted is a volume, each voxel of which is read once; an error is one line that names the file.
#include "datasets/volumes/chunk_codecs.h"
#include "datasets/volumes/npy_volume.h"
#include "datasets/volumes/raw_volume.h"
#include "datasets/volumes/zarr_volume.h"
#include "tests/fuzz/volume_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::accepts("F", [&] {
    const RawHeader header = parse_raw_header(text, "F");
    fuzz::require(volume_shape("F", header.array, *header.type).numel() >= 1);
    const RawHeader again = parse_raw_header(raw_header_text(header.array, *header.type), "F");
    fuzz::require(again.array == header.array && again.type == header.type && again.offset == 0 && !again.big_endian);
  });
  fuzz::accepts("F", [&] {
    const ZarrHeader header = parse_zarr_header(text, "F");
    fuzz::require(volume_shape("F", header.array, *header.type).numel() >= 1);
    fuzz::require(volume_shape("F", header.chunk, *header.type).numel() * header.type->size <= Index{1} << 30);
    fuzz::require(static_cast<Index>(header.fill.size()) == header.type->size);
  });
  std::vector<std::byte> block(4096);
  for (const Unpack unpack : {blosc_codec(), zstd_codec()}) (void)unpack(std::as_bytes(std::span(data, size)), block);
  const std::string path = fuzz::file_of({data, size});
  fuzz::accepts(path, [&] { fuzz::read_boxes(*open_npy(path)); });
  return 0;
}

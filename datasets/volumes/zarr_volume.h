// Volumes as Zarr v2 arrays (zarr-specs, "Zarr storage specification version 2"): a folder with .zarray and a file per
// chunk, uncompressed or by zlib, gzip, Blosc or Zstandard, in C's order or Fortran's, either byte order; a chunk
// without a file has the fill value.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "datasets/volumes/volume_source.h"

namespace trireme {

enum class ZarrCompressor : std::uint8_t { none, zlib, gzip, blosc, zstd };
/// What a .zarray says.
struct ZarrHeader {
  Shape array, chunk;  ///< [D, H, W, C] is that of array; a chunk's extents are of the same axes
  const VoxelType* type = nullptr;
  bool big_endian = false, columns_first = false;
  ZarrCompressor compressor = ZarrCompressor::none;
  char separator = '.';  ///< of a chunk file's numbers, "0.1.2" or "0/1/2"; \0: the file does not say
  std::string fill;      ///< the fill value's bytes, in this machine's order
};
/// Throws Error naming path, one line, for a text that is no such JSON, and by name for compressors and filters that
/// are not read, Blosc and Zstandard where this library was built without theirs (chunk_codecs.h).
ZarrHeader parse_zarr_header(std::string_view text, const std::string& path);

/// The array in a folder. Where its header does not name the separator, the chunk files that are there do. Throws Error
/// as parse_zarr_header(), for a group, for Zarr v3, and for a folder that holds other files and none that is named as
/// its chunks are. What chunks hold is looked at when they are read.
std::unique_ptr<const VolumeSource> open_zarr(const std::string& folder);

}  // namespace trireme

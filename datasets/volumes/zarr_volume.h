// Volumes as Zarr v2 arrays (zarr-specs, "Zarr storage specification version 2"): a folder with .zarray and a file per
// chunk. Chunks may be uncompressed or compressed by zlib, gzip, Blosc or Zstandard, in C or Fortran order and either
// byte order. A chunk without a file has the fill value.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// The compressor of a Zarr array's chunks.
enum class ZarrCompressor : std::uint8_t { none, zlib, gzip, blosc, zstd };
/// The contents of a .zarray file.
struct ZarrHeader {
  Shape array, chunk;                                ///< the file's axes; extents of a chunk along these
  const VoxelType* type = nullptr;                   ///< type of the numbers
  bool big_endian = false, columns_first = false;    ///< byte order; Fortran order
  ZarrCompressor compressor = ZarrCompressor::none;  ///< of the chunks
  char separator = '.';                              ///< in names of chunk files, "0.1.2" or "0/1/2"; \0: not specified
  std::string fill;                                  ///< bytes of the fill value, in this machine's order
};
/// Reads a .zarray's text. Throws a one-line Error that names path if it is not such a JSON, or that names an
/// unsupported compressor or filter. Blosc and Zstandard need a build with their libraries (chunk_codecs.h).
ZarrHeader parse_zarr_header(std::string_view text, const std::string& path);

/// Opens the array in a folder. If its header does not name the separator, the names of the chunk files determine it.
/// Throws Error as parse_zarr_header(), for a group, for Zarr v3, and for a folder with files of which none is a chunk.
/// Chunks are checked when they are read.
std::unique_ptr<const VolumeSource> open_zarr(const std::string& folder);

}  // namespace trireme

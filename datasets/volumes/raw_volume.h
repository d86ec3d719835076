// Volumes of contiguous raw numbers, described by a JSON file. For NAME.raw it is NAME.raw.json:
//   {"shape": [2048, 1024, 1024], "dtype": "uint16", "byte_order": "little"}
// shape: two to four extents as [H, W], [D, H, W] or [D, H, W, C], the last axis the fastest. dtype: a VoxelType's
// name. byte_order: "little" or "big"; optional for types of one byte. offset: bytes before the first number; default
// 0. Other keys are ignored (a voxel's size, an instrument's name).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// The contents of such a JSON file.
struct RawHeader {
  Shape array;                      ///< the file's axes
  const VoxelType* type = nullptr;  ///< type of the numbers
  bool big_endian = false;          ///< byte order
  std::size_t offset = 0;           ///< bytes before the first number
};
/// Reads a JSON file's text. Throws a one-line Error that names path if it is not such a JSON.
RawHeader parse_raw_header(std::string_view text, const std::string& path);
/// The JSON text for little-endian numbers.
std::string raw_header_text(const Shape& array, const VoxelType&);

/// Opens the raw file path, described by PATH.json. Throws Error as parse_raw_header(), and for a file of another
/// length.
std::unique_ptr<const VolumeSource> open_raw(const std::string& path);

}  // namespace trireme

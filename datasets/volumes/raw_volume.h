// Volumes of raw numbers, one behind the other, beside which a JSON file says what they are. Of NAME.raw that is
// NAME.raw.json:
//   {"shape": [2048, 1024, 1024], "dtype": "uint16", "byte_order": "little"}
// shape: two to four extents as [H, W], [D, H, W] or [D, H, W, C], the last axis the fastest. dtype: a VoxelType's
// name. byte_order: "little" or "big"; of types of one byte it may be left out. offset: bytes before the first number,
// 0 unless given. Other keys are of no matter here (a voxel's size, an instrument's name).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// What such a JSON file says.
struct RawHeader {
  Shape array;
  const VoxelType* type = nullptr;
  bool big_endian = false;
  std::size_t offset = 0;
};
/// Throws Error naming path, one line, for a text that is no such JSON.
RawHeader parse_raw_header(std::string_view text, const std::string& path);
/// A JSON file's text, of little-endian numbers.
std::string raw_header_text(const Shape& array, const VoxelType&);

/// The numbers in path, by PATH.json. Throws Error as parse_raw_header(), and for a file that is not as long as that
/// says.
std::unique_ptr<const VolumeSource> open_raw(const std::string& path);

}  // namespace trireme

// IDX, the format of MNIST's files (Yann LeCun's MNIST page): big-endian magic 0 0 type rank, extents in 32 bits,
// row-major values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

/// The contents of an IDX file.
struct Idx {
  std::vector<Index> extents;        ///< shape of the array
  std::vector<std::uint8_t> values;  ///< row-major
};
/// Reads plain or gzip (RFC 1952) bytes of u8 values. source: name in messages. Throws Error for a wrong magic number,
/// other types, more than Shape::max_rank axes, truncated, damaged or trailing data, and too large sizes: memory
/// including the input is limited to 64 MB + 4x the input.
Idx parse_idx(std::span<const std::byte> bytes, const std::string& source);
/// parse_idx() of a file.
Idx read_idx(const std::string& path);

}  // namespace trireme

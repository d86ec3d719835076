// IDX, the format of MNIST's files (Yann LeCun's MNIST page): big-endian magic 0 0 type rank, extents in 32 bits,
// row-major values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

struct Idx {
  std::vector<Index> extents;
  std::vector<std::uint8_t> values;  ///< row-major
};
/// Plain or gzip (RFC 1952) bytes of u8 values. source names them in messages. Throws Error for a wrong magic, other
/// types, more than Shape::max_rank axes, truncated, damaged or trailing data, and absurd sizes (memory, the input
/// included, stays within 64 MB + 4x the input).
Idx parse_idx(std::span<const std::byte> bytes, const std::string& source);
/// The same of a file.
Idx read_idx(const std::string& path);

}  // namespace trireme

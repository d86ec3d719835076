// FlatBuffer: a logical 1-D buffer, stored as one contiguous block per device. Slices have global indices, so that code
// for slices is independent of the boundaries between devices.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// A half-open range [begin, end) of a flat buffer, in elements.
struct Slice {
  Index begin = 0,  ///< first element
      end = 0;      ///< past the last element
  /// Number of elements.
  Index size() const { return end - begin; }
  /// Whether the ranges intersect; also true for an empty range strictly inside the other.
  bool overlaps(const Slice& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Slice&) const = default;  ///< same begin and end
};

class FlatBuffer {
 public:
  /// Consecutive elements on one device.
  struct Extent {
    Index size = 0;      ///< elements, at least 0
    Device device = {};  ///< cpu() by default
  };
  FlatBuffer() = default;  ///< no blocks: numel() is 0; no dtype and no device
  /// Extents in order; adjacent extents on one device become one block. All elements are set to value.
  /// on_demand: the value is 0, and parts have no physical memory yet; on a GPU Runtime::restore() comes before the
  /// first use of a part.
  FlatBuffer(const std::vector<Extent>&, double value, DType, bool on_demand = false);

  Index numel() const { return starts_.back(); }  ///< number of elements of all blocks
  /// The type of all blocks. dtype(), device_of() and rows() throw Error for a default FlatBuffer, which has no block.
  DType dtype() const { return blocks_[block_of(0)].dtype(); }
  /// 1-D, in order; adjacent blocks are on different devices.
  const std::vector<Tensor>& blocks() const { return blocks_; }
  /// Device of element `at`; past the end, the device of the last block.
  Device device_of(Index at) const { return blocks_[block_of(at)].device(); }
  /// Elements [begin, end), sharing memory. Throws Error if they are on several devices.
  Tensor rows(Index begin, Index end) const;
  /// The slice as parts that are each on one device, in order.
  std::vector<Slice> cut(const Slice&) const;
  std::vector<double> to_vector() const;  ///< all elements in order, converted; waits for the devices
  /// The sum of squares of each slice, in f64, by one kernel per device; waits for the devices. Throws Error for a
  /// slice on several devices.
  std::vector<double> squares(const std::vector<Slice>&) const;

 private:
  std::size_t block_of(Index at) const;  // past the end: the last one; throws if there is none

  std::vector<Tensor> blocks_;
  std::vector<Index> starts_{0};  // first element of each block, and the end
};

}  // namespace trireme

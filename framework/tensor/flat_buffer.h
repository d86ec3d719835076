// FlatBuffer: one logical 1-D buffer, stored as one contiguous block per device. Slices are addressed globally, so code
// that works on slices need not know where the devices divide it.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// A half-open range [begin, end) of a flat buffer, in elements.
struct Slice {
  Index begin = 0,  ///< first element
      end = 0;      ///< behind the last element
  /// Number of elements.
  Index size() const { return end - begin; }
  /// Whether the ranges intersect; an empty range strictly inside the other one counts.
  bool overlaps(const Slice& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Slice&) const = default;  ///< same begin and same end
};

class FlatBuffer {
 public:
  /// A run of elements on one device.
  struct Extent {
    Index size = 0;      ///< elements, at least 0
    Device device = {};  ///< cpu() by default
  };
  FlatBuffer() = default;  ///< without blocks: numel() 0, no dtype and no device
  /// One stretch behind the other; neighbours on one device are one block. Filled with value.
  FlatBuffer(const std::vector<Extent>&, double value, DType);

  Index numel() const { return starts_.back(); }  ///< elements of all blocks
  /// Of every block. This, device_of() and rows() throw Error for a default FlatBuffer, which has no block.
  DType dtype() const { return blocks_[block_of(0)].dtype(); }
  const std::vector<Tensor>& blocks() const { return blocks_; }  ///< 1-D, in order; neighbours differ in device
  /// Device of element `at`; the last block's behind the end.
  Device device_of(Index at) const { return blocks_[block_of(at)].device(); }
  /// Elements [begin, end), sharing memory. Throws Error where they lie on several devices.
  Tensor rows(Index begin, Index end) const;
  /// The slice in parts that each lie on one device, in order.
  std::vector<Slice> cut(const Slice&) const;
  std::vector<double> to_vector() const;  ///< all elements in order, converted; waits for the devices
  /// The sum of squares of each slice, in f64, by one kernel for each device; waits for the devices. Throws Error for a
  /// slice that lies on several.
  std::vector<double> squares(const std::vector<Slice>&) const;

 private:
  std::size_t block_of(Index at) const;  // the last one, behind the end; throws where there is none

  std::vector<Tensor> blocks_;
  std::vector<Index> starts_{0};  // of each block; behind them the end
};

}  // namespace trireme

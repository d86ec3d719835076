// FlatBuffer: one logical 1-D buffer, stored as one contiguous block per device. Slices are addressed globally, so code
// that works on slices need not know where the devices divide it.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// A range of the flat block, in elements.
struct Slice {
  Index begin = 0, end = 0;
  Index size() const { return end - begin; }
  bool overlaps(const Slice& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Slice&) const = default;
};

class FlatBuffer {
 public:
  /// So many elements, on a device.
  struct Stretch {
    Index size = 0;
    Device device = {};
  };
  FlatBuffer() = default;
  /// One stretch behind the other; neighbours on one device are one block. Filled with value.
  FlatBuffer(const std::vector<Stretch>&, double value, DType);

  Index numel() const { return starts_.back(); }
  /// This, device_of() and rows() throw Error for a default FlatBuffer, which has no block.
  DType dtype() const { return blocks_[block_of(0)].dtype(); }
  const std::vector<Tensor>& blocks() const { return blocks_; }
  Device device_of(Index at) const { return blocks_[block_of(at)].device(); }
  /// Elements [begin, end), sharing memory. Throws Error where they lie on several devices.
  Tensor rows(Index begin, Index end) const;
  /// The slice in parts that each lie on one device, in order.
  std::vector<Slice> cut(const Slice&) const;
  std::vector<double> to_vector() const;

 private:
  std::size_t block_of(Index at) const;  // the last one, behind the end; throws where there is none

  std::vector<Tensor> blocks_;
  std::vector<Index> starts_{0};  // of each block; behind them the end
};

}  // namespace trireme

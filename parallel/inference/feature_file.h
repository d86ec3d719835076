// FeatureFile: features of a volume on disk, between passes over layers. Channels are stored range by range, each
// [spatial..., channels] row-major. Boxes are read and written; no more than a box is in memory.
#pragma once
#include <string>
#include <vector>

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

class FeatureFile {
 public:
  /// Opens or creates the file with its final size. volume: [1, spatial..., C], C is ignored. bounds: first channel of
  /// each range, then the end of the last one. Throws Error if the disk has no room.
  FeatureFile(std::string path, const Shape& volume, std::vector<Index> bounds, DType);
  ~FeatureFile();
  FeatureFile(const FeatureFile&) = delete;
  FeatureFile& operator=(const FeatureFile&) = delete;
  /// Writes a box of all channels of one range. Threads and processes may write disjoint boxes.
  void write(const Box& box, const Tensor& values) const;
  /// Reads the box into `to`, a block at `origin`, for channels that are in the file.
  void read(const Box& box, const Tensor& to, const Shape& origin) const;
  void sync() const;  ///< syncs written data to the disk

 private:
  /// Calls f(offset in the file, offset in the box's dense tensor, bytes) for each contiguous run of a box in range k.
  template <class F>
  void each_run(std::size_t k, const Box& box, F&& f) const;

  std::string path_;
  Shape volume_;
  std::vector<Index> bounds_;
  DType dtype_;
  int fd_ = -1;
};

}  // namespace trireme

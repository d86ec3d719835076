// FeatureFile: features of a volume on disk, between passes over layers: a stretch of channels after another, each
// [spatial..., channels] row-major, written and read in boxes. Never more of it in memory than a box.
#pragma once
#include <string>
#include <vector>

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

class FeatureFile {
 public:
  /// Opens or makes it, of its whole size. volume: [1, spatial..., C], of which C does not count; bounds: where
  /// stretches begin, and the last one's end, in channels. Throws Error where the disk has no room.
  FeatureFile(std::string path, const Shape& volume, std::vector<Index> bounds, DType);
  ~FeatureFile();
  FeatureFile(const FeatureFile&) = delete;
  FeatureFile& operator=(const FeatureFile&) = delete;
  /// The box's channels are those of one stretch, all of them. Threads and processes write boxes that do not meet.
  void write(const Box& box, const Tensor& values) const;
  /// Into `to`, a block at `origin`: what of the box lies in stretches.
  void read(const Box& box, const Tensor& to, const Shape& origin) const;
  void sync() const;  ///< what was written is on the disk

 private:
  /// f(offset in the file, offset in the box's dense tensor, bytes) for each run of a box of stretch k.
  template <class F>
  void each_run(std::size_t k, const Box& box, F&& f) const;

  std::string path_;
  Shape volume_;
  std::vector<Index> bounds_;
  DType dtype_;
  int fd_ = -1;
};

}  // namespace trireme

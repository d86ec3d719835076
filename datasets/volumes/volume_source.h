// VolumeSource: the interface of volume formats. It reads boxes of voxels, in runs, from a file that is never in memory
// as a whole.
#pragma once
#include <functional>
#include <string>

#include "datasets/volumes/voxel_type.h"
#include "framework/io/file.h"
#include "framework/tensor/box.h"

namespace trireme {

/// Receives n contiguous voxels at `from`, in the file's type and this machine's byte order. They are elements `at`,
/// `at + step`, ... of the requested box in row-major order.
using VoxelSink = std::function<void(const std::byte* from, Index n, Index at, Index step)>;

/// A volume in a file. Axes are [D, H, W, C] for every file.
class VolumeSource {
 public:
  /// array: the file's axes. Throws Error as volume_shape().
  VolumeSource(const std::string& path, const Shape& array, const VoxelType&);
  virtual ~VolumeSource() = default;
  const Shape& array() const { return array_; }     ///< the file's axes, two to four of them
  const Shape& shape() const { return shape_; }     ///< [D, H, W, C]
  const VoxelType& type() const { return *type_; }  ///< of the file's voxels
  /// Passes each voxel of a non-empty box of shape() to the sink once. Several threads call it.
  virtual void read(const Box& box, const VoxelSink& sink) const = 0;

 private:
  Shape array_, shape_;
  const VoxelType* type_;
};

/// A file whose header was read. Each read opens the file again, so a data set may have more files than a process can
/// keep open.
struct OpenedFile {
  std::string path;      ///< of the file
  std::size_t size = 0;  ///< bytes when the header was read
  /// Keeps the path and size of an open file.
  explicit OpenedFile(const FileReader& file) : path(file.path()), size(file.size()) {}
  /// Throws Error if the size has changed.
  void check_same(const FileReader& now) const;
};

/// The shape [D, H, W, C] of an array [H, W], [D, H, W] or [D, H, W, C]. Throws Error that names path for another
/// number of axes, an extent below 1, and more than 2^60 bytes.
Shape volume_shape(const std::string& path, const Shape& array, const VoxelType&);

}  // namespace trireme

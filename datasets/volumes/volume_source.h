// What a format of volumes does: boxes of voxels, in runs, from a file that is never in memory as a whole.
#pragma once
#include <functional>
#include <string>

#include "datasets/volumes/voxel_type.h"
#include "framework/io/file.h"
#include "framework/tensor/box.h"

namespace trireme {

/// Takes n voxels that lie one behind the other at `from`, in the file's type and this machine's byte order. In the box
/// that was asked for, in row-major order, they are elements `at`, `at + step`, ...
using VoxelSink = std::function<void(const std::byte* from, Index n, Index at, Index step)>;

/// A volume's file. Axes are [D, H, W, C] whatever the file's are.
class VolumeSource {
 public:
  /// Throws Error naming path for an array that is no volume (volume_shape()).
  VolumeSource(const std::string& path, const Shape& array, const VoxelType&);
  virtual ~VolumeSource() = default;
  const Shape& array() const { return array_; }  ///< the file's axes, two to four of them
  const Shape& shape() const { return shape_; }  ///< [D, H, W, C]
  const VoxelType& type() const { return *type_; }
  /// Hands each voxel of a box of shape(), which is not empty, to the sink, once. Called from several threads.
  virtual void read(const Box& box, const VoxelSink& sink) const = 0;

 private:
  Shape array_, shape_;
  const VoxelType* type_;
};

/// A file as it was when it was opened for its header. It is opened anew to be read, so that a data set may have more
/// files than a process may keep open.
struct OpenedFile {
  std::string path;
  std::size_t size = 0;  ///< bytes
  explicit OpenedFile(const FileReader& file) : path(file.path()), size(file.size()) {}
  /// Throws Error where the size is another now.
  void check_same(const FileReader& now) const;
};

/// [D, H, W, C] of an array [H, W], [D, H, W] or [D, H, W, C]. Throws Error naming path for other numbers of axes, an
/// extent below 1, and for more than 2^60 bytes.
Shape volume_shape(const std::string& path, const Shape& array, const VoxelType&);

}  // namespace trireme

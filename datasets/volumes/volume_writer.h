// VolumeWriter: a new volume, written box by box by one process or by several at a time.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Shape and type of a new volume.
struct VolumeOptions {
  Shape array = {};              ///< the file's axes: [H, W], [D, H, W] or [D, H, W, C]
  std::string type = "float32";  ///< type of the voxels: a VoxelType's name
};
/// A volume that is being written. Several processes may write one file: each opens a writer with the same path and
/// options, and writes separate boxes. Boxes without common voxels may be written at the same time. The first writer
/// creates the file. Until finish() its name is PATH.partial. It has its final size from the start, with reserved disk
/// blocks if the file system supports it. A killed process can open the file again and continue. Voxels that were not
/// written are 0.
class VolumeWriter {
 public:
  /// The name's ending selects the format: .npy, or .raw with a .raw.json (raw_volume.h). Throws Error for other
  /// endings, invalid shapes, unknown types, and a partial file with other options. Throws Error and leaves no file if
  /// it cannot be created or the disk has no room.
  VolumeWriter(const std::string& path, const VolumeOptions&);
  ~VolumeWriter();                        ///< keeps the partial file, unless finished
  VolumeWriter(VolumeWriter&&) noexcept;  ///< the moved-from writer may only be destroyed
  const Shape& shape() const;             ///< [D, H, W, C]
  const VoxelType& type() const;          ///< type of the file's voxels
  const std::string& path() const;        ///< the path of the constructor
  bool resumed() const;                   ///< whether the partial file existed before
  /// Writes a box of shape() from dense host memory with the same number of elements. Element types: type().dtype, f32,
  /// f64, and i64 for files of integers (VoxelType::encode()). Several threads may write at a time. Throws Error for a
  /// box outside the volume, another type, a value that the file's type cannot hold (rows before it are written), and a
  /// full disk.
  void write(const Box& box, const View& from) const;
  /// As above, from a tensor on any device.
  void write(const Box& box, const Tensor& from) const;
  /// Flushes everything that this writer wrote to the disk.
  void sync() const;
  /// Syncs and renames the file to its final path, replacing an existing file. Exactly one writer calls it, after all
  /// others have called sync(); write no box after it.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme

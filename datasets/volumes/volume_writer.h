// VolumeWriter: a new volume, written box by box by one process or by several at a time.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// What a new volume is to be.
struct VolumeOptions {
  Shape array = {};              ///< the file's axes: [H, W], [D, H, W] or [D, H, W, C]
  std::string type = "float32";  ///< of its voxels: a VoxelType's name
};
/// A volume that is being written. Processes that share its file each open a writer of the same path and options, of
/// whom the first makes the file, and write boxes of their own; boxes that meet in no voxel do not disturb each other.
/// Until finish() the file is called PATH.partial; it has its final size from the start, with disk blocks reserved
/// where the file system can do that. A process that was killed opens it again and goes on. What nobody wrote is 0.
class VolumeWriter {
 public:
  /// The name says the format: .npy, or .raw beside .raw.json (raw_volume.h). Throws Error for other names, impossible
  /// shapes, unknown types, a partial file of other options, and a file that cannot be made, or for which the disk has
  /// no room, of which nothing is left then.
  VolumeWriter(const std::string& path, const VolumeOptions&);
  ~VolumeWriter();  ///< leaves the partial file, unless it was finished
  VolumeWriter(VolumeWriter&&) noexcept;
  const Shape& shape() const;       ///< [D, H, W, C]
  const VoxelType& type() const;    ///< of the file's voxels
  const std::string& path() const;  ///< as it was given
  bool resumed() const;             ///< the partial file was there before
  /// Writes a box of shape() from dense memory of the host, of as many elements in type().dtype, f32, f64 or, to a file
  /// of integers, i64 (VoxelType::encode()). Several threads may write at a time. Throws Error for a box that is not
  /// inside, another type, a value that does not fit (the rows before it are written), and a disk that is full.
  void write(const Box& box, const View& from) const;
  /// The same of a tensor on any device.
  void write(const Box& box, const Tensor& from) const;
  /// What this writer wrote is on the disk when it returns.
  void sync() const;
  /// Syncs and gives the file its name, in the place of one that is there. One writer calls it, when all others have
  /// synced; no box is written after it.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme

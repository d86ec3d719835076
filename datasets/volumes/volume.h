// Volume: a three-dimensional image, or a stack of pictures, in a file from which any box can be read (like zarr.Array
// and h5py.Dataset). The volume is never in memory as a whole and is not mapped: pread reads rows, so a volume may be
// larger than memory and than `ulimit -v`. volume_writer.h writes such files.
//
// Axes are [D, H, W, C] (depth, height, width, channels) for every file: [H, W] becomes [1, H, W, 1], and [D, H, W]
// becomes [D, H, W, 1]. A picture of several channels must be [1, H, W, C] in its file.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"
#include "framework/tensor/tensor.h"

namespace trireme {
class Fingerprint;

/// A volume open for reading. Copies share it; any number of threads may read at a time.
class Volume {
 public:
  Volume() = default;  ///< no volume
  /// From a format's source; path is for messages.
  Volume(std::string path, std::unique_ptr<const VolumeSource>);
  explicit operator bool() const { return source_ != nullptr; }  ///< whether there is a volume
  const std::string& path() const { return path_; }              ///< the path it was opened with
  const Shape& array() const { return source_->array(); }        ///< the file's axes, two to four of them
  const Shape& shape() const { return source_->shape(); }        ///< [D, H, W, C]
  const VoxelType& type() const { return source_->type(); }      ///< type of the file's voxels: "uint16"
  DType dtype() const { return type().dtype; }                   ///< tensor type that holds all values of type()
  Box box() const;                                               ///< the whole volume
  /// Reads a box of shape() into `to`: dense host memory with the same number of elements, of type dtype(), f32, f64,
  /// or i64 for a file of integers. Uses 1 MiB of extra memory, plus one chunk, strip or tile for formats that have
  /// them. Throws Error for a box outside the volume, another type, and a file that is unreadable or damaged.
  void read(const Box& box, const View& to) const;
  /// Reads a box as a new tensor [d, h, w, c] of this type.
  Tensor read(const Box& box, DType) const;

 private:
  std::string path_;
  std::shared_ptr<const VolumeSource> source_;
};

/// Opens the volume at path and detects its format from the content:
/// - NumPy's .npy;
/// - raw numbers in NAME with NAME.json (raw_volume.h); path may be either;
/// - TIFF or BigTIFF with one or several pages (tiff_volume.h);
/// - the folder of a Zarr v2 array (zarr_volume.h).
///
/// Throws a one-line Error for other files (it names HDF5 and Zarr v3), a file whose length differs from its header,
/// and other element types.
Volume open_volume(const std::string& path);
/// Adds the files of the volume at path to a fingerprint: the file, a raw file's .json, a Zarr array's chunks
/// (Fingerprint::add_path()).
void add_volume(Fingerprint&, const std::string& path, bool times = false);

}  // namespace trireme

// Volume: a picture in three dimensions, or a stack of pictures, in a file of which any box is read by itself, as
// zarr.Array and h5py.Dataset are. The whole is never in memory and nothing is mapped: rows are read by pread, so that
// a volume may be larger than memory, and than `ulimit -v`. volume_writer.h writes such files.
//
// Axes are [D, H, W, C] (depth, height, width, channels) whatever the file's are: [H, W] is [1, H, W, 1], [D, H, W] is
// [D, H, W, 1]. A picture of several channels is [1, H, W, C] in its file, too.
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
  Volume() = default;  ///< none
  /// Of a format: path is for messages.
  Volume(std::string path, std::unique_ptr<const VolumeSource>);
  explicit operator bool() const { return source_ != nullptr; }  ///< whether there is a volume
  const std::string& path() const { return path_; }              ///< as it was given
  const Shape& array() const { return source_->array(); }        ///< the file's axes, two to four of them
  const Shape& shape() const { return source_->shape(); }        ///< [D, H, W, C]
  const VoxelType& type() const { return source_->type(); }      ///< of the file: "uint16"
  DType dtype() const { return type().dtype; }                   ///< of ours that holds all values of type()
  Box box() const;                                               ///< all of it
  /// Reads a box of shape() into `to`: dense memory of the host of as many elements, of type dtype(), f32, f64 or,
  /// where the file has integers, i64. Takes 1 MiB beside it, of formats in chunks, strips or tiles one of these, too.
  /// Throws Error for a box that is not inside, another type, and a file that cannot be read or is damaged.
  void read(const Box& box, const View& to) const;
  /// The same as a new tensor [d, h, w, c].
  Tensor read(const Box& box, DType) const;

 private:
  std::string path_;
  std::shared_ptr<const VolumeSource> source_;
};

/// The volume at path, whose format its content tells: NumPy's .npy; raw numbers in NAME beside NAME.json
/// (raw_volume.h), either of which may be named; TIFF of one page or many, BigTIFF too (tiff_volume.h); a Zarr v2
/// array's folder (zarr_volume.h). Throws Error, one line, for a file that is none of these, is not as long as its
/// header says, or has elements of other types; of HDF5 and Zarr v3 that they are not read.
Volume open_volume(const std::string& path);
/// The files of the volume at path: itself, a raw file's .json, a Zarr array's chunks (Fingerprint::add_path()).
void add_volume(Fingerprint&, const std::string& path, bool times = false);

}  // namespace trireme

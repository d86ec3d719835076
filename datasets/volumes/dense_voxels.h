// Dense (contiguous) voxel arrays in a file or in memory: reads and writes boxes row by row.
#pragma once
#include <memory>
#include <span>

#include "datasets/volumes/volume_source.h"
#include "framework/io/file.h"

namespace trireme {

/// Whether a box of four axes is inside [D, H, W, C]; the box may be empty.
bool is_inside(const Box& box, const Shape& shape);
/// The order of the axes [D, H, W, C], slowest first, for an array with that many axes in C order, or in Fortran order
/// (columns_first).
Shape axis_order(int axes, bool columns_first);
/// The position of an array's voxels in a file or in memory.
struct DenseLayout {
  Shape shape = {};                                           ///< [D, H, W, C]
  const VoxelType* type = nullptr;                            ///< type of a voxel
  std::size_t begin = 0;                                      ///< byte offset of the first voxel
  Shape order{0, 1, 2, 3};                                    ///< axes, the slowest first
  bool swapped = false;                                       ///< byte order differs from this machine's
  Index bytes() const { return shape.numel() * type->size; }  ///< size of all voxels
};
/// One or several runs of equal length, `pitch` voxels apart.
struct VoxelRuns {
  Index from = 0;                ///< index in the layout of the first run's first voxel
  Index runs = 1, pitch = 0;     ///< number of runs, and distance between their starts
  Index n = 0;                   ///< voxels per run
  Index at = 0;                  ///< target element of the first voxel
  Index run_step = 0, step = 1;  ///< target elements from run to run, and from voxel to voxel
};
/// The intersection of a block of an array with a box.
struct BlockPart {
  Box inside;   ///< the intersection in the block's coordinates
  Index at;     ///< its first element in the box's row-major order
  Shape steps;  ///< row-major strides of the box
};
/// The intersection of a box with the block at `origin`.
BlockPart part_of_block(const Shape& origin, const Shape& block, const Box& box);
/// Visits the voxels of a part in as few runs as possible.
void visit_runs(const DenseLayout&, const BlockPart&, const std::function<void(const VoxelRuns&)>& visit);

/// Reads a box of an array in a file with pread, at most 1 MiB at a time. Throws Error as FileReader::read().
void read_dense(const FileReader&, const DenseLayout&, const BlockPart&, const VoxelSink&);
/// As above, from an array in memory that begins at bytes[0]; swapped numbers are byte-swapped in place.
void read_dense(std::span<std::byte> bytes, const DenseLayout&, const BlockPart&, const VoxelSink&);

/// A file of contiguous voxels: .npy and raw files.
class DenseVolume final : public VolumeSource {
 public:
  /// The layout's shape need not be set. more: the file may have further bytes after the voxels. Throws Error if the
  /// file's length does not match the array.
  DenseVolume(const FileReader&, const Shape& array, const DenseLayout&, bool more = false);
  void read(const Box& box, const VoxelSink& sink) const override;

 private:
  OpenedFile file_;
  DenseLayout layout_;
};

}  // namespace trireme

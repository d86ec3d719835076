// Voxels that lie one behind the other, in a file or in memory: boxes of them read and written in rows.
#pragma once
#include <memory>
#include <span>

#include "datasets/volumes/volume_source.h"
#include "framework/io/file.h"

namespace trireme {

/// Whether a box of four axes, which may be empty, lies inside [D, H, W, C].
bool is_inside(const Box& box, const Shape& shape);
/// The order of axes [D, H, W, C], slowest first, of an array of so many axes in C's order or, columns first,
/// Fortran's.
Shape axis_order(int axes, bool columns_first);
/// Where an array's voxels lie.
struct DenseLayout {
  Shape shape = {};                 ///< [D, H, W, C]
  const VoxelType* type = nullptr;  ///< of each
  std::size_t begin = 0;            ///< byte of the first voxel
  Shape order{0, 1, 2, 3};          ///< axes, the slowest first
  bool swapped = false;             ///< the bytes of numbers are in the other order than this machine's
  Index bytes() const { return shape.numel() * type->size; }  ///< of all voxels
};
/// Voxels that are one run or several alike, `pitch` voxels apart.
struct VoxelRuns {
  Index from = 0;                ///< voxel of the layout at which the first begins
  Index runs = 1, pitch = 0;     ///< so many
  Index n = 0;                   ///< voxels of each
  Index at = 0;                  ///< element of the target at which the first begins
  Index run_step = 0, step = 1;  ///< elements of the target from run to run, and from voxel to voxel
};
/// What a block of an array, at `origin` of it, has of a box.
struct BlockPart {
  Box inside;   ///< in the block's coordinates
  Index at;     ///< element of the box's row-major order at which that begins
  Shape steps;  ///< of the box
};
BlockPart part_of_block(const Shape& origin, const Shape& block, const Box& box);
/// The voxels of a part, as few long runs.
void visit_runs(const DenseLayout&, const BlockPart&, const std::function<void(const VoxelRuns&)>& visit);

/// The box of an array in a file, by pread of at most 1 MiB at a time. Throws Error as FileReader::read().
void read_dense(const FileReader&, const DenseLayout&, const BlockPart&, const VoxelSink&);
/// The same of an array in memory that begins at bytes[0], which are turned around in place where they are swapped.
void read_dense(std::span<std::byte> bytes, const DenseLayout&, const BlockPart&, const VoxelSink&);

/// A file of voxels one behind the other: .npy and raw files.
class DenseVolume final : public VolumeSource {
 public:
  /// The layout's shape need not be set. more: the file may go on behind the voxels. Throws Error for a file of another
  /// length than this array makes it.
  DenseVolume(const FileReader&, const Shape& array, const DenseLayout&, bool more = false);
  void read(const Box& box, const VoxelSink& sink) const override;

 private:
  OpenedFile file_;
  DenseLayout layout_;
};

}  // namespace trireme

#include "datasets/volumes/npy_volume.h"

#include <algorithm>
#include <vector>

#include "datasets/volumes/dense_voxels.h"
#include "framework/io/foreign/npz.h"

namespace trireme {

std::unique_ptr<const VolumeSource> open_npy(const std::string& path) {
  const FileReader file(path);
  std::vector<std::byte> front(std::min(file.size(), longest_npy_front));
  file.read(0, front);
  const NpyHeader header = npy_header({path, front});
  const std::string_view descr = header.descr;
  const VoxelType* type = descr.size() == 3 && std::string_view("<>|").find(descr[0]) != std::string_view::npos
                              ? find_voxel_type(descr.substr(1))
                              : nullptr;
  check(
      type != nullptr, ErrorKind::data, "volume", "{}: elements of type {}; {} are read", path,
      [&] { return in_quotes(descr); }, voxel_type_names);
  DenseLayout layout{.type = type, .begin = header.begin, .swapped = descr[0] == '>'};
  layout.order = axis_order(header.shape.rank(), header.columns_first);
  return std::make_unique<DenseVolume>(file, header.shape, layout);
}

}  // namespace trireme

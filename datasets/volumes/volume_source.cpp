#include "datasets/volumes/volume_source.h"

namespace trireme {

VolumeSource::VolumeSource(const std::string& path, const Shape& array, const VoxelType& type)
    : array_(array), shape_(volume_shape(path, array, type)), type_(&type) {}

void OpenedFile::check_same(const FileReader& now) const {
  check(now.size() == size, ErrorKind::file, "volume", "{}: it had {} bytes when it was opened, and has {} now", path,
        size, now.size());
}

Shape volume_shape(const std::string& path, const Shape& array, const VoxelType& type) {
  const int axes = array.rank();
  check(axes >= 2 && axes <= 4, ErrorKind::data, "volume",
        "{}: the array is {}, expected [H, W], [D, H, W] or [D, H, W, C]", path, array);
  Index bytes = type.size;
  bool good = true;
  for (const Index extent : array)
    good = good && extent >= 1 && !__builtin_mul_overflow(bytes, extent, &bytes) && bytes <= Index{1} << 60;
  check(good, ErrorKind::data, "volume",
        "{}: the impossible shape {} of {}: extents are at least 1, of 2^60 bytes at most", path, array, type.name);
  if (axes == 2) return {1, array[0], array[1], 1};
  return {array[0], array[1], array[2], axes == 4 ? array[3] : 1};
}

}  // namespace trireme

// What the fuzzers of volumes share: the input as a file, and the promises of a VolumeSource.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/volumes/volume_source.h"

namespace trireme::fuzz {

inline void require(bool promise) {
  if (!promise) std::abort();
}

/// The path of a file of these bytes, until the next call.
inline std::string file_of(std::span<const unsigned char> bytes) {
  static const int fd = memfd_create("volume", 0);
  require(ftruncate(fd, 0) == 0 && pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(fd);
}

/// False when f throws an Error, which must be one line that names the file.
template <class F>
bool accepts(const std::string& path, const F& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    require(what.find(path) != what.npos && what.size() < 600 && what.find('\n') == what.npos);
    return false;
  }
}

/// Boxes at the beginning and at the end, of at most 40 voxels along each axis: each voxel comes once.
inline void read_boxes(const VolumeSource& source) {
  const Shape all = source.shape();
  for (const bool end : {false, true}) {
    Box box{all, all};
    for (int i = 0; i < 4; ++i) {
      box.size[i] = std::min<Index>(all[i], i == 3 ? 4 : 40);
      box.at[i] = end ? all[i] - box.size[i] : 0;
    }
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(box.size.numel()));
    unsigned sum = 0;
    source.read(box, [&](const std::byte* from, Index n, Index at, Index step) {
      require(n > 0 && at >= 0);
      for (Index i = 0; i < n; ++i) ++seen.at(static_cast<std::size_t>(at + i * step));
      for (Index i = 0; i < n * source.type().size; ++i) sum += static_cast<unsigned>(from[i]);
    });
    for (const auto times : seen) require(times == 1);
    require(sum != ~0u);  // so that the bytes are looked at
  }
}

}  // namespace trireme::fuzz

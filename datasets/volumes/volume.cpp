#include "datasets/volumes/volume.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "datasets/core/fingerprint.h"
#include "datasets/volumes/dense_voxels.h"
#include "datasets/volumes/npy_volume.h"
#include "datasets/volumes/raw_volume.h"
#include "datasets/volumes/tiff_volume.h"
#include "datasets/volumes/zarr_volume.h"
#include "framework/io/file.h"

namespace trireme {
namespace fs = std::filesystem;

Volume::Volume(std::string path, std::unique_ptr<const VolumeSource> source)
    : path_(std::move(path)), source_(std::move(source)) {
  check(source_ != nullptr, "volume", "{}: there is no volume", path_);
}

Box Volume::box() const { return {{0, 0, 0, 0}, shape()}; }

void Volume::read(const Box& box, const View& to) const {
  check(source_ != nullptr, "volume", "there is no volume to read");
  check(is_inside(box, shape()), "volume", "{}: a box at {} of {} is not inside {}", path_, box.at, box.size, shape());
  check(to.device.kind == DeviceKind::cpu && to.numel() == box.size.numel(), "volume",
        "{}: a box of {} was to be read into {} on {}", path_, box.size, to.shape, to.device);
  const VoxelType& t = type();
  check(t.converts(to.dtype), "volume", "{}: {} is read as {}, f32{}, not as {}", path_, t.name, t.dtype,
        t.is_integer() ? ", f64 or i64" : " or f64", to.dtype);
  if (box.empty()) return;
  auto* const target = static_cast<std::byte*>(to.data);
  const Index size = size_of(to.dtype);
  source_->read(box, [&](const std::byte* from, Index n, Index at, Index step) {
    bool good = true;
    if (step == 1)
      good = t.decode(from, n, to.dtype, target + at * size);
    else
      for (Index i = 0; i < n; ++i)
        good = t.decode(from + i * t.size, 1, to.dtype, target + (at + i * step) * size) && good;
    check(good, ErrorKind::data, "volume", "{}: a voxel is 2^63 or more, which no {} holds: read it as f64", path_,
          to.dtype);
  });
}

Tensor Volume::read(const Box& box, DType dtype) const {
  for (const Index n : box.size) check(n >= 0, "volume", "{}: a box of {}", path_, box.size);
  Tensor all = Tensor::empty(box.size, dtype);
  read(box, all.view());
  return all;
}

Volume open_volume(const std::string& path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return {path, open_zarr(path)};
  constexpr std::string_view json = ".json";
  if (path.ends_with(json) && fs::exists(path.substr(0, path.size() - json.size()), unknown))
    return {path, open_raw(path.substr(0, path.size() - json.size()))};
  const FileReader file(path);
  std::array<char, 8> first{};
  file.read(0, std::as_writable_bytes(std::span(first)).first(std::min(file.size(), first.size())));
  const std::string_view magic(first.data(), first.size());
  if (magic.starts_with("\x93NUMPY")) return {path, open_npy(path)};
  using namespace std::string_view_literals;
  for (const std::string_view tiff : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv})
    if (magic.starts_with(tiff)) return {path, open_tiff(path)};
  check(magic != "\x89HDF\r\n\x1a\n"sv, ErrorKind::data, "volume",
        "{}: HDF5 is not read: write the array as .npy (numpy.save) or Zarr v2", path);
  if (fs::exists(path + ".json", unknown)) return {path, open_raw(path)};
  fail(ErrorKind::data, "volume",
       "{}: neither .npy, TIFF nor a Zarr v2 folder, and there is no {}.json next to it that describes the raw numbers "
       "it "
       "holds",
       path, path);
}

void add_volume(Fingerprint& all, const std::string& path, bool times) {
  constexpr std::string_view json = ".json";
  std::error_code unknown;
  const std::string raw = path.substr(0, path.size() - std::min(path.size(), json.size()));
  const bool named_by_json = path.ends_with(json) && fs::exists(raw, unknown);
  const std::string& file = named_by_json ? raw : path;
  all.add_path("", file, times);
  if (fs::exists(file + ".json", unknown)) all.add_path(".json", file + ".json", times);
}

}  // namespace trireme

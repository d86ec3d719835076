#include "datasets/volumes/volume_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "datasets/volumes/dense_voxels.h"
#include "datasets/volumes/raw_volume.h"
#include "framework/io/foreign/npy.h"

namespace trireme {
namespace {

constexpr Index longest_write = Index{1} << 20;  // most bytes per write

std::string reason() { return std::strerror(errno); }

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int of) : fd(of) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  int close() { return fd >= 0 ? ::close(std::exchange(fd, -1)) : 0; }
};

void write_all(int fd, const std::string& path, std::size_t offset, const std::byte* from, std::size_t n) {
  while (n > 0) {
    const ssize_t written = ::pwrite(fd, from, n, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, ErrorKind::file, "volume", "cannot write {} at byte {}: {}", path, offset, reason);
    from += written;
    offset += static_cast<std::size_t>(written);
    n -= static_cast<std::size_t>(written);
  }
}

/// Durably creates a file of `bytes` bytes that begins with `front`, unless it exists. Returns whether it was created.
bool make_file(const std::string& path, std::string_view front, std::size_t bytes) {
  const std::string temporary = temporary_name(path);
  Descriptor file(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  check(file.fd >= 0, ErrorKind::file, "volume", "cannot create {}: {}", temporary, reason);
  try {
    check(::ftruncate(file.fd, static_cast<off_t>(bytes)) == 0, ErrorKind::file, "volume",
          "cannot make {} of {} bytes: {}", path, bytes, reason);
    write_all(file.fd, path, 0, reinterpret_cast<const std::byte*>(front.data()), front.size());
    check(::fsync(file.fd) == 0 && file.close() == 0, ErrorKind::file, "volume", "cannot write {}: {}", temporary,
          reason);
    // If several processes come here at once, one of them creates the file for all.
    const bool made = ::link(temporary.c_str(), path.c_str()) == 0;
    check(made || errno == EEXIST, ErrorKind::file, "volume", "cannot link {} to {}: {}", temporary, path, reason);
    ::unlink(temporary.c_str());
    return made;
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

struct VolumeWriter::Impl {
  std::string path, partial;
  std::string json;  // contents of a raw file's .json; empty: .npy
  DenseLayout layout;
  Descriptor file{-1};
  bool resumed = false;

  Impl(const std::string& to, const VolumeOptions& options) : path(to), partial(to + ".partial") {
    const bool raw = path.ends_with(".raw");
    check(raw || path.ends_with(".npy"), "volume", "{}: expected NAME.npy, or NAME.raw with a .json next to it", path);
    layout.type = find_voxel_type(options.type);
    check(layout.type != nullptr, "volume", "{}: there is no type '{}'; there are {}", path, options.type,
          voxel_type_names);
    layout.shape = volume_shape(path, options.array, *layout.type);
    std::string front;
    if (raw)
      json = raw_header_text(options.array, *layout.type);
    else
      front = npy_front(options.array, fmt::format("{}{}", layout.type->size == 1 ? '|' : '<', layout.type->code));
    layout.begin = front.size();
    open(front);
  }
  void open(const std::string& front) {
    const std::size_t bytes = layout.begin + static_cast<std::size_t>(layout.bytes());
    if (!json.empty() && !make_file(partial + ".json", json, 0))
      same(partial + ".json", read_text(partial + ".json", 65536) == json);
    if (::access(partial.c_str(), F_OK) == 0)
      resumed = true;
    else
      resumed = !make_file(partial, front, bytes);
    file.fd = ::open(partial.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    check(file.fd >= 0, ErrorKind::file, "volume", "cannot open {}: {}", partial, reason);
    // Reserved only after the file has its name: a killed process then leaves no unnamed file of the volume's size.
    if (!resumed) return reserve_new(bytes);
    const FileReader there(partial);
    std::string begins(std::min(front.size(), there.size()), '\0');
    there.read(0, std::as_writable_bytes(std::span(begins)));
    same(partial, there.size() == bytes && begins == front);
    reserve_room(file.fd, partial, bytes);
  }
  /// If the disk has no room, no file is left.
  void reserve_new(std::size_t bytes) try { reserve_room(file.fd, partial, bytes); } catch (...) {
    ::unlink(partial.c_str());
    if (!json.empty()) ::unlink((partial + ".json").c_str());
    throw;
  }
  static void same(const std::string& file, bool yes) {
    check(yes, "volume", "{} is part of a volume of another shape or type: remove it, or write to another name", file);
  }
  void write(const Box& box, const View& from) const {
    check(file.fd >= 0, "volume", "{} is finished", path);
    const VoxelType& type = *layout.type;
    check(is_inside(box, layout.shape), "volume", "{}: a box at {} of {} is not inside {}", path, box.at, box.size,
          layout.shape);
    check(from.device.kind == DeviceKind::cpu && from.numel() == box.size.numel(), "volume",
          "{}: a box of {} was to be written from {} on {}", path, box.size, from.shape, from.device);
    check(type.converts(from.dtype), "volume", "{}: {} does not become {}", path, from.dtype, type.name);
    const bool as_is = type.as_is && from.dtype == type.dtype;
    std::vector<std::byte> buffer;
    const auto* const values = static_cast<const std::byte*>(from.data);
    const Index size = size_of(from.dtype), most = longest_write / type.size;
    visit_runs(layout, part_of_block({0, 0, 0, 0}, layout.shape, box), [&](const VoxelRuns& r) {
      for (Index run = 0; run < r.runs; ++run)
        for (Index begin = 0; begin < r.n; begin += most) {
          const Index n = std::min(most, r.n - begin);
          const std::byte* voxels = values + (r.at + run * r.run_step + begin) * size;
          if (!as_is) {
            buffer.resize(static_cast<std::size_t>(n * type.size));
            check(type.encode(voxels, from.dtype, n, buffer.data()), ErrorKind::data, "volume",
                  "{}: a value of the box at {} does not fit in {}", path, box.at, type.name);
            voxels = buffer.data();
          }
          write_all(file.fd, partial,
                    layout.begin + static_cast<std::size_t>((r.from + run * r.pitch + begin) * type.size), voxels,
                    static_cast<std::size_t>(n * type.size));
        }
    });
  }
  void finish() {
    check(file.fd >= 0, "volume", "{} is finished", path);
    check(::fsync(file.fd) == 0 && file.close() == 0, ErrorKind::file, "volume", "cannot write {}: {}", partial,
          reason);
    if (!json.empty()) replace_file(path + ".json", json);
    rename_durably(partial, path);
    if (!json.empty()) ::unlink((partial + ".json").c_str());
  }
};

VolumeWriter::VolumeWriter(const std::string& path, const VolumeOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {}
VolumeWriter::~VolumeWriter() = default;
VolumeWriter::VolumeWriter(VolumeWriter&&) noexcept = default;
const Shape& VolumeWriter::shape() const { return impl_->layout.shape; }
const VoxelType& VolumeWriter::type() const { return *impl_->layout.type; }
const std::string& VolumeWriter::path() const { return impl_->path; }
bool VolumeWriter::resumed() const { return impl_->resumed; }
void VolumeWriter::write(const Box& box, const View& from) const { impl_->write(box, from); }
void VolumeWriter::write(const Box& box, const Tensor& from) const {
  check(from.defined(), "volume", "{}: the tensor is undefined", impl_->path);
  const Tensor here = from.detach().to(cpu());
  impl_->write(box, here.view());
}
void VolumeWriter::sync() const {
  check(::fdatasync(impl_->file.fd) == 0, ErrorKind::file, "volume", "cannot write {}: {}", impl_->partial, reason);
}
void VolumeWriter::finish() { impl_->finish(); }

}  // namespace trireme

#include "parallel/inference/feature_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/io/file.h"
#include "parallel/split/grid.h"

namespace trireme {

FeatureFile::FeatureFile(std::string path, const Shape& volume, std::vector<Index> bounds, DType dtype)
    : path_(std::move(path)), volume_(volume), bounds_(std::move(bounds)), dtype_(dtype) {
  const bool made = ::access(path_.c_str(), F_OK) != 0;
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  check(fd_ >= 0, ErrorKind::file, "infer", "{}: cannot be made: {}", path_, [&] { return std::strerror(errno); });
  const Index bytes =
      volume_.product(1, volume_.rank() - 1) * (bounds_.back() - bounds_.front()) * static_cast<Index>(size_of(dtype_));
  try {
    reserve_room(fd_, path_, static_cast<std::size_t>(bytes));  // fails now and not during the computation
    struct stat now {};
    check(::fstat(fd_, &now) == 0 && (now.st_size >= bytes || ::ftruncate(fd_, bytes) == 0), ErrorKind::file, "infer",
          "{}: cannot be made of {} bytes: {}", path_, bytes, [&] { return std::strerror(errno); });
  } catch (...) {
    ::close(std::exchange(fd_, -1));
    if (made) ::unlink(path_.c_str());
    throw;
  }
}

FeatureFile::~FeatureFile() {
  if (fd_ >= 0) ::close(fd_);
}

template <class F>
void FeatureFile::each_run(std::size_t k, const Box& box, F&& f) const {
  const int axes = volume_.rank() - 2;
  const Index voxels = volume_.product(1, axes + 1), width = bounds_[k + 1] - bounds_[k];
  const Index element = static_cast<Index>(size_of(dtype_));
  const Index base = voxels * (bounds_[k] - bounds_.front()) * element;
  const Index run = box.size[axes] * width * element, rows = box.size.product(1, axes);
  for (Index row = 0; row < rows; ++row) {
    Index first = box.at[axes], stride = volume_[axes], rest = row;
    for (int axis = axes - 1; axis >= 1; --axis) {
      first += (box.at[axis] + rest % box.size[axis]) * stride;
      stride *= volume_[axis];
      rest /= box.size[axis];
    }
    f(base + first * width * element, row * run, run);
  }
}

void FeatureFile::write(const Box& box, const Tensor& values) const {
  std::size_t k = 0;
  while (k + 2 < bounds_.size() && bounds_[k + 1] <= box.at[-1]) ++k;
  check(bounds_[k] == box.at[-1] && bounds_[k + 1] == box.at[-1] + box.size[-1] && values.shape() == box.size,
        ErrorKind::internal, "infer", "{}: {} of channels from {} on match no range of the file", path_, values.shape(),
        box.at[-1]);
  const auto* from = values.data<std::byte>();
  each_run(k, box, [&](Index to, Index at, Index bytes) {
    while (bytes > 0) {
      const ssize_t n = ::pwrite(fd_, from + at, static_cast<std::size_t>(bytes), to);
      if (n < 0 && errno == EINTR) continue;
      check(n > 0, ErrorKind::file, "infer", "{}: cannot be written: {}", path_, [&] { return std::strerror(errno); });
      at += n;
      to += n;
      bytes -= n;
    }
  });
}

void FeatureFile::read(const Box& box, const Tensor& to, const Shape& origin) const {
  for (std::size_t k = 0; k + 1 < bounds_.size(); ++k) {
    const Index first = std::max(bounds_[k], box.at[-1]), last = std::min(bounds_[k + 1], box.at[-1] + box.size[-1]);
    if (first >= last) continue;
    Box part = box;
    part.at[-1] = bounds_[k];
    part.size[-1] = bounds_[k + 1] - bounds_[k];
    const Tensor values = Tensor::empty(part.size, dtype_);
    auto* here = values.data<std::byte>();
    each_run(k, part, [&](Index from, Index at, Index bytes) {
      while (bytes > 0) {
        const ssize_t n = ::pread(fd_, here + at, static_cast<std::size_t>(bytes), from);
        if (n < 0 && errno == EINTR) continue;
        check(n > 0, ErrorKind::file, "infer", "{}: cannot be read: {}", path_,
              [&] { return n == 0 ? "it is too short" : std::strerror(errno); });
        at += n;
        from += n;
        bytes -= n;
      }
    });
    Box taken = part;
    taken.at[-1] = first;
    taken.size[-1] = last - first;
    copy_box(to, origin, values, part.at, taken);
  }
}

void FeatureFile::sync() const {
  check(::fdatasync(fd_) == 0, ErrorKind::file, "infer", "{}: cannot be written: {}", path_,
        [&] { return std::strerror(errno); });
}

}  // namespace trireme

#include "parallel/comm/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace trireme {
namespace {

// Size rounded up to a multiple of the mark's size, plus the mark.
std::size_t with_mark(std::size_t bytes) {
  constexpr std::size_t mark = sizeof(std::uint64_t);
  return (bytes + mark - 1) / mark * mark + mark;
}

bool is_block(int file, const SharedMemory::Name& name, std::size_t bytes) {
  struct stat found {};
  return fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_dev == name.device &&
         found.st_ino == name.inode && found.st_size == static_cast<off_t>(bytes);
}

}  // namespace

// A memory file has no name in the file system. So nothing is left behind however a process ends, and the size of
// /dev/shm does not matter.
SharedMemory::SharedMemory(std::size_t bytes) : bytes_(with_mark(bytes)), file_(memfd_create("trireme", MFD_CLOEXEC)) {
  struct stat made {};
  std::uint64_t drawn = 0;
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes_)) != 0 || fstat(file_, &made) != 0 ||
      getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
    return;
  map();
  if (!data_) return;
  *mark() = drawn;
  name_ = {getpid(), file_, made.st_dev, made.st_ino, drawn};
}

SharedMemory::SharedMemory(const Name& name, std::size_t bytes) : bytes_(with_mark(bytes)) {
  if (name.file < 0) return;
  // O_PATH does not open the file itself: opening a foreign pipe or device may have side effects.
  const auto path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int seen = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (seen < 0) return;
  if (is_block(seen, name, bytes_)) file_ = open(("/proc/self/fd/" + std::to_string(seen)).c_str(), O_RDWR | O_CLOEXEC);
  close(seen);
  if (file_ >= 0) map();
  if (data_ && *mark() != name.mark) unmap();
  if (data_) name_ = name;
  close_name();
}

SharedMemory::~SharedMemory() {
  unmap();
  close_name();
}

void SharedMemory::close_name() {
  if (file_ >= 0) close(std::exchange(file_, -1));
}

void SharedMemory::map() {
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at != MAP_FAILED) data_ = at;
}

void SharedMemory::unmap() {
  if (data_) munmap(std::exchange(data_, nullptr), bytes_);
}

std::uint64_t* SharedMemory::mark() const {
  return reinterpret_cast<std::uint64_t*>(static_cast<char*>(data_) + bytes_) - 1;
}

}  // namespace trireme

#include "parallel/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace trireme {

// A memory file has no name in the file system: nothing is left behind however a process ends, and /dev/shm may be
// small.
SharedMemory::SharedMemory(std::size_t bytes) : bytes_(bytes), file_(memfd_create("trireme", MFD_CLOEXEC)) {
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes)) == 0) map();
}

SharedMemory::SharedMemory(Name name, std::size_t bytes) : bytes_(bytes) {
  if (name.file < 0) return;
  auto path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ >= 0) map();
  close_name();
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, bytes_);
  close_name();
}

SharedMemory::Name SharedMemory::name() const { return data_ ? Name{getpid(), file_} : Name{}; }

void SharedMemory::close_name() {
  if (file_ >= 0) close(std::exchange(file_, -1));
}

void SharedMemory::map() {
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at != MAP_FAILED) data_ = at;
}

}  // namespace trireme

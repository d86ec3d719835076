#include "tools/training/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "kernels/core/error.h"

namespace trireme {

RunLock::RunLock(const std::string& directory) {
  const std::string path = directory + "/lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  check(file_ >= 0, ErrorKind::file, "run directory", "cannot write {}: {}", path,
        [&] { return errno == ELOOP ? "it is a symbolic link" : std::strerror(errno); });
  std::array<char, 300> text{};
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const ssize_t size = ::pread(file_, text.data(), text.size() - 1, 0);
    ::close(file_);
    fail(ErrorKind::file, "run directory", "{} is being written by {}; wait for it, stop it, or give another --run.dir",
         directory, size > 0 ? text.data() : "another process");
  }
  ::gethostname(text.data(), text.size() - 1);
  const std::string holder = fmt::format("process {} on {}", ::getpid(), text.data());
  // The text only names the holder; the lock does not need it.
  [[maybe_unused]] const bool told = ::ftruncate(file_, 0) == 0 && ::pwrite(file_, holder.data(), holder.size(), 0) > 0;
}

RunLock::~RunLock() {
  [[maybe_unused]] const int emptied = ::ftruncate(file_, 0);  // so that two equal runs leave equal files
  ::close(file_);
}

}  // namespace trireme

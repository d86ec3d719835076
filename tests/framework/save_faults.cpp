#include "tests/framework/save_faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>

using trireme::test::Fault;
using trireme::test::shim;

namespace {

/// True when this call shall fail; does not return when the process shall die here.
bool strikes() {
  const Fault fault = shim.fault;
  if (fault == Fault::none) return false;
  const int call = ++shim.calls;
  if (shim.at != 0 && call != shim.at) return false;
  if (fault == Fault::die) ::syscall(SYS_exit_group, 9);
  if (fault == Fault::interrupt && call % 2 == 0) return false;
  errno = fault == Fault::interrupt ? EINTR : shim.code.load();
  return fault != Fault::short_write;
}
/// These are not interrupted.
bool strikes_name() { return strikes() && shim.fault != Fault::interrupt; }

}  // namespace

extern "C" {
ssize_t write(int fd, const void* data, size_t n) {
  if (strikes() && shim.fault != Fault::none) return -1;
  if (shim.fault == Fault::short_write) n = n > 7 ? 7 : n;
  return ::syscall(SYS_write, fd, data, n);
}
int fsync(int) {
  return strikes() ? -1 : 0;
}  // the page cache outlives a process, and a thousand real ones take a minute
int rename(const char* from, const char* to) noexcept {
  return strikes_name() ? -1 : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return strikes_name() ? -1 : static_cast<int>(::syscall(SYS_renameat2, a, from, b, to, flags));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return strikes_name() ? -1 : static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int unlinkat(int fd, const char* path, int flags) noexcept {
  return strikes_name() ? -1 : static_cast<int>(::syscall(SYS_unlinkat, fd, path, flags));
}
int unlink(const char* path) noexcept {
  return strikes_name() ? -1 : static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
}

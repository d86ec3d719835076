// RunLock: ensures that one process at a time writes a run directory.
#pragma once
#include <string>

namespace trireme {

/// Holds the file `lock` in a directory by flock(2) until destruction or the end of the process. The file remains, and
/// is empty unless its process was killed.
class RunLock {
 public:
  /// Throws Error with host and process id if another process holds the lock, and if the file cannot be created. On a
  /// file system without locks nothing is locked.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_;
};

}  // namespace trireme

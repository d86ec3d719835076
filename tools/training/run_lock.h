// RunLock: one process at a time writes a run directory.
#pragma once
#include <string>

namespace trireme {

/// Holds `lock` in a directory, by flock(2), until it or its process ends, however that ends. The file stays, empty
/// unless its process was killed.
class RunLock {
 public:
  /// Throws Error where another process holds it, with that one's host and process id, and where the file cannot be
  /// made. On a file system without locks nothing is held.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_;
};

}  // namespace trireme

// SharedMemory: a block that processes of one host have in common; it goes away with its last user.
#pragma once
#include <cstddef>
#include <utility>

namespace trireme {

class SharedMemory {
 public:
  /// Where others find a block while its maker lives: a process and a file descriptor of it.
  struct Name {
    int process = 0, file = -1;
  };

  SharedMemory() = default;
  /// A new block, zeroed; empty when the system refuses.
  explicit SharedMemory(std::size_t bytes);
  /// Somebody else's block; empty when it cannot be reached.
  SharedMemory(Name name, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(o.bytes_), file_(std::exchange(o.file_, -1)) {}
  SharedMemory& operator=(SharedMemory&& o) noexcept {
    std::swap(data_, o.data_), std::swap(bytes_, o.bytes_), std::swap(file_, o.file_);
    return *this;
  }

  void* data() const { return data_; }
  Name name() const;
  /// Once all have found it: no further process can.
  void close_name();

 private:
  void map();
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  int file_ = -1;
};

}  // namespace trireme

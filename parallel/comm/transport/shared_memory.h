// SharedMemory: a block that processes of one host have in common; it goes away with its last user.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace trireme {

class SharedMemory {
 public:
  /// Where others find a block while its maker lives: a process and a file descriptor of it. A process number may mean
  /// another process to the reader (a container has numbers of its own), so it comes with what tells this block from
  /// any other: the file's device and inode, and a number drawn at random that stands in the block itself.
  struct Name {
    int process = 0, file = -1;
    std::uint64_t device = 0, inode = 0, mark = 0;
  };

  SharedMemory() = default;
  /// A new block, zeroed; empty when the system refuses.
  explicit SharedMemory(std::size_t bytes);
  /// Somebody else's block; empty when it cannot be reached, or when what is found there is another one. Nothing is
  /// opened before it is known to be a file of this name and size.
  SharedMemory(const Name& name, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(o.bytes_), name_(o.name_), file_(std::exchange(o.file_, -1)) {}
  SharedMemory& operator=(SharedMemory&& o) noexcept {
    std::swap(data_, o.data_), std::swap(bytes_, o.bytes_), std::swap(name_, o.name_), std::swap(file_, o.file_);
    return *this;
  }

  void* data() const { return data_; }
  /// No process (file -1) for a block that is empty.
  const Name& name() const { return name_; }
  /// Once all have found it: no further process can.
  void close_name();

 private:
  void map();
  void unmap();
  std::uint64_t* mark() const;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;  // with the mark at the end
  Name name_;
  int file_ = -1;
};

}  // namespace trireme

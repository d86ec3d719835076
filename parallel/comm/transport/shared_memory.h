// SharedMemory: a memory block that processes of one host share. It is freed with its last user.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace trireme {

class SharedMemory {
 public:
  /// The address of a block while its creator lives: a process and its file descriptor. A process number may mean
  /// another process to the reader (containers have separate numbers). So the name also has the file's device and
  /// inode, and a random number that is stored in the block.
  struct Name {
    int process = 0, file = -1;
    std::uint64_t device = 0, inode = 0, mark = 0;
  };

  SharedMemory() = default;
  /// A new block, zeroed; empty when the system refuses.
  explicit SharedMemory(std::size_t bytes);
  /// Opens another process's block; empty if it cannot be reached or is another block. A file is opened only after its
  /// name and size match.
  SharedMemory(const Name& name, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(o.bytes_), name_(o.name_), file_(std::exchange(o.file_, -1)) {}
  SharedMemory& operator=(SharedMemory&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(name_, o.name_);
    std::swap(file_, o.file_);
    return *this;
  }

  void* data() const { return data_; }
  /// The name for other processes; file is -1 for an empty block.
  const Name& name() const { return name_; }
  /// Call after all processes have opened the block: no other process can open it then.
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

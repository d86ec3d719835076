// Writes: what lets a backward notice that a tensor it needs was overwritten in place after the forward.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace trireme {

/// In-place writes to a block, counted so that a backward notices those that came between it and the forward (PyTorch's
/// version counter). Where the latest partial ones went is kept, so that tensors of one flat block are told apart.
class Writes {
 public:
  std::uint64_t count() const { return count_; }
  void add(std::size_t begin, std::size_t end, std::size_t block_bytes);
  /// Whether bytes [begin, end) may have been written to after the since-th write.
  bool touched(std::uint64_t since, std::size_t begin, std::size_t end) const {
    return count_ > since && search(since, begin, end);
  }

 private:
  struct Write {
    std::uint64_t number;
    std::size_t begin, end;
  };
  bool search(std::uint64_t since, std::size_t begin, std::size_t end) const;

  std::atomic<std::uint64_t> count_ = 0;
  std::uint64_t anywhere_ = 0;  // the last write whose place is not in partial_
  std::unique_ptr<std::vector<Write>> partial_;
};

}  // namespace trireme

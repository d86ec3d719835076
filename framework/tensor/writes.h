// Writes: version counters of a block of memory. Backward uses them to detect that a saved tensor was overwritten in
// place after forward (PyTorch's version counter).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace trireme::detail {

/// In-place writes to a block. Writes are numbered over all blocks, so that the replacement of a weight's block is
/// detected too. The range of each partial write is kept, so that tensors of one flat block are distinguished.
class Writes {
 public:
  /// The number of the last write to any block.
  static std::uint64_t latest() { return latest_; }
  /// The number of the last write to this block; 0: none.
  std::uint64_t last() const { return last_; }
  void add(std::size_t begin, std::size_t end, std::size_t block_bytes);
  /// Whether bytes [begin, end) may have been written after write number `since`.
  bool touched(std::uint64_t since, std::size_t begin, std::size_t end) const {
    return last_ > since && search(since, begin, end);
  }

 private:
  struct Range {
    std::size_t end;
    std::uint64_t number;  // of the last write to it
  };
  bool search(std::uint64_t since, std::size_t begin, std::size_t end) const;
  void cut(std::size_t at);
  void thin_out();

  static std::atomic<std::uint64_t> latest_;
  std::atomic<std::uint64_t> last_ = 0;
  std::uint64_t anywhere_ = 0;                             // last write whose position is not in partial_
  std::unique_ptr<std::map<std::size_t, Range>> partial_;  // by begin; disjoint
};

}  // namespace trireme::detail

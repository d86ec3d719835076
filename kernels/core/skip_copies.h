// SkipCopies: for dry runs, which need the shapes of tensors and not their contents.
#pragma once
#include <cstddef>
#include <utility>

namespace trireme {

namespace detail {
inline constinit thread_local bool skips_copies = false;
}

/// While it lives, copy_block() on this thread skips copies of more than `most` bytes, so that large blocks are never
/// touched.
class SkipCopies {
 public:
  static constexpr std::size_t most = 1 << 16;
  SkipCopies() : before_(std::exchange(detail::skips_copies, true)) {}
  ~SkipCopies() { detail::skips_copies = before_; }
  SkipCopies(const SkipCopies&) = delete;
  SkipCopies& operator=(const SkipCopies&) = delete;

 private:
  bool before_;
};

}  // namespace trireme

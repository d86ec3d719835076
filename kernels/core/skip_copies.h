// SkipCopies: for dry runs, of whose tensors only the shapes count.
#pragma once
#include <cstddef>
#include <utility>

namespace trireme {

namespace detail {
inline constinit thread_local bool skips_copies = false;
}

/// While it lives, copy_block() of more than `most` bytes on this thread copies nothing, so that large memory is never
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

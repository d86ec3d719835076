// SkipCopies: watches copies, or skips them for dry runs, which need the shapes of tensors and not their contents.
#pragma once
#include <cstddef>
#include <functional>
#include <utility>

#include "kernels/core/runtime.h"

namespace trireme {

class SkipCopies;
namespace detail {
inline constinit thread_local SkipCopies* skip_copies = nullptr;
}

/// While it lives, copy_block() on this thread skips copies of more than `most` bytes, so that large blocks are never
/// touched, and copies from or to parts of blocks without memory.
class SkipCopies {
 public:
  static constexpr std::size_t most = 1 << 16;
  /// see: called with the source of each copy, skipped or not; null: nothing is. skip: false: all copies are made.
  explicit SkipCopies(std::function<void(const View& from)> see = {}, bool skip = true)
      : see_(std::move(see)), skip_(skip), before_(std::exchange(detail::skip_copies, this)) {}
  ~SkipCopies() { detail::skip_copies = before_; }
  SkipCopies(const SkipCopies&) = delete;
  SkipCopies& operator=(const SkipCopies&) = delete;
  /// For copy_block(): whether to skip a copy.
  bool skips(const View& from, const View& to = {}) const {
    if (see_) see_(from);
    return skip_ && (static_cast<std::size_t>(from.bytes()) > most || !has_memory(from) || !has_memory(to));
  }

 private:
  std::function<void(const View&)> see_;
  bool skip_;
  SkipCopies* before_;
};

}  // namespace trireme

// WatchPause: lets kernels run in the middle of a dry run, for a value that outlives the dry run.
#pragma once
#include <utility>

#include "framework/tensor/launch.h"
#include "kernels/core/skip_copies.h"

namespace trireme {

/// While it lives, this thread has no LaunchWatch and no SkipCopies: kernels run, and copies are made. A layer that
/// caches a tensor computes the tensor under a WatchPause. Otherwise a dry run (a dry LaunchWatch) that happens to
/// be the first caller would leave uninitialized memory in the cache.
class WatchPause {
 public:
  WatchPause()
      : watch_(std::exchange(detail::launch_watch, nullptr)), skips_(std::exchange(detail::skip_copies, nullptr)) {}
  ~WatchPause() {
    detail::launch_watch = watch_;
    detail::skip_copies = skips_;
  }
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;

 private:
  LaunchWatch* watch_;
  SkipCopies* skips_;
};

}  // namespace trireme

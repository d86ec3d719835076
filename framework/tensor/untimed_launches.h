// UntimedLaunches: for watches of kernels that look at operands only.
#pragma once
#include <utility>

namespace trireme {

namespace detail {
inline constinit thread_local bool untimed_launches = false;
}

/// While it lives, a LaunchWatch of this thread that has no other one around it does not measure kernels: Call::seconds
/// are 0. On devices a measured kernel takes much longer, since the device's cache is emptied before it.
class UntimedLaunches {
 public:
  UntimedLaunches() : before_(std::exchange(detail::untimed_launches, true)) {}
  ~UntimedLaunches() { detail::untimed_launches = before_; }
  UntimedLaunches(const UntimedLaunches&) = delete;
  UntimedLaunches& operator=(const UntimedLaunches&) = delete;

 private:
  bool before_;
};

}  // namespace trireme

#include "framework/launch.h"

#include <chrono>

#include "kernels/vendor.h"

namespace trireme {

namespace detail {
void Placement::refuse(const View& v) const {
  fail(op, "operands lie on {} and {}: bring them together with to(Device)", first->device, v.device);
}
}  // namespace detail

LaunchWatch::LaunchWatch(std::function<void(const Call&)> see) : see_(std::move(see)) {
  check(detail::launch_watch == nullptr, "profile", "this thread is watched already");
  detail::launch_watch = this;
  vendor_clock() = {.on = true};
}
LaunchWatch::~LaunchWatch() {
  detail::launch_watch = nullptr;
  vendor_clock().on = false;
}
void LaunchWatch::watch(const char* op, std::span<const View> operands, const std::function<void()>& kernel) {
  using Clock = std::chrono::steady_clock;
  const double vendor = vendor_clock().compute;
  const Clock::time_point start = Clock::now();
  kernel();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  see_({op, operands, seconds, vendor_clock().compute - vendor});
}

}  // namespace trireme

#include "framework/launch.h"

#include <algorithm>
#include <chrono>

#include "kernels/runtime.h"
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
  // A device goes on by itself: to time one kernel, what was before it must be done, and so must it.
  const auto placed = std::find_if(operands.begin(), operands.end(), [](const View& v) { return bool(v); });
  const auto wait = [&] {
    if (placed != operands.end()) runtime(placed->device.kind).synchronize(placed->device);
  };
  wait();
  const Clock::time_point start = Clock::now();
  kernel();
  wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  see_({op, operands, seconds, vendor_clock().compute - vendor});
}

}  // namespace trireme

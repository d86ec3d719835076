#include "framework/tensor/launch.h"

#include <algorithm>
#include <vector>

#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"

namespace trireme {

DeviceKind detail::device_of(const char* op, std::span<const View* const> operands) {
  const View* first = nullptr;
  for (const View* v : operands) {
    if (v == nullptr || v->data == nullptr) continue;
    if (first == nullptr) first = v;
    check(v->device == first->device, op, "operands are on {} and {}, expected one device: move them with to(Device)",
          first->device, v->device);
  }
  return first ? first->device.kind : DeviceKind::cpu;
}

LaunchWatch::LaunchWatch(std::function<void(const Call&)> see, Mode mode)
    : see_(std::move(see)),
      mode_(mode),
      outer_(detail::launch_watch),
      is_timed_(mode == Mode::timed || (outer_ != nullptr && outer_->is_timed_)) {
  check(outer_ == nullptr || (mode != Mode::dry && outer_->mode_ != Mode::dry), "profile",
        "this thread already has a LaunchWatch, which cannot be combined with a dry run: destroy it first");
  detail::launch_watch = this;
  vendor_clock() = {.on = true};
}
LaunchWatch::~LaunchWatch() {
  detail::launch_watch = outer_;
  vendor_clock().on = outer_ != nullptr;
}
bool is_dry_run() { return detail::launch_watch && detail::launch_watch->is_dry(); }

void LaunchWatch::watch(const char* op, std::span<const View* const> all, double operations, double bytes,
                        void (*run)(const void*), const void* call) {
  std::vector<View> operands;
  for (const View* v : all)
    if (v) operands.push_back(*v);
  if (bytes < 0) {
    bytes = 0;
    for (const View& v : operands) bytes += v ? static_cast<double>(v.bytes()) : 0;
  }
  const std::function<void()> kernel = [=] { run(call); };
  if (mode_ == Mode::dry) return see_({op, operands, operations, bytes, 0, 0, kernel});
  const double vendor = vendor_clock().compute;
  const auto placed = std::find_if(operands.begin(), operands.end(), [](const View& v) { return bool(v); });
  const Device device = placed != operands.end() ? placed->device : cpu();
  double seconds = 0;
  if (is_timed_)
    seconds = runtime(device.kind).timed(device, kernel);
  else
    kernel();
  const double in_vendor = vendor_clock().compute - vendor;
  for (const LaunchWatch* w = this; w != nullptr; w = w->outer_)
    w->see_({op, operands, operations, bytes, seconds, in_vendor, kernel});
}

}  // namespace trireme

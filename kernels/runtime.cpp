#include "kernels/runtime.h"

#include <array>
#include <atomic>

#include "kernels/error.h"

namespace trireme {
namespace {
std::atomic<Runtime*>& slot(DeviceKind kind) {
  static std::array<std::atomic<Runtime*>, device_kinds> slots{};
  return slots[static_cast<int>(kind)];
}
}  // namespace

Runtime& runtime(DeviceKind kind) {
  Runtime* found = slot(kind).load(std::memory_order_acquire);
  check(found != nullptr, "runtime", "no {} device here: this build or this machine has none", name_of(kind));
  return *found;
}

bool set_runtime(DeviceKind kind, Runtime* runtime) {
  slot(kind).store(runtime, std::memory_order_release);
  return true;
}

}  // namespace trireme

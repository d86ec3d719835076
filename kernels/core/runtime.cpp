#include "kernels/core/runtime.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <vector>

#include "kernels/core/backend.h"
#include "kernels/core/skip_copies.h"

namespace trireme {
namespace {
std::atomic<Runtime*>& slot(DeviceKind kind) {
  static std::array<std::atomic<Runtime*>, device_kinds> slots{};
  return slots[static_cast<int>(kind)];
}
}  // namespace

std::function<void(void* to)> Runtime::fetch_later(const void* from, std::size_t bytes, Device) {
  const auto* begin = static_cast<const std::byte*>(from);
  return [kept = std::vector<std::byte>(begin, begin + bytes)](void* to) {
    std::ranges::copy(kept, static_cast<std::byte*>(to));
  };
}

double Runtime::timed(Device device, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  synchronize(device);
  const Clock::time_point start = Clock::now();
  work();
  synchronize(device);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Runtime& runtime(DeviceKind kind) {
  Runtime* found = slot(kind).load(std::memory_order_acquire);
  if (found != nullptr) [[likely]]
    return *found;
  const Backend& backend = open_backend(kind);
  check(backend.devices > 0, ErrorKind::device, name_of(kind), "no {} device here: {}", name_of(kind), backend.absent);
  return *slot(kind).load(std::memory_order_acquire);
}

bool set_runtime(DeviceKind kind, Runtime* runtime) {
  slot(kind).store(runtime, std::memory_order_release);
  return true;
}

bool has_memory(const View& v) {
  const auto bytes = static_cast<std::size_t>(v.bytes());
  return v.device.kind == DeviceKind::cpu || runtime(v.device.kind).resident(v.data, bytes, v.device) == bytes;
}
void copy_block(const View& to, const View& from) {
  if (detail::skip_copies != nullptr && detail::skip_copies->skips(from, to)) return;
  const Device by = from.device.kind == DeviceKind::cpu ? to.device : from.device;
  runtime(by.kind).copy(to.data, to.device, from.data, from.device, static_cast<std::size_t>(to.bytes()));
}

}  // namespace trireme

// Kernel<Op>: registers the kernel of one contract on one kind of device, in the file that defines the kernel:
//   const Kernel<kernel::Fill> fill_cpu{DeviceKind::cpu, fill};
// There is no central list. census() lists all registered contracts, and a test fails if a kernel is missing.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/error.h"

namespace trireme {

/// A contract, and the kinds of device that have a kernel for it.
struct CensusRow {
  std::string_view name;                   ///< Op::name
  std::array<bool, device_kinds> present;  ///< per DeviceKind; for cuda once its backend is open
};

namespace detail {
using Slots = std::array<void*, device_kinds>;
/// Adds a contract to the census. Called once per contract, before main or when a plugin is opened. Always true.
bool enlist(std::string_view name, const Slots* slots);
/// Number of kernels that this thread has called. Another thread may read it, to see whether this one makes progress.
inline thread_local constinit std::atomic<std::uint64_t> kernels_asked = 0;
}  // namespace detail

/// Every contract with at least one declared kernel, in the order of names.
std::vector<CensusRow> census();

/// Registers a kernel for the life of the process; declare it at namespace scope. Op is a contract:
/// struct { static constexpr char name[]; using Fn = void(View y, ...); }.
template <class Op>
class Kernel {
 public:
  using Fn = typename Op::Fn;  ///< the contract's signature
  /// Registers fn for this kind of device; replaces an earlier kernel.
  Kernel(DeviceKind kind, Fn* fn) {
    static const bool listed = detail::enlist(Op::name, &slots());
    (void)listed;
    slots()[static_cast<int>(kind)] = reinterpret_cast<void*>(fn);
  }
  /// The kernel for this kind of device. Throws Error if this build has none.
  static Fn* on(DeviceKind kind) {
    void* fn = slots()[static_cast<int>(kind)];
    auto& asked = detail::kernels_asked;
    asked.store(asked.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    check(fn != nullptr, ErrorKind::device, Op::name, "this build has no kernel for {}", name_of(kind));
    return reinterpret_cast<Fn*>(fn);
  }

 private:
  static detail::Slots& slots() {
    static detail::Slots s{};
    return s;
  }
};

}  // namespace trireme

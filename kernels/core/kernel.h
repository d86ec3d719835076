// Kernel<Op>: the slot of one contract on one kind of device. A backend file fills it where the kernel stands:
//   Kernel<Relu> relu_cpu{DeviceKind::cpu, relu};
// There is no central list; census() walks what registered itself, and a test fails on holes.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/error.h"

namespace trireme {

/// One contract and on which kinds of device it has a kernel.
struct CensusRow {
  std::string_view name;
  std::array<bool, device_kinds> present;
};

namespace detail {
using Slots = std::array<void*, device_kinds>;
/// Adds a contract to the census; called once per contract, before main.
bool enlist(std::string_view name, const Slots* slots);
}  // namespace detail

/// Every contract with at least one declared kernel, by name.
std::vector<CensusRow> census();

/// Op is a contract: struct { static constexpr char name[]; using Fn = void(View y, ...); }.
template <class Op>
class Kernel {
 public:
  using Fn = typename Op::Fn;
  Kernel(DeviceKind kind, Fn* fn) {
    static const bool listed = detail::enlist(Op::name, &slots());
    (void)listed;
    slots()[static_cast<int>(kind)] = reinterpret_cast<void*>(fn);
  }
  /// The kernel for kind. Throws Error when this build has none.
  static Fn* on(DeviceKind kind) {
    void* fn = slots()[static_cast<int>(kind)];
    check(fn != nullptr, Op::name, "this build has no kernel for {}", name_of(kind));
    return reinterpret_cast<Fn*>(fn);
  }

 private:
  static detail::Slots& slots() {
    static detail::Slots s{};
    return s;
  }
};

}  // namespace trireme

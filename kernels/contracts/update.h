// Optimizer updates over flat ranges, one pass each. A rule (kernels/formulas/update_rules.h) is written once and
// becomes a kernel on every backend.
#pragma once
#include "kernels/core/view.h"

namespace trireme::kernel {

/// rule(value, grad, state...) for each of n parameters: all views [n], of value's type, f32 or f64. value and state
/// are overwritten. Rule::states buffers of state are given, View{} for the others. Throws Error for another type or
/// number of elements.
template <class Rule>
struct Update {
  static constexpr auto& name = Rule::name;
  using Fn = void(View value, View grad, View state0, View state1, View state2, const Rule& rule);
};

}  // namespace trireme::kernel

// Contract of optimizer updates over flat ranges, each in one pass. A rule (kernels/formulas/update_rules.h) is written
// once, and each backend makes a kernel of it.
#pragma once
#include "kernels/core/view.h"

namespace trireme::kernel {

/// Applies rule(value, grad, state...) to each of n parameters. All views are [n], of value's type, f32 or f64. value
/// and the states are overwritten. The rule has Rule::states states; the others are View{}. Throws Error for another
/// type or number of elements.
template <class Rule>
struct Update {
  static constexpr auto& name = Rule::name;  ///< name of the rule, in errors, profiles and census()
  /// value and the first Rule::states states are read and written.
  using Fn = void(View value, View grad, View state0, View state1, View state2, const Rule& rule);
};

}  // namespace trireme::kernel

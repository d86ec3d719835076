// Optimizer updates by the rules of kernels/formulas/update_rules.h. They run over whole blocks of parameters, in one
// pass.
#include "kernels/core/kernel.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/formulas/update_rules.h"

namespace trireme::gpu {
namespace {

/// Applies a rule to values with one gradient and `states` state tensors each.
template <class T, class Rule, int states>
struct Update {
  Rule rule;
  T* value;
  const T* grad;
  T* state[states + 1];  ///< the last is unused: no array may be empty

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Pack<T, n> v = load<n>(value + i), s[states + 1];
    const Pack<T, n> g = load<n>(grad + i);
    for (int k = 0; k < states; ++k) s[k] = load<n>(state[k] + i);
    for (int j = 0; j < n; ++j) {
      if constexpr (states == 0) rule(v.v[j], g.v[j]);
      if constexpr (states == 1) rule(v.v[j], g.v[j], s[0].v[j]);
      if constexpr (states == 2) rule(v.v[j], g.v[j], s[0].v[j], s[1].v[j]);
      if constexpr (states == 3) rule(v.v[j], g.v[j], s[0].v[j], s[1].v[j], s[2].v[j]);
    }
    for (int k = 0; k < states; ++k) store(state[k] + i, s[k]);
    store(value + i, v);
  }
};

template <class Rule>
void apply(View value, View grad, View state0, View state1, View state2, const Rule& given) {
  update::dispatch(given, value, grad, state0, state1, state2, [&]<class T>(const auto& rule, T) {
    const On on(value.device, Rule::name);
    Update<T, std::remove_cvref_t<decltype(rule)>, Rule::states> update{rule, value.as<T>(), grad.as<const T>(), {}};
    if constexpr (Rule::states > 0) update.state[0] = state0.as<T>();
    if constexpr (Rule::states > 1) update.state[1] = state1.as<T>();
    if constexpr (Rule::states > 2) update.state[2] = state2.as<T>();
    each<pack<T>>(on, value.numel(), aligned(value.data, grad.data, state0.data, state1.data, state2.data), update);
  });
}

const Kernel<kernel::Update<update::Sgd>> sgd{DeviceKind::cuda, apply<update::Sgd>};
const Kernel<kernel::Update<update::Momentum>> momentum{DeviceKind::cuda, apply<update::Momentum>};
const Kernel<kernel::Update<update::Adagrad>> adagrad{DeviceKind::cuda, apply<update::Adagrad>};
const Kernel<kernel::Update<update::Adadelta>> adadelta{DeviceKind::cuda, apply<update::Adadelta>};
const Kernel<kernel::Update<update::RMSprop>> rmsprop{DeviceKind::cuda, apply<update::RMSprop>};
const Kernel<kernel::Update<update::Adam>> adam{DeviceKind::cuda, apply<update::Adam>};
const Kernel<kernel::Update<update::LambDirection>> lamb{DeviceKind::cuda, apply<update::LambDirection>};

}  // namespace
}  // namespace trireme::gpu

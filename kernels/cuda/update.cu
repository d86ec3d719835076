// Optimizer updates by the rules of kernels/formulas/update_rules.h. They run over whole blocks of parameters, in one
// pass.
#include "kernels/core/kernel.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/formulas/update_rules.h"

namespace trireme::gpu {
namespace {

/// A rule over values with one gradient and so many tensors of state each.
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
    }
    for (int k = 0; k < states; ++k) store(state[k] + i, s[k]);
    store(value + i, v);
  }
};

template <class T, class Rule, class... S>
void apply(std::string_view op, const Rule& rule, const View& value, const View& grad, const S&... state) {
  const On on(value.device, op);
  const Update<T, Rule, sizeof...(state)> update{
      rule, value.as<T>(), grad.as<const T>(), {state.template as<T>()..., nullptr}};
  each<pack<T>>(on, value.numel(), aligned(value.data, grad.data, state.data...), update);
}

void sgd(View value, View grad, View momentum, const kernel::SgdUpdate::Args& args) {
  constexpr auto op = kernel::SgdUpdate::name;
  const bool heavy = update::has_momentum(args, momentum);
  update::dispatch(op, value, {&grad, heavy ? &momentum : &grad}, [&](auto t) {
    using T = decltype(t);
    if (heavy)
      apply<T>(op, update::Momentum<T>(args), value, grad, momentum);
    else
      apply<T>(op, update::Sgd<T>(args), value, grad);
  });
}

void adagrad(View value, View grad, View sum, const kernel::AdagradUpdate::Args& args) {
  constexpr auto op = kernel::AdagradUpdate::name;
  update::dispatch(op, value, {&grad, &sum}, [&](auto t) {
    using T = decltype(t);
    apply<T>(op, update::Adagrad<T>(args), value, grad, sum);
  });
}

void adadelta(View value, View grad, View square, View delta, const kernel::AdadeltaUpdate::Args& args) {
  constexpr auto op = kernel::AdadeltaUpdate::name;
  update::dispatch(op, value, {&grad, &square, &delta}, [&](auto t) {
    using T = decltype(t);
    apply<T>(op, update::Adadelta<T>(args), value, grad, square, delta);
  });
}

void adam(View value, View grad, View m, View v, const kernel::AdamUpdate::Args& args) {
  constexpr auto op = kernel::AdamUpdate::name;
  update::dispatch(op, value, {&grad, &m, &v}, [&](auto t) {
    using T = decltype(t);
    apply<T>(op, update::Adam<T>(args), value, grad, m, v);
  });
}

const Kernel<kernel::SgdUpdate> sgd_cuda{DeviceKind::cuda, sgd};
const Kernel<kernel::AdagradUpdate> adagrad_cuda{DeviceKind::cuda, adagrad};
const Kernel<kernel::AdadeltaUpdate> adadelta_cuda{DeviceKind::cuda, adadelta};
const Kernel<kernel::AdamUpdate> adam_cuda{DeviceKind::cuda, adam};

}  // namespace
}  // namespace trireme::gpu

// Optimizer updates by the rules of kernels/formulas/update_rules.h.
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/update_rules.h"

namespace trireme {
namespace {

template <class Rule, class T, class... S>
void apply(Index n, const Rule& rule, T* value, const T* grad, S*... state) {
  sweep(n, 4 * static_cast<Index>(1 + sizeof...(state)), [=](Index begin, Index end) {
#pragma omp simd
    for (Index i = begin; i < end; ++i) rule(value[i], grad[i], state[i]...);
  });
}

void sgd(View value, View grad, View momentum, const kernel::SgdUpdate::Args& args) {
  const bool heavy = update::has_momentum(args, momentum);
  update::dispatch(kernel::SgdUpdate::name, value, {&grad, heavy ? &momentum : &grad}, [&](auto t) {
    using T = decltype(t);
    const Index n = value.numel();
    if (heavy)
      apply(n, update::Momentum<T>(args), value.as<T>(), grad.as<const T>(), momentum.as<T>());
    else
      apply(n, update::Sgd<T>(args), value.as<T>(), grad.as<const T>());
  });
}

void adagrad(View value, View grad, View sum, const kernel::AdagradUpdate::Args& args) {
  update::dispatch(kernel::AdagradUpdate::name, value, {&grad, &sum}, [&](auto t) {
    using T = decltype(t);
    apply(value.numel(), update::Adagrad<T>(args), value.as<T>(), grad.as<const T>(), sum.as<T>());
  });
}

void adadelta(View value, View grad, View square, View delta, const kernel::AdadeltaUpdate::Args& args) {
  update::dispatch(kernel::AdadeltaUpdate::name, value, {&grad, &square, &delta}, [&](auto t) {
    using T = decltype(t);
    apply(value.numel(), update::Adadelta<T>(args), value.as<T>(), grad.as<const T>(), square.as<T>(), delta.as<T>());
  });
}

void adam(View value, View grad, View m, View v, const kernel::AdamUpdate::Args& args) {
  update::dispatch(kernel::AdamUpdate::name, value, {&grad, &m, &v}, [&](auto t) {
    using T = decltype(t);
    apply(value.numel(), update::Adam<T>(args), value.as<T>(), grad.as<const T>(), m.as<T>(), v.as<T>());
  });
}

const Kernel<kernel::SgdUpdate> sgd_cpu{DeviceKind::cpu, sgd};
const Kernel<kernel::AdagradUpdate> adagrad_cpu{DeviceKind::cpu, adagrad};
const Kernel<kernel::AdadeltaUpdate> adadelta_cpu{DeviceKind::cpu, adadelta};
const Kernel<kernel::AdamUpdate> adam_cpu{DeviceKind::cpu, adam};

}  // namespace
}  // namespace trireme

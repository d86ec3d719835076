// Optimizer updates by the rules of kernels/formulas/update_rules.h.
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/update_rules.h"

namespace trireme {
namespace {

template <class Rule>
void apply_rule(View value, View grad, View state0, View state1, View state2, const Rule& given) {
  update::dispatch(given, value, grad, state0, state1, state2, [&]<class T>(const auto& rule, T) {
    T *v = value.as<T>(), *a = state0.as<T>(), *b = state1.as<T>(), *c = state2.as<T>();
    const T* g = grad.as<const T>();
    sweep(value.numel(), 4 * (1 + Rule::states), [=](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        if constexpr (Rule::states == 0) rule(v[i], g[i]);
        if constexpr (Rule::states == 1) rule(v[i], g[i], a[i]);
        if constexpr (Rule::states == 2) rule(v[i], g[i], a[i], b[i]);
        if constexpr (Rule::states == 3) rule(v[i], g[i], a[i], b[i], c[i]);
      }
    });
  });
}

const Kernel<kernel::Update<update::Sgd>> sgd{DeviceKind::cpu, apply_rule<update::Sgd>};
const Kernel<kernel::Update<update::Momentum>> momentum{DeviceKind::cpu, apply_rule<update::Momentum>};
const Kernel<kernel::Update<update::Adagrad>> adagrad{DeviceKind::cpu, apply_rule<update::Adagrad>};
const Kernel<kernel::Update<update::Adadelta>> adadelta{DeviceKind::cpu, apply_rule<update::Adadelta>};
const Kernel<kernel::Update<update::RMSprop>> rmsprop{DeviceKind::cpu, apply_rule<update::RMSprop>};
const Kernel<kernel::Update<update::Adam>> adam{DeviceKind::cpu, apply_rule<update::Adam>};
const Kernel<kernel::Update<update::LambDirection>> lamb{DeviceKind::cpu, apply_rule<update::LambDirection>};

}  // namespace
}  // namespace trireme

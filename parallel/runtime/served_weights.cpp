#include "parallel/runtime/served_weights.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "parallel/plan/action_kind.h"

namespace trireme {

ServedWeights::ServedWeights(const Plan& plan, int program, Optimizer& optimizer)
    : optimizer_(optimizer), program_(plan.programs[static_cast<std::size_t>(program)]) {
  const auto server = std::ranges::find(plan.programs, true, &Program::serves);
  any_ = server != plan.programs.end();
  differ_ = any_ && plan.consistency_along(server->where.front().axis) != Consistency{};
}

void ServedWeights::put_aside() {
  if (!any() || program_.serves()) return;
  const NoGrad off;
  const auto keep = [&](const Tensor& t) { own_.push_back({t, t.clone()}); };
  const ParameterStore& store = optimizer_.parameters();
  for (const Action& a : program_.actions)
    if (differ_ && a.kind == ActionKind::pull && a.field == "weights")
      keep(store.values().rows(a.slice.begin, a.slice.end));
  for (const auto& b : store.buffers()) keep(b.tensor.detach());
}

void ServedWeights::restore() {
  const NoGrad off;
  for (const auto& [in_use, copy] : own_) in_use.copy_from(copy);
  own_.clear();
}

}  // namespace trireme

#include "parallel/runtime/served_weights.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "parallel/plan/action_kind.h"

namespace trireme {

ServedWeights::ServedWeights(const Plan& plan, int program, Mesh& mesh, Optimizer& optimizer)
    : plan_(plan), mesh_(mesh), optimizer_(optimizer), program_(plan.programs[static_cast<std::size_t>(program)]) {
  for (const Program& p : plan.programs)
    if (p.serves()) servers_.push_back(&p);
  if (any()) differ_ = plan.consistency_along(servers_.front()->where.front().axis) != Consistency{};
}

void ServedWeights::gather() {
  if (!any()) return;
  const NoGrad off;
  const ParameterStore& store = optimizer_.parameters();
  std::vector<Work> works;
  for (const Action& a : program_.actions)
    if (differ_ && a.kind == ActionKind::pull && a.field == "weights")
      put_aside(store.values().rows(a.slice.begin, a.slice.end));
  for (const Program* server : servers_)
    for (const Action& a : server->actions) {
      if (a.kind != ActionKind::update) continue;
      const CoordinateRange& at = server->where.front();
      Communicator& comm = mesh_.comm(at.axis);
      works.push_back(comm.broadcast(store.values().rows(a.slice.begin, a.slice.end), at.begin));
      for (auto& [name, state] : optimizer_.state())
        works.push_back(comm.broadcast(state.rows(a.slice.begin, a.slice.end), at.begin));
    }
  const auto worker = std::ranges::find(plan_.programs, false, &Program::serves);
  const CoordinateRange workers = plan_.range(*worker, servers_.front()->where.front().axis);
  for (const auto& b : store.buffers()) {
    if (!program_.serves()) put_aside(b.tensor.detach());
    works.push_back(mesh_.comm(workers.axis).broadcast(b.tensor, workers.begin));
  }
  for (Work& work : works) work.wait();
}

void ServedWeights::restore() {
  const NoGrad off;
  for (const auto& [in_use, copy] : own_) in_use.copy_from(copy);
  own_.clear();
}

}  // namespace trireme

#include "parallel/plan/planned_traffic.h"

#include "parallel/plan/action_kind.h"

namespace trireme {

std::vector<PartComm> comms_of(const std::vector<PartInfo>& parts, const Action& a) {
  const auto during = [&](ActionKind half) {
    if (a.kind == ActionKind::backward)
      return half == ActionKind::backward_input || half == ActionKind::backward_weight;
    return half == a.kind;
  };
  std::vector<PartComm> comms;
  if (a.part < 0 && a.kind != ActionKind::loss) return comms;
  const PartInfo& part = a.kind == ActionKind::loss ? parts.back() : parts[static_cast<std::size_t>(a.part)];
  std::ranges::copy_if(part.comms, std::back_inserter(comms), during, &PartComm::during);
  return comms;
}

namespace {

const std::vector<PartInfo>& parts_of(const Plan& plan, const Action& a, const TrafficOptions& o) {
  return o.parts.empty() ? plan.parts : o.parts[static_cast<std::size_t>(a.microbatch)];
}

}  // namespace

TrafficCount traffic_of(const Plan& plan, const Action& a, const TrafficOptions& o) {
  const Index ranks = plan.size(a.peer.axis);
  if (ranks == 1) return {};
  const auto block = [&](DType type) { return a.slice.size() * static_cast<Index>(size_of(type)); };
  if (a.kind == ActionKind::send) {
    const PartInfo& part = parts_of(plan, a, o)[static_cast<std::size_t>(a.part)];
    return {part.outputs, part.cost.output};
  }
  if (a.kind == ActionKind::all_reduce || a.kind == ActionKind::broadcast) return {1, block(o.parameters)};
  if (a.kind == ActionKind::average) return {1, block(o.buffers)};
  if (a.kind == ActionKind::all_gather && a.peer.root >= 0) return {1, block(o.parameters)};
  if (a.kind == ActionKind::reduce_scatter || a.kind == ActionKind::all_gather)  // and one of the remainder
    return {Index{a.slice.size() >= ranks} + Index{a.slice.size() % ranks > 0}, block(o.parameters)};
  if (a.kind != ActionKind::agree) return {};
  if (a.field == "loss") return {1, static_cast<Index>(size_of(a.peer.root >= 0 ? o.parameters : o.loss))};
  return {1, static_cast<Index>(size_of(a.field == "finite" ? DType::i64 : DType::f64))};
}

Traffic planned_traffic(const Plan& plan, std::size_t role, const TrafficOptions& o) {
  Traffic all;
  const auto add = [&](const std::string& axis, const TrafficCount& count) {
    if (count.calls > 0) all[axis] += count;
  };
  const TrafficCount look{plan.size(o.divided) > 1, static_cast<Index>(size_of(DType::f64))};
  if (o.norm) add(o.divided, look);
  for (const Action& a : plan.roles.at(role).actions) {
    if (o.step % a.every != 0) continue;
    if (a.kind == ActionKind::agree && a.field == "finite") add(o.divided, look);
    add(a.peer.axis, traffic_of(plan, a, o));
    for (const PartComm& c : comms_of(parts_of(plan, a, o), a)) add(c.axis, {c.calls, c.bytes});
  }
  return all;
}

}  // namespace trireme

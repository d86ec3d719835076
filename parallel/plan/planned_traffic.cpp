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
  if (a.kind == ActionKind::send) {
    const PartInfo& part = parts_of(plan, a, o)[static_cast<std::size_t>(a.part)];
    return {part.outputs, part.cost.output};
  }
  DType type = a.kind == ActionKind::average ? o.buffers : o.parameters;
  if (a.field == "loss" && a.peer.root < 0) type = o.loss;
  TrafficCount all;
  for (const PlannedCall& call : calls_of(a, static_cast<int>(ranks), size_of(type))) all += {1, call.bytes};
  return all;
}

Traffic planned_traffic(const Plan& plan, std::size_t program, const TrafficOptions& o) {
  Traffic all;
  const auto add = [&](const std::string& axis, const TrafficCount& count) {
    if (count.calls > 0) all[axis] += count;
  };
  const TrafficCount look{plan.size(o.divided) > 1, static_cast<Index>(size_of(DType::f64))};
  if (o.norm && o.phase < 0) add(o.divided, look);
  for (const Action& a : plan.programs.at(program).actions) {
    if (o.phase >= 0 ? a.phase != o.phase : !plan.programs[program].trigger(a).runs_at(o.step)) continue;
    if (a.kind == ActionKind::agree && a.field == "finite") add(o.divided, look);
    add(a.peer.axis, traffic_of(plan, a, o));
    for (const PartComm& c : comms_of(parts_of(plan, a, o), a)) add(c.axis, {c.calls, c.bytes});
  }
  return all;
}

}  // namespace trireme

#include "parallel/model/planned_traffic.h"

#include <utility>

#include "parallel/async/channel_plan.h"
#include "parallel/comm/communicator.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/shards.h"
#include "parallel/strategies/on_call.h"

namespace trireme {

std::vector<PlannedCall> comms_of(const std::vector<PartInfo>& parts, const Action& a) {
  std::vector<PlannedCall> comms;
  if (a.part < 0 && a.kind != ActionKind::loss) return comms;
  const PartInfo& part = a.kind == ActionKind::loss ? parts.back() : parts[static_cast<std::size_t>(a.part)];
  const auto add = [&](ActionKind pass) {
    if (const auto at = part.comms.find(pass); at != part.comms.end())
      comms.insert(comms.end(), at->second.begin(), at->second.end());
  };
  if (a.kind != ActionKind::backward) {
    add(a.kind);
  } else {
    add(ActionKind::backward_input);
    add(ActionKind::backward_weight);
  }
  return comms;
}

namespace {

const std::vector<PartInfo>& parts_of(const Plan& plan, const Action& a, const TrafficOptions& o) {
  const int at = a.microbatch.index + a.microbatch.steps_ago * plan.microbatches;
  return o.parts.empty() ? plan.parts : o.parts[static_cast<std::size_t>(at)];
}

void add_comms(Traffic& to, const Plan& plan, const Action& a, const TrafficOptions& o) {
  for (const PlannedCall& c : comms_of(parts_of(plan, a, o), a))
    if (c.calls > 0) to[c.axis] += {c.calls, c.bytes};
}

/// One message to each receiver, with a header if the receiver serves. Ranks that start a phase send once per step
/// each, so each of them gets one answer. If messages may be late, this is the step with the largest possible number of
/// late messages.
TrafficCount channel_traffic(const Plan& plan, const Program& program, const Action& a, const TrafficOptions& o) {
  const int first = plan.range(program, a.peer.axis).begin;
  const Trigger& t = program.trigger(a);
  std::vector<int> started = senders_to(plan, t.channel, first);
  started.resize(static_cast<std::size_t>(messages_in_step(program, t, static_cast<int>(started.size()))));
  const Index payload = is_number(a)                        ? size_of(DType::f64)
                        : a.payload == OperandKind::senders ? t.count * size_of(DType::f64)
                                                            : a.slice.size() * size_of(o.parameters);
  TrafficCount all;
  for (const int to : receivers_of(plan, a.peer, first, started)) {
    all += {1, payload};
    if (serves_at(plan, a.peer.axis, to)) all += {1, static_cast<Index>(sizeof(MessageHeader))};
  }
  return all;
}

}  // namespace

TrafficCount traffic_of(const Plan& plan, const Program& program, const Action& a, const TrafficOptions& o) {
  const Index ranks = plan.size(program, a.peer);
  if (sends_to_channel(a)) return channel_traffic(plan, program, a, o);
  if (ranks == 1) return {};
  if (a.kind == ActionKind::send) {
    const PartInfo& part = parts_of(plan, a, o)[static_cast<std::size_t>(a.part)];
    return {part.outputs, part.cost.output};
  }
  DType type = averages_statistics(a) ? o.buffers : o.parameters;
  if (a.payload == OperandKind::loss && a.peer.root < 0) type = o.loss;
  TrafficCount all;
  for (const PlannedCall& call : calls_of(plan, a, static_cast<int>(ranks), size_of(type), o.step))
    all += {1, call.bytes};
  return all;
}

Traffic planned_traffic(const Plan& plan, std::size_t program, const std::string& phase, const TrafficOptions& o) {
  Traffic all;
  for (const Action& a : actions_on_call(plan.programs.at(program), phase)) {
    if (o.step - a.microbatch.steps_ago < o.first) continue;
    add_comms(all, plan, a, o);
    const int ranks = plan.size(a.peer.axis);
    if (ranks == 1) continue;
    if (is_message(a)) {
      const TrafficCount count = traffic_of(plan, plan.programs.at(program), a, o);
      if (count.calls > 0) all[a.peer.axis] += count;
      continue;
    }
    Index times = a.payload == OperandKind::state ? o.states : 1, element = size_of(o.parameters);
    if (a.payload == OperandKind::lengths) element = size_of(DType::i64);
    if (a.payload == OperandKind::texts) {
      all[a.peer.axis] += {1, o.text};
      continue;
    }
    if (a.payload == OperandKind::statistics) {  // a message for each tensor
      times = 0;
      element = size_of(o.buffers);
      for (const PartInfo& part : plan.parts) times += a.slice.overlaps(part.buffers) ? part.buffer_tensors : 0;
      all[a.peer.axis] += {times, a.slice.size() * element};
      continue;
    }
    for (const PlannedCall& call : calls_of(plan, a, ranks, element))
      if (times > 0) all[a.peer.axis] += {times, times * call.bytes};
  }
  return all;
}

Traffic planned_traffic(const Plan& plan, std::size_t program, const TrafficOptions& o) {
  Traffic all;
  const auto add = [&](const std::string& axis, const TrafficCount& count) {
    if (count.calls > 0) all[axis] += count;
  };
  const auto shards = names_in(shard_axis(plan.programs.at(program)));  // agreements on norm and ratios sum over them
  const auto add_look = [&](Index numbers) {
    for (const std::string& axes : o.divided)
      for (const std::string& axis : names_in(axes))
        if (std::ranges::find(shards, axis) == shards.end())
          add(axis, {plan.size(axis) > 1, numbers * size_of(DType::f64)});
  };
  if (o.norm && o.phase < 0) add_look(1);
  bool sums_squares = false;  // by the first agreement on ratios
  for (const Action& a : plan.programs.at(program).actions) {
    const Trigger& trigger = plan.programs[program].trigger(a);
    if (o.phase >= 0 ? a.phase != o.phase : trigger.channel.empty() && !trigger.runs_at(o.step)) continue;
    if (o.step - a.microbatch.steps_ago < o.first) continue;
    if (plan.tickets > 0 && trigger.channel.empty() && !runs_with_ticket(a, false)) continue;
    if (looks_at_gradients(a)) add_look(1);
    if (a.payload == OperandKind::ratios && !std::exchange(sums_squares, true)) add_look(a.slice.size());
    add(a.peer.axis, traffic_of(plan, plan.programs[program], a, o));
    add_comms(all, plan, a, o);
  }
  return all;
}

}  // namespace trireme

// Plans with parameter servers, for tests: workers push gradients and pull weights, servers sum and update.
#pragma once
#include <optional>

#include "parallel/strategies/strategy.h"

namespace trireme::test {

struct ServerOptions {
  int servers = 1;                             ///< the last ranks along the axis; each has an even share of the weights
  int count = 0;                               ///< gradients of one update; 0: one of each worker
  std::optional<std::int64_t> staleness = {};  ///< steps that a worker may be ahead of the slowest; none: any number
  std::string axis = "data";
};

inline Action on_channel(ActionKind kind, const std::string& field, const std::string& channel, const Slice& slice,
                         const ServerOptions& o, int root, std::vector<ActionId> after = {}) {
  Action a{.kind = kind, .stream = Stream::comm, .slice = slice, .after = std::move(after), .field = field};
  a.peer.axis = o.axis, a.peer.root = root, a.peer.channel = channel;
  return a;
}

inline Program server_program(const Slice& slice, int at, const ServerOptions& o) {
  Program server{.name = "server " + std::to_string(at)};
  server.where = {{o.axis, at, at + 1}};
  const auto add = [&](int phase, Action a) {
    a.phase = phase, a.stream = Stream::compute;
    server.actions.push_back(std::move(a));
  };
  const Action take = on_channel(ActionKind::take, "gradients", "", slice, o, -1);
  const Action answer = on_channel(ActionKind::push, "weights", "weights", slice, o, -1);
  Action update{.kind = ActionKind::update, .slice = slice};
  server.phases = {{"update", {.channel = "gradients", .count = o.count}}};
  add(0, take), add(0, update);
  if (o.staleness)
    server.phases.push_back({"answer", {.channel = "ready", .guard = {"gradients", *o.staleness}}}), add(1, answer);
  else
    add(0, answer);
  const int report = static_cast<int>(server.phases.size());
  server.phases.push_back({"report", {.channel = "loss", .count = 0}, true});
  add(report, on_channel(ActionKind::take, "loss", "", {}, o, -1));
  return server;
}

/// A serial plan with servers.
inline Plan with_servers(Plan plan, const ServerOptions& o) {
  const int workers = plan.size(o.axis) - o.servers;
  check(plan.programs.size() == 1 && workers > 0, "servers", "{} servers of {} ranks", o.servers, plan.size(o.axis));
  Program worker = plan.programs[0];
  check(worker.actions.back().kind == ActionKind::update, "servers", "the plan is not serial");
  worker.actions.pop_back();
  worker.name = "worker", worker.where = {{o.axis, 0, workers}};
  plan.programs.clear();
  const auto last = static_cast<ActionId>(worker.actions.size()) - 1;
  std::vector<Action> pulls;
  for (int s = 0; s < o.servers; ++s) {
    const Slice slice{plan.parameters * s / o.servers, plan.parameters * (s + 1) / o.servers};
    const int root = workers + s;
    worker.actions.push_back(on_channel(ActionKind::push, "gradients", "gradients", slice, o, root, {last}));
    if (o.staleness) worker.actions.push_back(on_channel(ActionKind::push, "loss", "ready", {}, o, root, {last}));
    worker.actions.push_back(on_channel(ActionKind::push, "loss", "loss", {}, o, root, {last}));
    pulls.push_back(on_channel(ActionKind::pull, "weights", "weights", slice, o, root, {last}));
    plan.programs.push_back(server_program(slice, root, o));
  }
  worker.actions.insert(worker.actions.end(), pulls.begin(), pulls.end());
  plan.programs.insert(plan.programs.begin(), std::move(worker));
  if (o.count > 0) plan.consistency[o.axis] = {Consistency::Kind::stale, o.staleness.value_or(1000000)};
  return plan;
}

inline Strategy servers(const ServerOptions& o = {}) {
  Strategy s("servers", o.count == 0 ? Claim::exact : Claim::statistical,
             [o](Plan plan) { return with_servers(std::move(plan), o); });
  s.norm_scope = NormScope::local;
  return s;
}

}  // namespace trireme::test

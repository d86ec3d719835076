// Parameter servers: the last ranks of an axis each keep a share of the weights with its optimizer state. The other
// ranks are workers, which send gradients and receive weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ranges>

#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/partition.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

std::vector<Slice> shares_of(const Plan& plan, const ParameterServerOptions& o) {
  if (o.shard == "layer") return cut_by_size(plan.parts, plan.parameters, o.servers);
  std::vector<Slice> all;
  for (int s = 0; s < o.servers; ++s)
    all.push_back({plan.parameters * s / o.servers, plan.parameters * (s + 1) / o.servers});
  return all;
}

// With groups: channels of a server's weights to the group servers, which forward them to their workers.
std::string answers_of(int server) { return fmt::format("answers {}", server); }
std::string share_of(int server) { return fmt::format("share {}", server); }

Action on_channel(const ParameterServerOptions& o, ActionKind kind, OperandKind payload, const std::string& channel,
                  const Slice& slice, int root = -1) {
  Action a{.kind = kind, .slice = slice, .payload = payload};
  a.peer.axis = o.axis;
  a.peer.root = root;
  a.peer.channel = channel;
  return a;
}

/// The program of group servers, between a group's workers and the servers: sums gradients for the servers, and
/// forwards weights to the workers.
Program servers_of_groups(const ParameterServerOptions& o, int workers, const std::vector<Slice>& shares) {
  const int first = workers + o.groups;  // of the servers
  Program group{.name = "servers of groups"};
  group.where = {{o.axis, workers, first}};
  group.phases = {{"sum", {.channel = "gradients", .count = 0}}};
  const auto add = [&](int phase, Action a) {
    a.phase = phase;
    group.actions.push_back(std::move(a));
  };
  add(0,
      on_channel(o, ActionKind::recv, OperandKind::gradients, "gradients", {shares.front().begin, shares.back().end}));
  for (int s = 0; s < o.servers; ++s) {
    add(0, on_channel(o, ActionKind::send, OperandKind::gradients, "sums", shares[s], first + s));
    if (o.mode == "ssp") add(0, on_channel(o, ActionKind::send, OperandKind::loss, "ready", {}, first + s));
    const int answer = add_phase(group, fmt::format("answer of {}", first + s), {.channel = answers_of(s), .count = 0});
    add(answer, on_channel(o, ActionKind::recv, OperandKind::weights, answers_of(s), shares[s]));
    Action deal = on_channel(o, ActionKind::send, OperandKind::weights, share_of(s), shares[s]);
    deal.peer.senders_of = "gradients";
    add(answer, std::move(deal));
  }
  const int report = add_phase(group, "report", {.channel = "loss", .count = 0});
  add(report, on_channel(o, ActionKind::recv, OperandKind::loss, "loss", {}));
  for (int s = 0; s < o.servers; ++s)
    add(report, on_channel(o, ActionKind::send, OperandKind::loss, "losses", {}, first + s));
  group.phases.back().last = true;
  return group;
}

/// The program of server `index`, to which `senders` ranks send: workers or group servers.
Program server_at(const Plan& plan, const ParameterServerOptions& o, int at, int index, int workers, int senders,
                  const Slice& slice) {
  const bool tickets = plan.tickets > 0;
  Program server{.name = fmt::format("server {}", at)};
  server.where = {{o.axis, at, at + 1}};
  const bool at_once = o.mode != "sync";
  const int count = at_once ? 1 : o.backup > 0 ? senders - o.backup : 0;
  const char *gradients = o.groups > 0 ? "sums" : "gradients", *losses = o.groups > 0 ? "losses" : "loss";
  Trigger come{.channel = gradients, .count = count};
  // Gradients of fast workers wait until the slowest workers have their answers, so under ssp(0) all workers get the
  // same weights.
  if (o.mode == "ssp") {
    come.guard = "ready";
    come.staleness = o.staleness + 1;
  }
  if (tickets && o.backup > 0 && index > 0)
    come.chosen = "chosen";  // the first server chooses the gradients for all servers
  server.phases = {{"update", come}};
  const auto add = [&](int phase, Action a) {
    a.phase = phase;
    server.actions.push_back(std::move(a));
  };
  const auto answer = [&](int phase) {
    add(phase,
        on_channel(o, ActionKind::send, OperandKind::weights, o.groups > 0 ? answers_of(index) : "weights", slice));
    if (o.backup > 0) add(phase, on_channel(o, ActionKind::send, OperandKind::clock, "clock", {}));
    if (tickets && index == 0) add(phase, on_channel(o, ActionKind::send, OperandKind::ticket, "ticket", {}));
  };
  Action take = on_channel(o, ActionKind::recv, OperandKind::gradients, gradients, slice);
  if (count > 0) take.arguments = {{"scale", 1.0 / (at_once ? workers : count)}};
  add(0, take);
  add(0, {.kind = ActionKind::update, .slice = slice});
  if (tickets && o.backup > 0 && index == 0)
    for (int other = at + 1; other < at + o.servers; ++other)
      add(0, on_channel(o, ActionKind::send, OperandKind::senders, "chosen", {}, other));
  answer(o.mode == "ssp"
             ? add_phase(server, "answer", {.channel = "ready", .guard = gradients, .staleness = o.staleness})
             : 0);
  if (o.backup > 0) answer(add_phase(server, "late", {.channel = gradients, .late = true}));
  const int report = add_phase(server, "report", {.channel = losses, .count = 0});
  add(report, on_channel(o, ActionKind::recv, OperandKind::loss, losses, {}));
  if (tickets) add(report, on_channel(o, ActionKind::send, OperandKind::weights, "weights", slice));
  server.phases.back().last = true;
  return server;
}

/// Workers take tickets from the first server's queue: one for each gradient of an update, or as many per batch as
/// there are workers. There are no tickets for workers of several ranks, which would get tickets of several queues, and
/// none with groups, since group servers do not forward tickets.
int tickets_of(const Plan& plan, const ParameterServerOptions& o, int workers) {
  const bool alone = std::ranges::all_of(plan.axes, [&](const Axis& a) { return a.size == 1 || a.name == o.axis; });
  if (!plan.wants_tickets || !alone || o.groups > 0 || (o.mode == "sync" && o.backup == 0)) return 0;
  return workers - o.backup;
}

Plan rewrite_servers(Plan plan, const ParameterServerOptions& o) {
  const int workers = plan.size(o.axis) - o.servers - o.groups;
  check(
      workers > 0, "parameter_server",
      "servers={}{} leave none of the {} ranks along '{}' to train: use more ranks or fewer servers", o.servers,
      [&] { return o.groups > 0 ? fmt::format(" and groups={}", o.groups) : ""; }, plan.size(o.axis), o.axis);
  check(
      o.groups == 0 || workers % o.groups == 0, "parameter_server",
      "groups={}, but {} workers (of {} ranks along '{}') cannot be divided into that many equal groups: use a divisor "
      "of {}",
      o.groups, workers, plan.size(o.axis), o.axis, workers);
  check(o.backup < workers, "parameter_server",
        "backup={}, but of {} workers at least 1 must give a gradient: use backup={} or less", o.backup, workers,
        workers - 1);
  check(plan.programs.size() == 1, "parameter_server",
        "all workers run one program, but the plan has {} ({}): use parameter_server once, and not with pipeline",
        plan.programs.size(), fmt::join(plan.programs | std::views::transform(&Program::name), ", "));
  Program worker = plan.programs[0];
  for (const Action& a : worker.actions)
    check(!is_reduction(a), "strategy",
          "gradients are summed over mesh axis '{}' already, but servers sum them, too: use either parameter_server or "
          "the strategy that sums over '{}'",
          a.peer.axis, a.peer.axis);
  check_whole_along(plan, o.axis, "parameter_server");
  check(plan.consistency.empty() && worker.actions.back().kind == ActionKind::update, "parameter_server",
        "servers update the weights, but the plan's ranks train separately or write weights after their update: use "
        "parameter_server without the strategy that does so");
  worker.actions.pop_back();  // the update
  worker.name = "worker";
  worker.where = {{o.axis, 0, workers}};
  const auto last = static_cast<ActionId>(worker.actions.size()) - 1;
  const auto add = [&](Action a) {
    a.stream = Stream::comm;
    a.after = {last};
    worker.actions.push_back(std::move(a));
  };
  plan.tickets = tickets_of(plan, o, workers);
  plan.tickets_ahead = plan.tickets > 0 && o.backup == 0 ? 2 : 1;
  const bool tickets = plan.tickets > 0;
  const std::vector<Slice> shares = shares_of(plan, o);
  if (o.groups > 0) {
    const auto of_group = [&](ActionKind kind, OperandKind payload, const std::string& channel, const Slice& slice) {
      Action a = on_channel(o, kind, payload, channel, slice, workers);
      a.peer.per_root = workers / o.groups;
      add(std::move(a));
    };
    of_group(ActionKind::send, OperandKind::gradients, "gradients", {0, plan.parameters});
    std::vector<ActionId> received;
    for (int s = 0; s < o.servers; ++s) {
      of_group(ActionKind::recv, OperandKind::weights, share_of(s), shares[s]);
      received.push_back(static_cast<ActionId>(worker.actions.size()) - 1);
    }
    of_group(ActionKind::send, OperandKind::loss, "loss", {});  // ends the server's step, in which it has sent weights
    worker.actions.back().after = received;
  }
  const int direct = o.groups > 0 ? 0 : o.servers;  // servers with which workers exchange messages directly
  for (int s = 0; s < direct; ++s) {
    add(on_channel(o, ActionKind::send, OperandKind::gradients, "gradients", shares[s], workers + s));
    if (o.mode == "ssp")
      add(on_channel(o, ActionKind::send, tickets ? OperandKind::ticket : OperandKind::loss, "ready", {}, workers + s));
    add(on_channel(o, ActionKind::send, OperandKind::loss, "loss", {}, workers + s));
  }
  for (int s = 0; s < direct; ++s) {
    add(on_channel(o, ActionKind::recv, OperandKind::weights, "weights", shares[s], workers + s));
    if (o.backup > 0) add(on_channel(o, ActionKind::recv, OperandKind::clock, "clock", {}, workers + s));
  }
  if (tickets) add(on_channel(o, ActionKind::recv, OperandKind::ticket, "ticket", {}, workers));
  plan.programs = {worker};
  const int senders = o.groups > 0 ? o.groups : workers;
  if (o.groups > 0) plan.programs.push_back(servers_of_groups(o, workers, shares));
  for (int s = 0; s < o.servers; ++s)
    plan.programs.push_back(server_at(plan, o, workers + o.groups + s, s, workers, senders, shares[s]));
  if (o.mode != "sync" || o.backup > 0)
    plan.consistency[o.axis] = {Consistency::Kind::stale, o.mode == "ssp" ? o.staleness : Consistency::unbounded};
  return plan;
}

}  // namespace

Strategy parameter_server(ParameterServerOptions o) {
  const bool ssp = o.mode == "ssp", sync = o.mode == "sync";
  check(ssp || sync || o.mode == "async", "parameter_server",
        "mode={}, but there is no such mode: use sync, async or ssp", o.mode);
  check(o.shard == "bytes" || o.shard == "layer", "parameter_server",
        "shard={}, but there is no such division of weights: use bytes or layer", o.shard);
  check(o.servers > 0 && o.backup >= 0, "parameter_server",
        "servers={}, backup={}, but there is at least 1 server and backup is at least 0: use larger numbers", o.servers,
        o.backup);
  check(ssp || o.staleness < 0, "parameter_server",
        "staleness={} needs mode=ssp, but mode is {}: use mode=ssp, or leave staleness out", o.staleness, o.mode);
  check(!ssp || o.staleness >= 0, "parameter_server",
        "mode=ssp has staleness={}, but a worker may be at least 0 steps ahead of the slowest: add staleness=0 or more",
        o.staleness);
  check(o.groups >= 0 && (o.groups == 0 || o.backup == 0), "parameter_server",
        "groups={}, backup={}, but groups is at least 0, and groups have no backup workers: use one of the two",
        o.groups, o.backup);
  check(sync || o.backup == 0, "parameter_server",
        "backup={} needs mode=sync, because with mode={} no worker waits for the slowest: leave backup out", o.backup,
        o.mode);
  const bool exact = sync && o.backup == 0;
  Strategy s(
      "parameter_server",
      exact  ? Claim::exact
      : sync ? Claim::statistical
             : Claim::delayed,
      [o](Plan plan) { return rewrite_servers(std::move(plan), o); },
      fmt::format("servers={}, mode={}, staleness={}, shard={}, backup={}, groups={}, axis={}", o.servers, o.mode,
                  o.staleness, o.shard, o.backup, o.groups, o.axis),
      StrategyOrder::servers);
  if (!exact) s.norm_scope = NormScope::local;
  return s;
}

}  // namespace trireme

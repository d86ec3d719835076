#include "parallel/analysis/draw_meetings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/peers.h"

namespace trireme {
namespace {

constexpr int most_ranks = 12, most_rounds = 4;
constexpr std::int64_t shown_steps = 48;

/// "3", "0 to 4"
std::string coordinates(const CoordinateRange& r) {
  return r.end - r.begin == 1 ? std::to_string(r.begin) : fmt::format("{} to {}", r.begin, r.end - 1);
}

/// The messages of a step: "0>1 1>2", or "0-1 2-3" if both ranks send.
std::string round_text(const Peer& peer, int ranks, std::int64_t step) {
  std::vector<std::string> edges;
  const auto receivers = [&](int rank) {
    std::vector<int> all;
    for (const RankPair& pair : peers_at(peer, rank, ranks, step))
      if (pair.to != rank) all.push_back(pair.to);
    return all;
  };
  for (int rank = 0; rank < std::min(ranks, most_ranks); ++rank)
    for (const int to : receivers(rank)) {
      const auto back = receivers(to);
      const bool both = std::ranges::find(back, rank) != back.end();
      if (!both || rank < to) edges.push_back(fmt::format("{}{}{}", rank, both ? '-' : '>', to));
    }
  return fmt::format("{}{}", fmt::join(edges, " "), ranks > most_ranks ? " ..." : "");
}

/// The first rounds of an action in which ranks exchange data along an axis.
std::string graph_text(const Plan& plan, const Program& program, const Action& a) {
  const int ranks = plan.size(program, a.peer.axis);
  std::string text = fmt::format("{} over {}", to_string(a.kind), a.peer.axis);
  if (a.peer.pairs.empty()) return fmt::format("{}: all {} ranks together\n", text, ranks);
  text += ", " + a.peer.pairs;
  for (const auto& [name, value] : a.arguments) text += fmt::format(", {} {:.4g}", name, value);
  text += '\n';
  const std::string& rule = a.peer.pairs;
  const bool drawn = rule == "matching" || rule == "random_target" || rule.starts_with("bipartite");  // drawn at
                                                                                                      // random, without
                                                                                                      // a period
  const std::string first = round_text(a.peer, ranks, 0);
  int rounds = drawn ? most_rounds : 1;
  while (rounds < most_rounds && round_text(a.peer, ranks, rounds) != first) ++rounds;
  if (rounds == 1 && round_text(a.peer, ranks, 1) == first) return text + fmt::format("  every time  {}\n", first);
  for (int step = 0; step < rounds; ++step)
    text += fmt::format("  step {:<5}  {}\n", step, round_text(a.peer, ranks, step));
  return text + (rounds < most_rounds ? "  and again\n" : "  and so on\n");
}

/// The channels, with numbers of elements, on which a rank's program sends to, or receives from, a server.
std::string channels_text(const Plan& plan, const Program& program, ActionKind kind, const CoordinateRange& server) {
  std::vector<std::string> all;
  const auto goes_there = [&](const Action& a) {
    const CoordinateRange along = plan.range(program, server.axis);
    const int first = root_of(a.peer, along.begin), last = root_of(a.peer, along.end - 1);
    return first < server.end && server.begin <= last;
  };
  for (const Action& a : program.actions)
    if (is_channel(a) && a.kind == kind && goes_there(a))
      all.push_back(a.slice.size() > 0 ? fmt::format("{} [{}, {})", a.peer.channel, a.slice.begin, a.slice.end)
                                       : a.peer.channel);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string server_text(const Plan& plan, const Program& server) {
  const std::string axis = server.where.empty() ? plan.stage_axis : server.where[0].axis;
  const CoordinateRange at = plan.range(server, axis);
  std::string text = fmt::format("{} ({} {})\n", server.name, axis, coordinates(at));
  for (const Program& other : plan.programs) {
    const std::string sent = channels_text(plan, other, ActionKind::send, at),
                      received = channels_text(plan, other, ActionKind::recv, at);
    const std::string who = fmt::format("{} ({} {})", other.name, axis, coordinates(plan.range(other, axis)));
    if (!sent.empty()) text += fmt::format("  <- {} from {}\n", sent, who);
    if (!received.empty()) text += fmt::format("  -> {} to {}\n", received, who);
  }
  for (std::size_t p = 0; p < server.phases.size(); ++p) {
    if (server.phases[p].trigger.on_call) continue;
    std::vector<std::string> does;
    for (const Action& a : server.actions)
      if (a.phase == static_cast<int>(p))
        does.push_back(to_string(a.kind) + (a.payload == OperandKind::none ? "" : " " + payload_of(a)));
    text += fmt::format("  {}, {}: {}\n", server.phases[p].name, to_string(server.phases[p].trigger),
                        fmt::join(does, ", "));
  }
  return text;
}

/// The steps in which phases run that do not run in every step.
std::string periods_text(const Plan& plan) {
  std::vector<ProgramPhase> rare;
  std::size_t width = 0;
  for (const Program& program : plan.programs)
    for (const ProgramPhase& phase : program.phases)
      if (phase.trigger != Trigger{} && phase.trigger.by_step() && std::ranges::find(rare, phase) == rare.end()) {
        rare.push_back(phase);
        width = std::max(width, phase.name.size());
      }
  if (rare.empty()) return "";
  std::string ruler(static_cast<std::size_t>(shown_steps) - 6, ' '), text;
  for (std::int64_t step = 0; step < shown_steps; step += 8) {
    const std::string number = std::to_string(step);
    ruler.replace(static_cast<std::size_t>(step), number.size(), number);
  }
  text = fmt::format("{:<{}}  {}\n", "steps", width, ruler);
  for (const auto& [name, trigger, last, actions] : rare) {
    std::string runs;
    for (std::int64_t step = 0; step < shown_steps; ++step) runs += trigger.runs_at(step) ? 'x' : '.';
    text += fmt::format("{:<{}}  {}  {}\n", name, width, runs, to_string(trigger));
  }
  return text;
}

}  // namespace

std::string meetings_text(const Plan& plan) {
  std::string text;
  for (const auto& [axis, promised] : plan.consistency)
    if (plan.size(axis) > 1) text += fmt::format("weights along {}: {}\n", axis, to_string(promised));
  for (const Program& program : plan.programs)
    if (program.serves()) text += server_text(plan, program);
  std::vector<std::string> graphs;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      const bool meets = is_custom(a) && a.kind->calls && plan.size(program, a.peer.axis) > 1;
      if (!meets) continue;
      const std::string graph = graph_text(plan, program, a);
      if (std::ranges::find(graphs, graph) == graphs.end()) {
        graphs.push_back(graph);
        text += graph;
      }
    }
  return text.empty() ? text : "\n" + text + periods_text(plan);
}

}  // namespace trireme

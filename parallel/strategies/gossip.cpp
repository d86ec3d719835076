// Gossip: each rank trains on its own rows, and mixes its weights with those of a few others after each step
// (Lian et al., D-PSGD, arXiv 1705.09056, in the form that updates and then mixes).
#include <algorithm>
#include <cmath>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/plan/action_row.h"
#include "parallel/plan/codec.h"
#include "parallel/strategies/mixing.h"

namespace trireme {
namespace {

Access weights_of(const Plan&, const Program&, const Liveness&, const Action& a) {
  return {{}, {{.kind = OperandKind::weights, .slice = a.slice}}};
}

/// What a rank has counts `keep` times, what each of the others sends `take` times.
const ActionRow mix_graph{.name = "mix",
                          .letter = 'x',
                          .is_collective = true,
                          .access = weights_of,
                          .calls =
                              [](const Action& a, int ranks, Index element) {
                                const std::size_t sends = peers_at(a.peer, 0, ranks, 0).size();
                                return std::vector(sends, PlannedCall{CallKind::send, a.slice.size() * element});
                              },
                          .fault = [](const Plan& plan, const Program& program, ActionId id) -> std::string {
                            const Action& a = program.actions[static_cast<std::size_t>(id)];
                            const int ranks = plan.size(program, a.peer.axis);
                            const auto others = static_cast<double>(peers_at(a.peer, 0, ranks, 0).size());
                            const double all =
                                find_argument(a, "keep").value_or(0) + others * find_argument(a, "take").value_or(0);
                            if (std::abs(all - 1) < 1e-9) return "";
                            return fmt::format(
                                "its weights add up to {} over {} ranks, not to 1: mixing must be doubly "
                                "stochastic",
                                all, others + 1);
                          },
                          .start =
                              [](ActionContext& now) {
                                if (!now.comm) return Work();
                                std::vector<Tensor> received;
                                std::vector<Work> works;
                                const Tensor mine = now.values();
                                for (const auto [to, from] : now.peers()) {
                                  received.push_back(Tensor::like(mine));
                                  works.push_back(now.comm->recv(received.back(), from));
                                  works.push_back(now.comm->send(mine, to));
                                }
                                now.memory = std::move(received);
                                return when_all(std::move(works));
                              },
                          .finish =
                              [](ActionContext& now) {
                                if (!now.comm) return;
                                const auto others = std::any_cast<std::vector<Tensor>>(std::exchange(now.memory, {}));
                                Tensor mixed = scale(now.values(), now.argument("keep"));
                                for (const Tensor& other : others) add_into(mixed, scale(other, now.argument("take")));
                                if (!others.empty()) now.values().copy_from(mixed);
                              }};

/// A star round rank 0: each other rank and it change places for one share in as many as there are ranks.
const ActionRow mix_star{.name = "mix_star",
                         .letter = '*',
                         .is_collective = true,
                         .access = weights_of,
                         .calls =
                             [](const Action& a, int, Index element) {
                               const Index bytes = a.slice.size() * element;
                               return std::vector<PlannedCall>{{CallKind::broadcast, bytes}, {CallKind::reduce, bytes}};
                             },
                         .start =
                             [](ActionContext& now) {
                               if (!now.comm) return Work();
                               const Tensor hub = now.values().clone(), sum = Tensor::like(hub);
                               now.memory = std::vector{hub, sum};
                               Work sent = now.comm->broadcast(hub, 0);
                               return when_all({sent, now.comm->reduce(sum, now.values(), 0)});
                             },
                         .finish =
                             [](ActionContext& now) {
                               if (!now.comm) return;
                               const auto got = std::any_cast<std::vector<Tensor>>(std::exchange(now.memory, {}));
                               const double share = 1.0 / now.comm->size();
                               const Tensor mixed = now.comm->rank() == 0
                                                        ? scale(got[1], share)
                                                        : add(scale(now.values(), 1 - share), scale(got[0], share));
                               now.values().copy_from(mixed);
                             }};

}  // namespace

std::string to_string(const GossipOptions& o) {
  return fmt::format("graph={}, global_every={}, seed={}, axis={}", o.graph, o.global_every, o.seed, o.axis);
}

Strategy gossip(GossipOptions o) {
  const std::vector<std::string> graphs{"ring", "torus", "exponential", "random", "complete", "star"};
  check(std::ranges::find(graphs, o.graph) != graphs.end(), "gossip", "there is no graph '{}': {}", o.graph,
        fmt::join(graphs, ", "));
  check(o.global_every >= 0, "gossip", "global_every={}: 0 (never), or a number of steps", o.global_every);
  const auto rewrite = [o](Plan plan) {
    check_apart(plan, o.axis, "gossip");
    const int ranks = plan.size(o.axis);
    check(o.graph != "random" || ranks % 2 == 0 || ranks == 1, "gossip",
          "a random graph pairs ranks off, and {} along '{}' is an odd number", ranks, o.axis);
    Action a{.kind = mix_graph, .field = "weights"};
    a.peer = {.axis = o.axis, .pairs = o.graph == "random" ? "matching" : o.graph, .seed = o.seed};
    if (o.graph == "complete" || o.graph == "star") {
      a.peer.pairs.clear();
      a.kind = o.graph == "star" ? ActionKind(mix_star) : ActionKind(action_rows::mean);
    } else {
      const double share = 1.0 / (1.0 + static_cast<double>(peers_at(a.peer, 0, ranks, 0).size()));
      a.arguments = {{"keep", share}, {"take", share}};
    }
    mix_weights(plan, a, o.axis, "step", {});
    if (o.global_every > 0)
      mix_weights(plan, {.kind = action_rows::mean, .field = "weights"}, o.axis, "average over " + o.axis,
                  {.every = o.global_every, .offset = o.global_every - 1});
    plan.consistency[o.axis] = {Consistency::Kind::gossip};
    return plan;
  };
  return apart({"gossip", Claim::statistical, rewrite, to_string(o)});
}

}  // namespace trireme

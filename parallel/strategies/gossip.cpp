// Gossip: each rank trains on its own rows, and mixes its weights with those of a few others after each step (Lian et
// al., D-PSGD, arXiv 1705.09056, in the variant that updates before it mixes; with push-sum: Assran et al., SGP, arXiv
// 1811.10792).
#include <fmt/ranges.h>

#include <algorithm>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/plan/codec.h"
#include "parallel/strategies/async_gossip.h"
#include "parallel/strategies/mixing.h"

namespace trireme {
namespace {

/// Memory: the messages of others in a step, and `own` vectors.
template <Index own>
Index memory_of_messages(const Action& a, int ranks, Index element) {
  return (own + sends_of(peers_at(a.peer, 0, ranks, 0), 0)) * a.slice.size() * element;
}

/// Vector operations: `own`, and `each` for every message of another rank.
template <int own, int each>
int vector_ops_of_messages(const Action& a, int ranks) {
  return own + each * sends_of(peers_at(a.peer, 0, ranks, 0), 0);
}

/// Adds the rank's weights times `keep` and each received vector times `take`.
Work mix_start(ActionContext& now) {
  if (!now.comm) return Work();
  std::vector<Tensor> received;
  Work works = now.exchange(now.values(), received);
  now.memory = std::move(received);
  return works;
}
void mix_finish(ActionContext& now) {
  if (!now.comm) return;
  const auto others = std::any_cast<std::vector<Tensor>>(std::exchange(now.memory, {}));
  Tensor mixed = scale(now.values(), now.argument("keep"));
  for (const Tensor& other : others) add_into(mixed, scale(other, now.argument("take")));
  if (!others.empty()) now.values().copy_from(mixed);
}
std::string mix_fault(const Plan& plan, const Program& program, ActionId id) {
  const Action& a = program.actions[static_cast<std::size_t>(id)];
  const double take = find_argument(a, "take").value_or(0);
  return mixing_fault(
      plan, program, a, find_argument(a, "keep").value_or(0), [&](int) { return take; }, true);
}

/// States of push_sum with the paper's names: the weights x that ranks mix, and the weight w of x, one number per
/// slice. The model has z = x / w.
constexpr const char *biased = "push_sum.x", *push_weight = "push_sum.w";

/// x and w of a slice: the share that the rank keeps, the share for each receiver, and the received ones.
struct Shares {
  Tensor kept, given;
  std::vector<Tensor> received;
};

/// x changes by the update's change of z. A rank keeps the share `keep` of x and w, and sends the share `give` in equal
/// parts to its receivers. Then z = x / w.
Work push_start(ActionContext& now) {
  if (!now.comm) return Work();
  const Tensor x = now.state(biased), w = now.state(push_weight).rows(0, 1);
  x.copy_from(add(x, sub(now.values(), scale(x, 1 / w.item()))));
  const Tensor own = concat({x, w}, 0);
  const int receivers = sends_of(now.peers(), now.comm->rank());
  Shares shares{scale(own, receivers > 0 ? now.argument("keep") : 1),
                scale(own, now.argument("give") / std::max(receivers, 1)),
                {}};
  Work works = now.exchange(shares.given, shares.received);
  now.memory = std::move(shares);
  return works;
}
void push_finish(ActionContext& now) {
  if (!now.comm) return;
  const auto [mixed, given, received] = std::any_cast<Shares>(std::exchange(now.memory, {}));
  for (const Tensor& share : received) add_into(mixed, share);
  const Index n = now.action.slice.size();
  const double w = mixed.rows(n, n + 1).item();
  now.state(biased).copy_from(mixed.rows(0, n));
  now.state(push_weight).copy_from(Tensor::full({n}, w, mixed.dtype(), mixed.device()));
  now.values().copy_from(scale(mixed.rows(0, n), 1 / w));
}
std::string push_fault(const Plan& plan, const Program& program, ActionId id) {
  const Action& a = program.actions[static_cast<std::size_t>(id)];
  const double keep = find_argument(a, "keep").value_or(0), give = find_argument(a, "give").value_or(0);
  if (keep <= 0) return fmt::format("a rank keeps the share {} of its weights, expected above 0", keep);
  return mixing_fault(
      plan, program, a, keep, [&](int d) { return give / d; }, false);
}
/// A message of x and w to each receiver of rank 0; all ranks have the same number of receivers.
std::vector<PlannedCall> push_calls(const Action& a, int ranks, Index element) {
  const auto count = static_cast<std::size_t>(sends_of(peers_at(a.peer, 0, ranks, 0), 0));
  return std::vector(count, PlannedCall{CallKind::send, (a.slice.size() + 1) * element});
}

/// A star around rank 0: each other rank exchanges 1 / ranks of its weights with rank 0.
Work star_start(ActionContext& now) {
  if (!now.comm) return Work();
  const Tensor hub = now.values().clone(), sum = Tensor::like(hub);
  now.memory = std::vector{hub, sum};
  Work sent = now.comm->broadcast(hub, 0);
  return when_all({sent, now.comm->reduce(sum, now.values(), 0)});
}
void star_finish(ActionContext& now) {
  if (!now.comm) return;
  const auto got = std::any_cast<std::vector<Tensor>>(std::exchange(now.memory, {}));
  const double share = 1.0 / now.comm->size();
  const Tensor mixed =
      now.comm->rank() == 0 ? scale(got[1], share) : add(scale(now.values(), 1 - share), scale(got[0], share));
  now.values().copy_from(mixed);
}

/// The action that mixes weights by the graph in each step.
CustomAction mixing(const GossipOptions& o, int ranks) {
  if (o.graph == "complete") return mean_by_rows(OperandKind::weights, o.axis);
  if (o.graph == "star")
    return {.name = "mix_star",
            .axis = o.axis,
            .sends = {CallKind::broadcast, CallKind::reduce},
            .row = {.letter = '*',
                    .memory = memory_of_slices<5>,
                    .vector_ops = vector_ops<5>,
                    .start = star_start,
                    .finish = star_finish}};
  const bool push = o.mode == "push_sum";
  CustomAction c{.name = "mix", .axis = o.axis, .peer = {.pairs = o.graph, .seed = o.seed}};
  if (o.graph == "random") c.peer.pairs = push ? "random_target" : "matching";
  if (push && o.graph == "ring") c.peer.pairs = "directed_ring";
  const double receivers = sends_of(peers_at(c.peer, 0, ranks, 0), 0), share = 1 / (1 + receivers);
  if (push) {
    c.name = "push_sum";
    c.keeps = {{.name = push_weight, .initial = 1}};
    c.remembers = {{.name = biased}};
    c.arguments = {{"keep", share}, {"give", 1 - share}};
    c.row = {.letter = 'p',
             .calls = push_calls,
             .memory = memory_of_messages<3>,
             .vector_ops = vector_ops_of_messages<12, 1>,
             .fault = push_fault,
             .start = push_start,
             .finish = push_finish};
    return c;
  }
  c.sends = {CallKind::send};
  c.arguments = {{"keep", share}, {"take", share}};
  c.row = {.letter = 'x',
           .memory = memory_of_messages<2>,
           .vector_ops = vector_ops_of_messages<2, 2>,
           .fault = mix_fault,
           .start = mix_start,
           .finish = mix_finish};
  return c;
}

}  // namespace

std::string to_string(const GossipOptions& o) {
  return fmt::format("graph={}, mode={}, global_every={}, seed={}, axis={}", o.graph, o.mode, o.global_every, o.seed,
                     o.axis);
}

Strategy gossip(GossipOptions o) {
  const std::vector<std::string> graphs{"ring", "torus", "exponential", "random", "complete", "star"};
  check(std::ranges::find(graphs, o.graph) != graphs.end(), "gossip",
        "graph={}, but there is no such graph: use one of {}", o.graph, fmt::join(graphs, ", "));
  const bool push = o.mode == "push_sum", async = o.mode == "async";
  check(push || async || o.mode == "sync", "gossip", "mode={}, but there is no such mode: use sync, push_sum or async",
        o.mode);
  check(o.global_every >= 0, "gossip", "global_every={}, but it is a number of steps: use 0 (never) or more",
        o.global_every);
  check(!push || (o.graph != "complete" && o.graph != "star"), "gossip",
        "mode=push_sum sends to single ranks, but graph={} combines all ranks at once: use mode=sync", o.graph);
  check(!async || o.graph == "ring" || o.graph == "random", "gossip",
        "mode=async divides ranks into some that ask and some that answer, but graph={} does not: use graph=ring or "
        "graph=random",
        o.graph);
  check(o.seed == 0 || async || o.graph == "random", "gossip",
        "seed={} is for graph=random or mode=async, but graph={} with mode={} draws no pairs: leave seed out", o.seed,
        o.graph, o.mode);
  check(o.global_every == 0 || o.mode == "sync", "gossip",
        "global_every={} needs mode=sync, because {}: use mode=sync, or leave global_every out", o.global_every,
        push ? "push-sum's weights have no plain mean" : "in mode=async no step has all ranks");
  const auto rewrite = [o, push, async](Plan plan) {
    check_apart(plan, o.axis, "gossip");
    const int ranks = plan.size(o.axis);
    if (async) return gossip_asynchronously(std::move(plan), o);
    check(push || o.graph != "random" || ranks % 2 == 0 || ranks == 1, "gossip",
          "graph=random makes pairs of ranks, but '{}' has {} ranks, an odd number: use mode=push_sum, or an even "
          "number of ranks",
          o.axis, ranks);
    CustomAction mix = mixing(o, ranks);
    mix.phase = "step";
    act_on_weights(plan, mix);
    if (o.global_every > 0) {
      CustomAction mean = mean_by_rows(OperandKind::weights, o.axis);
      mean.every = o.global_every;
      mean.phase = "average over " + o.axis;
      act_on_weights(plan, mean);
    }
    plan.consistency[o.axis] = {Consistency::Kind::gossip};
    return plan;
  };
  return apart({"gossip", Claim::statistical, rewrite, to_string(o), StrategyOrder::averages});
}

}  // namespace trireme

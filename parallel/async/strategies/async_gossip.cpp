#include "parallel/strategies/async_gossip.h"

#include <algorithm>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/comm/arrivals.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/peers.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/mixing.h"

namespace trireme {
namespace {

// Even ranks are active: after each update they send their weights to a passive rank, which returns its own. In the
// next step, after the update, an active rank's weights move by `share` of the difference of the two exchanged vectors.
// A passive rank collects its own part in a state until its next update is done, so that backward reads unchanged
// weights. It answers with the sum of weights and state.

/// State: the pending change of a passive rank's weights.
constexpr const char* due = "gossip.due";

bool is_active(const ActionContext& now) { return now.comm->rank() % 2 == 0; }

/// The messages of a rank in flight.
struct UnderWay {
  Tensor sent, answer;  // of an active rank; undefined: none
  Work asked, answered;
  std::vector<Work> answers;  // of a passive rank
  std::int64_t first = -1;    // step in which they began; -1: none since the last flush
  std::int64_t flushed = 0,   // number of messages that had arrived by then
      applied = 0;            // number of messages whose change is in the weights
};

UnderWay& under_way(const ActionContext& now) {
  if (!now.memory.has_value()) now.memory = UnderWay{};
  return std::any_cast<UnderWay&>(now.memory);
}

void move_towards(const ActionContext& now, const Tensor& x, const Tensor& theirs, const Tensor& ours) {
  add_into(x, scale(sub(theirs, ours), now.argument("share")));
}

void answer(const ActionContext& now, UnderWay& u, const ReceivedMessage& m) {
  const Tensor owed = now.state(due), mine = add(now.values(), owed);
  std::erase_if(u.answers, [](Work& work) { return work.done(); });
  u.answers.push_back(now.comm->send(mine, m.header.sender));
  move_towards(now, owed, m.payload.to(owed.device()), mine);
}

/// Number of the first place in a step at which a passive rank answers. A flush, if any, is before it.
std::int64_t first_place(const ActionContext& now) {
  return now.step * static_cast<std::int64_t>(now.argument("places"));
}

void answer_all(const ActionContext& now) {
  const std::int64_t place = first_place(now) + static_cast<std::int64_t>(now.argument("place"));
  while (const auto message = now.arrivals.poll(*now.comm, place)) answer(now, under_way(now), *message);
}

void apply_due(const ActionContext& now, UnderWay& u) {
  if (std::exchange(u.applied, now.arrivals.count()) == now.arrivals.count()) return;
  const Tensor part = now.state(due);
  add_into(now.values(), part);
  part.copy_from(Tensor::zeros(part.shape(), part.dtype(), part.device()));
}

void take_answer(const ActionContext& now, UnderWay& u) {
  if (!u.sent) return;
  u.answered.wait();
  move_towards(now, now.values(), u.answer, std::exchange(u.sent, {}));
}

void ask(const ActionContext& now, UnderWay& u) {
  const int passive = now.peers().at(0).to;
  u.sent = now.values().clone();
  u.answer = Tensor::like(u.sent);
  u.answered = now.comm->recv(u.answer, passive);
  const Slice& s = now.action.slice;
  u.asked = now.comm->send_to({.clock = now.step, .begin = s.begin, .end = s.end}, u.sent, passive);
}

/// Number of messages to a passive rank in these steps.
std::int64_t messages_to(const ActionContext& now, std::int64_t first, std::int64_t end) {
  std::int64_t all = 0;
  for (std::int64_t step = first; step < end; ++step)
    all += std::ssize(peers_at(now.action.peer, now.comm->rank(), now.comm->size(), step));
  return all;
}

/// A passive rank answers the messages that have arrived.
const ActionRow answers{.name = "answer",
                        .letter = 'a',
                        .access =
                            [](const Plan&, const Program&, const Liveness&, const Action& a) {
                              return std::vector<Operand>{
                                  {.kind = OperandKind::weights, .slice = a.slice},
                                  {.kind = OperandKind::state, .slice = a.slice, .name = due, .written = true}};
                            },
                        .start =
                            [](ActionContext& now) {
                              if (now.comm && !is_active(now)) answer_all(now);
                              return Work();
                            },
                        .flush =
                            [](ActionContext& now) {
                              for (Work& work : under_way(now).answers) work.wait();
                              under_way(now).answers.clear();
                            }};

/// Whether both belong to the same exchange.
bool belong_together(const Action& a, const Action& b) {
  return a.slice == b.slice && a.peer == b.peer && find_argument(a, "share") == find_argument(b, "share");
}

/// Checks that passive ranks answer at all numbered places before long computations.
std::string fault_of_answers(const Program& program, const Action& a) {
  const auto places = find_argument(a, "places");
  double next = 0;
  for (const Action& other : program.actions) {
    if (is_pass(other) && next == 0) return "passive ranks compute before they answer";
    if (other.kind != answers) continue;
    if (!belong_together(a, other) || find_argument(other, "place") != next++ ||
        find_argument(other, "places") != places || program.trigger(other) != Trigger{})
      return fmt::format("passive ranks answer by another rule, or not in every step: {}", to_string(other));
  }
  return next == places ? "" : fmt::format("passive ranks answer in {} places of {}", next, places.value_or(0));
}

/// Checks an exchange.
std::string fault_of(const Plan& plan, const Program& program, ActionId id) {
  const Action& a = program.actions[static_cast<std::size_t>(id)];
  const double share = find_argument(a, "share").value_or(0);
  if (share <= 0 || share >= 1) return fmt::format("two ranks move by {} of their difference: above 0, below 1", share);
  if (program.trigger(a) != Trigger{}) return "exchanges are of every step: passive ranks count them";
  for (const Program& other : plan.programs)
    for (const Action& b : other.actions)
      if (b.kind == a.kind && b.peer.axis == a.peer.axis && b.peer != a.peer)
        return fmt::format("the parts of a worker meet those of different ones: {}", to_string(b));
  const int ranks = plan.size(program, a.peer.axis);
  for (std::int64_t step = 0; ranks > 1 && step < 8; ++step)
    for (int active = 0; active < std::min(ranks, 64); active += 2) {
      const auto pairs = peers_at(a.peer, active, ranks, step);
      const bool one = pairs.size() == 1 && pairs[0].to % 2 == 1 && pairs[0].from == pairs[0].to;
      if (!one) return fmt::format("rank {} of {} exchanges with no odd rank, or with several", active, ranks);
    }
  return fault_of_answers(program, a);
}

const ActionRow exchange{.name = "exchange",
                         .letter = 'x',
                         .access =
                             [](const Plan&, const Program&, const Liveness&, const Action& a) {
                               return std::vector<Operand>{
                                   {.kind = OperandKind::weights, .slice = a.slice, .written = true},
                                   {.kind = OperandKind::state, .slice = a.slice, .name = due, .written = true}};
                             },
                         .calls =
                             [](const Action& a, int, Index element) {
                               return std::vector<PlannedCall>{{CallKind::send, Index{sizeof(MessageHeader)}},
                                                               {CallKind::send, a.slice.size() * element}};
                             },
                         .fault = fault_of,
                         .start =
                             [](ActionContext& now) {
                               if (!now.comm) return Work();
                               UnderWay& u = under_way(now);
                               if (u.first < 0) u.first = now.step;
                               if (!is_active(now)) {
                                 apply_due(now, u);
                                 return Work();
                               }
                               take_answer(now, u);
                               ask(now, u);
                               return Work();
                             },
                         .flush =
                             [](ActionContext& now) {
                               if (!now.comm) return;
                               UnderWay& u = under_way(now);
                               if (u.first < 0) return;
                               take_answer(now, u);
                               const std::int64_t all = is_active(now) ? 0 : messages_to(now, u.first, now.step);
                               while (now.arrivals.count() - u.flushed < all)
                                 answer(now, u, now.arrivals.take(*now.comm, first_place(now)));
                               if (!is_active(now)) apply_due(now, u);
                               for (Work& work : u.answers) work.wait();
                               u.answers.clear();
                               now.comm->barrier();  // otherwise a message of another rank's next step could arrive
                                                     // before the last one of this step
                               u.flushed = now.arrivals.count();
                               u.first = -1;
                             }};

/// Adds the places at which passive ranks answer to a program whose last action is the exchange.
void answer_between_passes(Program& program) {
  const Action meet = program.actions.back();
  const Liveness live(program);
  std::vector<ActionId> places;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[static_cast<std::size_t>(id)];
    if (is_pass(a) && a.kind != ActionKind::loss && live.starts_segment(a)) places.push_back(id);
  }
  program.actions.back().arguments.emplace_back("places", places.size());
  for (std::size_t place = places.size(); place-- > 0;) {
    Action early = meet;
    early.kind = answers;
    early.after.clear();
    early.arguments.emplace_back("place", place);
    early.arguments.emplace_back("places", places.size());
    insert(program, places[place], std::move(early));
  }
}

}  // namespace

Plan gossip_asynchronously(Plan plan, const GossipOptions& o) {
  const int ranks = plan.size(o.axis);
  for (const Axis& axis : plan.axes)
    check(axis.size == 1 || axis.name == o.axis || (plan.has_stages() && axis.name == plan.stage_axis), "gossip",
          "mode=async: the {} ranks along '{}' would exchange weights at different times, but a worker is one rank or "
          "one pipeline: use mode=sync, or a mesh without '{}'",
          axis.size, axis.name, axis.name);
  check(
      o.graph == "random" || ranks % 2 == 0 || ranks == 1, "gossip",
      "mode=async: a ring of {} ranks cannot be divided into ranks that ask and ranks that answer: use an even number "
      "of ranks, or graph=random",
      ranks);
  check(
      ties_of(plan).empty(), "gossip",
      "mode=async: several stages have copies of the same weights, but stages exchange weights at different times, so "
      "the copies would differ: use mode=sync, or a partition in which one stage has all parts that use these weights");
  Action like{.kind = exchange, .arguments = {{"share", 0.5}}};
  like.peer = {.axis = o.axis, .pairs = o.graph == "ring" ? "bipartite_ring" : "bipartite", .seed = o.seed};
  mix_weights(plan, like, o.axis, "step", {});
  for (Program& program : plan.programs) {
    const Action meet = program.actions.back();
    if (meet.kind != exchange) continue;  // not in a program without updates
    check(std::ranges::count(program.actions, ActionKind(exchange), &Action::kind) == 1, "gossip",
          "mode=async exchanges one slice of weights, but {} updates several slices: use mode=sync", program.name);
    answer_between_passes(program);
  }
  plan.state.push_back({.name = due});
  plan.consistency[o.axis] = {Consistency::Kind::gossip, Consistency::unbounded};
  return plan;
}

}  // namespace trireme

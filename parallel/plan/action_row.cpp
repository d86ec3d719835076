// The library's kinds of actions. What a computation costs is stored in the plan's parts.
#include "parallel/plan/action_row.h"

#include <tuple>

#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/gather_layout.h"
#include "parallel/plan/packed_statistics.h"
#include "parallel/plan/rank_actions.h"
#include "parallel/plan/shards.h"

namespace trireme {

bool ActionKind::operator<(const ActionKind& other) const {
  return std::tie(row_->order, row_->name, row_->options) < std::tie(other->order, other->name, other->options);
}

bool ActionKind::is_like(const ActionKind& other) const {
  return row_->name == other->name && row_->options == other->options;
}

namespace {

using K = OperandKind;

const PartInfo* part_of(const Plan& plan, const Action& a) {
  return a.part >= 0 && a.part < std::ssize(plan.parts) ? &plan.parts[static_cast<std::size_t>(a.part)] : nullptr;
}
using Operands = std::vector<Operand>;

Operand slice(K kind, const Slice& s) { return {kind, s}; }
Operand written(Operand o) {
  o.written = true;
  return o;
}
/// Weights of the part, and those that it uses of other parts; or their gradients, which the action writes.
Operands all_weights(const Plan& plan, const Action& a, K kind = K::weights) {
  const PartInfo* part = part_of(plan, a);
  const bool reads = kind == K::weights;
  Operand o{.kind = kind, .slice = part ? part->slice : Slice{}, .version = reads ? a.version : 0, .written = !reads};
  Operands all{o};
  for (const Slice& s : part ? part->tied : std::vector<Slice>{}) {
    o.slice = s;
    all.push_back(o);
  }
  return all;
}
Operands with(Operands all, std::initializer_list<Operand> more) {
  all.insert(all.end(), more);
  return all;
}
Operand activation(int part, const Action& a) { return {K::activation, {}, part, a.microbatch}; }
Operand cotangent(int part, const Action& a) { return {K::cotangent, {}, part, a.microbatch}; }
Operand flag(const std::string& name) { return {.kind = K::flags, .name = name}; }

Operands of_forward(const Plan& plan, const Program&, const Liveness&, const Action& a) {
  const PartInfo* part = part_of(plan, a);
  return with(all_weights(plan, a), {activation(a.part - 1, a), written(activation(a.part, a)),
                                     written(slice(K::statistics, part ? part->buffers : Slice{}))});
}
Operands of_loss(const Plan& plan, const Program&, const Liveness&, const Action& a) {
  const int last = static_cast<int>(plan.parts.size()) - 1;
  return {activation(last, a), {K::count}, written(cotangent(last, a)), written({K::loss})};
}
Operands of_backward_input(const Plan& plan, const Program&, const Liveness&, const Action& a) {
  return with(all_weights(plan, a),
              {activation(a.part - 1, a), cotangent(a.part, a), written(cotangent(a.part - 1, a))});
}
Operands of_backward_weight(const Plan& plan, const Program&, const Liveness&, const Action& a) {
  return with(all_weights(plan, a, K::gradients), {activation(a.part - 1, a), cotangent(a.part, a)});
}
Operands of_backward(const Plan& plan, const Program& program, const Liveness& live, const Action& a) {
  Operands all = of_backward_input(plan, program, live, a);
  for (Operand& gradients : all_weights(plan, a, K::gradients)) all.push_back(std::move(gradients));
  return all;
}
/// A rank keeps numbers that it receives from different ranks separately.
Operands of_message(const Plan&, const Program&, const Liveness&, const Action& a) {
  Operand o{a.payload, a.slice, a.part, a.microbatch};
  o.written = a.kind == ActionKind::recv;
  if (a.payload == K::state) o.name = payload_of(a);
  if (o.written && a.peer.root >= 0 && !is_slice(a.payload)) o.name = std::to_string(a.peer.root);
  return {o};
}
Operands of_payload(const Plan&, const Program&, const Liveness&, const Action& a) {
  return {written({a.payload, a.slice, a.part, a.microbatch})};
}
Operands of_update(const Plan&, const Program&, const Liveness&, const Action& a) {
  Operands all{slice(K::gradients, a.slice), written(slice(K::weights, a.slice)), written(slice(K::state, a.slice))};
  if (a.microbatch.steps_ago > 0) return all;  // numbers of a step before: they were agreed on there
  return with(std::move(all), {{K::loss}, flag(finite_gradients), {K::norm}, {K::ratios}});
}
Operands of_free(const Plan&, const Program&, const Liveness& live, const Action& a) {
  Operands all;
  if (live.segment_of(a.part) < 0) return all;
  const Segment& segment = live.segment_with(a.part);
  for (int p = segment.first; p < segment.end; ++p) all.push_back(written(activation(p, a)));
  return all;
}
Operands of_agree(const Plan&, const Program& program, const Liveness&, const Action& a) {
  Operands all;
  if (!agrees_on_flags(a)) all.push_back(written({a.payload}));
  for (const std::string& name : a.names) all.push_back(written(flag(name)));
  const bool ratios = a.payload == K::ratios;  // a rule's direction takes the gradient's place, and updates the state
  if (ratios) all = with(std::move(all), {{K::loss}, flag(finite_gradients), {K::norm}});
  if (!looks_at_gradients(a) && a.payload != K::norm && !ratios) return all;
  for (const Action& u : program.actions) {
    if (u.kind != ActionKind::update) continue;
    all.push_back(slice(K::gradients, u.slice));
    all.back().written = ratios;
    if (ratios) all = with(std::move(all), {slice(K::weights, u.slice), written(slice(K::state, u.slice))});
  }
  return all;
}

using Calls = std::vector<PlannedCall>;
Calls summed(const Action& a, int, Index element) { return {{CallKind::all_reduce, a.slice.size() * element}}; }
Calls from_root(const Action& a, int, Index element) { return {{CallKind::broadcast, a.slice.size() * element}}; }
/// Equal shares by one collective, the remainder by another (parallel/plan/shards.cpp).
Calls shares(const Action& a, int ranks, Index element, CallKind kind, CallKind rest) {
  const Index n = a.slice.size() * element, even = a.slice.size() / ranks * ranks * element;
  Calls calls;
  if (even > 0) calls.push_back({kind, even});
  if (even < n) calls.push_back({rest, n - even});
  return calls;
}
Calls scattered(const Action& a, int ranks, Index element) {
  return shares(a, ranks, element, CallKind::reduce_scatter, CallKind::all_reduce);
}
Calls gathered(const Action& a, int ranks, Index element) {
  return shares(a, ranks, element, CallKind::all_gather, CallKind::broadcast);
}
Calls agreed(const Action& a, int, Index element) {
  const Index numbers = agrees_on_flags(a) ? std::ssize(a.names) : a.payload == K::ratios ? a.slice.size() : 1;
  return {{a.peer.root >= 0 ? CallKind::broadcast : CallKind::all_reduce,
           a.payload == OperandKind::loss ? element : 8 * numbers}};
}

template <double PartCost::*... costs>
double cost(const Plan& plan, const Action& a) {
  const PartInfo* part = part_of(plan, a);
  return part ? ((part->cost.*costs) + ...) : 0;
}

Work gather(ActionContext& now) {
  if (!now.comm) return {};
  restore_pages(now.store().values(), now.action.slice);
  const GatherLayout layout(now.plan, now.action, now.ranks());
  if (!layout.is_packed()) return all_gather_updated(now.action, *now.comm, now.values());
  return layout.start(*now.comm, now.store().values(), now.memory.emplace<Tensor>());
}
void hold(ActionContext& now) {
  if (!now.comm) return;
  if (const auto* wire = std::any_cast<Tensor>(&now.memory)) {
    GatherLayout(now.plan, now.action, now.ranks()).unpack(*now.comm, now.store().values(), *wire);
    now.memory.reset();
  }
  now.store().mark_released(now.action.slice, false);
}
Work drop_shards(ActionContext& now) {
  (now.action.payload == K::weights ? release_values : release_gradients)(now.optimizer.parameters(), now.action.slice,
                                                                          now.shard());
  return {};
}
Work reduce(ActionContext& now) {
  if (now.action.payload == K::gradients) return rank_actions::reduce(now);
  if (!now.comm) return {};
  if (averages_statistics(now.action)) return average_statistics(*now.comm, now.store(), now.action.slice);
  return now.comm->all_reduce(now.values(), ReduceOp::average);
}

}  // namespace

double seconds_of(const Plan& plan, const Action& a) { return a.kind->seconds ? a.kind->seconds(plan, a) : 0; }

std::vector<PlannedCall> calls_of(const Plan& plan, const Action& a, int ranks, Index element, std::int64_t step) {
  if (is_replica_sum(a)) {  // sum_shards() (parallel/plan/shards.h)
    const Index shards = plan.size(a.shard_axis), share = a.slice.size() / shards, rest = a.slice.size() % shards;
    Calls calls;
    for (const Index n : {share, rest})
      if (n > 0) calls.push_back({CallKind::all_reduce, n * element});
    return calls;
  }
  if (const GatherLayout layout(plan, a, ranks); layout.is_packed()) return layout.calls();
  if (!is_encoded(a, step)) return a.kind->calls ? a.kind->calls(a, ranks, element) : Calls{};
  Calls calls;
  if (a.kind == ActionKind::reduce_scatter) {  // EncodedReduction::scatter()
    const Index wire = a.codec->wire ? size_of(*a.codec->wire) : element, each = a.slice.size() / ranks;
    if (each > 0) calls.push_back({CallKind::all_to_all, each * ranks * wire});
    if (const Index rest = a.slice.size() % ranks; rest > 0)
      calls.push_back({CallKind::all_gather, rest * ranks * wire});
    return calls;
  }
  CodecContext now(plan, a, element, step);
  for (; now.round < a.codec->rounds; ++now.round) {
    const Index bytes = a.codec->length(now) * (a.codec->wire ? size_of(*a.codec->wire) : element);
    if (bytes == 0) continue;
    if (a.codec->is_summable)
      calls.push_back({CallKind::all_reduce, bytes});
    else
      calls.push_back({CallKind::all_gather, bytes * ranks});
  }
  return calls;
}

// Letters are those of drawings.
const ActionRow forward_row{.name = "forward",
                            .letter = 'F',
                            .order = 0,
                            .is_custom = false,
                            .access = of_forward,
                            .seconds = cost<&PartCost::forward>,
                            .start = rank_actions::pass};
const ActionKind ActionKind::forward{forward_row};
const ActionRow loss_row{
    .name = "loss", .letter = 'L', .order = 1, .is_custom = false, .access = of_loss, .start = rank_actions::loss};
const ActionKind ActionKind::loss{loss_row};
const ActionRow backward_row{.name = "backward",
                             .letter = 'B',
                             .order = 2,
                             .is_custom = false,
                             .access = of_backward,
                             .seconds = cost<&PartCost::backward_input, &PartCost::backward_weight>,
                             .start = rank_actions::pass};
const ActionKind ActionKind::backward{backward_row};
const ActionRow backward_input_row{.name = "backward_input",
                                   .letter = 'I',
                                   .order = 3,
                                   .is_custom = false,
                                   .access = of_backward_input,
                                   .seconds = cost<&PartCost::backward_input>,
                                   .start = rank_actions::pass};
const ActionKind ActionKind::backward_input{backward_input_row};
const ActionRow backward_weight_row{.name = "backward_weight",
                                    .letter = 'W',
                                    .order = 4,
                                    .is_custom = false,
                                    .access = of_backward_weight,
                                    .seconds = cost<&PartCost::backward_weight>,
                                    .start = rank_actions::pass};
const ActionKind ActionKind::backward_weight{backward_weight_row};
const ActionRow send_row{
    .name = "send", .letter = 'S', .order = 5, .is_custom = false, .access = of_message, .start = rank_actions::send};
const ActionKind ActionKind::send{send_row};
const ActionRow recv_row{.name = "recv",
                         .letter = 'R',
                         .order = 6,
                         .is_custom = false,
                         .access = of_message,
                         .start = rank_actions::receive,
                         .finish = rank_actions::end_receive};
const ActionKind ActionKind::recv{recv_row};
const ActionRow all_reduce_row{.name = "all_reduce",
                               .letter = 'A',
                               .order = 7,
                               .is_custom = false,
                               .is_collective = true,
                               .access = of_payload,
                               .calls = summed,
                               .start = reduce,
                               .finish = rank_actions::end_reduce};
const ActionKind ActionKind::all_reduce{all_reduce_row};
const ActionRow reduce_scatter_row{.name = "reduce_scatter",
                                   .letter = 'C',
                                   .order = 8,
                                   .is_custom = false,
                                   .is_collective = true,
                                   .access = of_payload,
                                   .calls = scattered,
                                   .start = rank_actions::reduce,
                                   .finish = rank_actions::end_reduce};
const ActionKind ActionKind::reduce_scatter{reduce_scatter_row};
const ActionRow all_gather_row{.name = "all_gather",
                               .letter = 'G',
                               .order = 9,
                               .is_custom = false,
                               .is_collective = true,
                               .access = of_payload,
                               .calls = gathered,
                               .start = gather,
                               .finish = hold};
const ActionKind ActionKind::all_gather{all_gather_row};
const ActionRow broadcast_row{.name = "broadcast",
                              .letter = 'K',
                              .order = 10,
                              .is_custom = false,
                              .is_collective = true,
                              .access = of_payload,
                              .calls = from_root,
                              .start = gather,
                              .finish = hold};
const ActionKind ActionKind::broadcast{broadcast_row};
const ActionRow update_row{.name = "update",
                           .letter = 'U',
                           .order = 11,
                           .is_custom = false,
                           .access = of_update,
                           .start = rank_actions::update};
const ActionKind ActionKind::update{update_row};
const ActionRow free_row{
    .name = "free", .letter = 'X', .order = 13, .is_custom = false, .access = of_free, .start = rank_actions::free};
const ActionKind ActionKind::free{free_row};
const ActionRow drop_row{
    .name = "drop", .letter = 'D', .order = 14, .is_custom = false, .access = of_payload, .start = drop_shards};
const ActionKind ActionKind::drop{drop_row};
const ActionRow agree_row{.name = "agree",
                          .letter = 'E',
                          .order = 16,
                          .is_custom = false,
                          .is_collective = true,
                          .access = of_agree,
                          .calls = agreed,
                          .start = rank_actions::agree,
                          .finish = rank_actions::end_agree};
const ActionKind ActionKind::agree{agree_row};

}  // namespace trireme

// The kinds of actions push, pull and take, written as ordinary rows (parallel/plan/action_row.h).
#include "parallel/async/channels.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_row.h"

namespace trireme {
namespace {

using K = OperandKind;

Channels& channels(ActionContext& now) { return static_cast<Channels&>(*now.pace); }
/// The operand of push, pull and take.
std::vector<Operand> carried(const Action& a, bool written) {
  Operand o{.kind = a.payload, .slice = a.slice, .written = written};
  if (!is_slice(a.payload)) o.slice = {};
  if (a.payload == K::state) o.name = payload_of(a);
  if (a.payload == K::clock) o.name = std::to_string(a.peer.root);
  if (a.payload == K::ticket && a.kind == ChannelKind::pull) o.name = "next";
  return {o};
}
std::vector<Operand> of_push(const Plan&, const Program&, const Liveness&, const Action& a) {
  return carried(a, false);
}
std::vector<Operand> of_pull(const Plan&, const Program&, const Liveness&, const Action& a) { return carried(a, true); }

Work start_push(ActionContext& now) {
  Tensor number = now.action.payload == K::clock
                      ? Tensor::scalar(static_cast<double>(now.optimizer.steps()), DType::f64)
                      : *now.loss;
  if (!number) number = Tensor::zeros({}, DType::f64);  // on a rank that computed no loss itself
  return channels(now).push(now.action, now.step, number);
}
Work start_pull(ActionContext& now) { return channels(now).pull(now.action); }
Work start_take(ActionContext& now) {
  if (const Tensor loss = channels(now).take(now.action)) *now.loss = loss;
  return {};
}

const ActionRow push_row{
    .name = "push", .letter = 'P', .order = 17, .is_custom = false, .access = of_push, .start = start_push};
const ActionRow pull_row{
    .name = "pull", .letter = 'Q', .order = 18, .is_custom = false, .access = of_pull, .start = start_pull};
const ActionRow take_row{
    .name = "take", .letter = 'T', .order = 19, .is_custom = false, .access = of_pull, .start = start_take};

}  // namespace

const ActionKind ChannelKind::push{push_row};
const ActionKind ChannelKind::pull{pull_row};
const ActionKind ChannelKind::take{take_row};

}  // namespace trireme

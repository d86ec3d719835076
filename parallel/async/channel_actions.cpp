// The kinds of actions push, pull and take, written as ordinary rows (parallel/plan/action_row.h).
#include "parallel/async/channels.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_row.h"

namespace trireme {
namespace {

using K = OperandKind;

Operand channel_number(std::string name) { return {.kind = K::number, .name = std::move(name)}; }
/// The operand of push, pull and take.
Operand carried(const Action& a) {
  switch (a.payload.kind) {
    case Payload::weights: return {.kind = K::weights, .slice = a.slice};
    case Payload::gradients: return {.kind = K::gradients, .slice = a.slice};
    case Payload::clock: return channel_number("clock of " + std::to_string(a.peer.root));
    case Payload::ticket: return channel_number(a.kind == ChannelKind::pull ? "next ticket" : "ticket");
    case Payload::state: return {.kind = K::state, .slice = a.slice, .name = to_string(a.payload)};
    default: return channel_number(to_string(a.payload));
  }
}
Access of_push(const Plan&, const Program&, const Liveness&, const Action& a) { return {{carried(a)}, {}}; }
Access of_pull(const Plan&, const Program&, const Liveness&, const Action& a) { return {{}, {carried(a)}}; }

Work start_push(ActionContext& now) {
  Tensor number = now.action.payload == Payload::clock
                      ? Tensor::scalar(static_cast<double>(now.optimizer.steps()), DType::f64)
                      : now.actions->step_loss();
  if (!number) number = Tensor::zeros({}, DType::f64);  // on a rank that forwards what others have computed
  return now.channels->push(now.action, now.step, number);
}
Work start_pull(ActionContext& now) { return now.channels->pull(now.action); }
Work start_take(ActionContext& now) {
  if (const Tensor loss = now.channels->take(now.action)) now.actions->set_step_loss(loss);
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

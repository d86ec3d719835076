// Start and finish functions of the library's kinds of actions that need the executor.
#include "parallel/plan/action_context.h"
#include "parallel/plan/rank_actions.h"
#include "parallel/runtime/executor.h"

namespace trireme::rank_actions {

Work pass(ActionContext& now) { return now.executor->pass(now.id); }
Work loss(ActionContext& now) { return now.executor->loss(now.id); }
Work free(ActionContext& now) { return now.executor->free(now.id); }
Work send(ActionContext& now) { return is_channel(now.action) ? now.pace->send(now) : now.executor->send(now.id); }
Work receive(ActionContext& now) {
  return is_channel(now.action) ? now.pace->receive(now) : now.executor->receive(now.id);
}
void end_receive(ActionContext& now) {
  if (!is_channel(now.action)) now.executor->end_receive(now.id);
}
Work reduce(ActionContext& now) { return now.executor->reduce(now.id); }
void end_reduce(ActionContext& now) { now.executor->end_reduce(now.id); }
Work agree(ActionContext& now) { return now.executor->agree(now.id); }
void end_agree(ActionContext& now) { now.executor->end_agree(now.id); }
Work update(ActionContext& now) { return now.executor->update(now.id); }

}  // namespace trireme::rank_actions

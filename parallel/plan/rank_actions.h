// Start and finish functions of the library's kinds of actions that need more of a rank than an ActionContext. Their
// rows are in action_row.cpp; the executor defines the functions (parallel/runtime/executor_actions.cpp).
#pragma once
#include "parallel/comm/communicator.h"

namespace trireme {
struct ActionContext;
}  // namespace trireme

namespace trireme::rank_actions {

Work pass(ActionContext&);         ///< forward, backward or one of its halves
Work loss(ActionContext&);         ///< the loss of a micro-batch
Work free(ActionContext&);         ///< releases activations
Work send(ActionContext&);         ///< a message to another stage or a channel
Work receive(ActionContext&);      ///< a message from another stage or a channel
void end_receive(ActionContext&);  ///< ends receive()
Work reduce(ActionContext&);       ///< all_reduce or reduce_scatter of gradients
void end_reduce(ActionContext&);   ///< ends reduce()
Work agree(ActionContext&);        ///< combines a number over ranks
void end_agree(ActionContext&);    ///< ends agree()
Work update(ActionContext&);       ///< updates a slice by the optimizer

}  // namespace trireme::rank_actions

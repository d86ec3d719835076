// ActionContext: the arguments of a running action (parallel/plan/action_row.h).
#pragma once
#include <any>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/comm/arrivals.h"
#include "parallel/plan/peers.h"
#include "parallel/plan/shards.h"

namespace trireme {

class Executor;  // parallel/runtime/executor.h
class OwnPace;   // parallel/async/own_pace.h

/// The state of the step in which an action runs. The library's kinds that need more of a rank (activations, gradient
/// buckets, agreed numbers) take it from the executor.
struct ActionContext {
  const Plan& plan;              ///< the plan of the step
  const Action& action;          ///< the action that runs
  Optimizer& optimizer;          ///< of this rank's model
  Communicator* comm;            ///< the ranks along action.peer.axis; null: this rank is alone on it
  std::int64_t step;             ///< number of steps before this one
  Index rows;                    ///< rows of the batch on the ranks with equal weights after every step
  std::any& memory;              ///< storage of the action; kept from its start to its finish and for later steps
  Arrivals& arrivals;            ///< messages from any rank at any time
  ActionId id = -1;              ///< position of the action in its program
  Tensor* loss = nullptr;        ///< the loss of the step so far, to read and replace; undefined: none
  Executor* executor = nullptr;  ///< the rank that runs the action
  OwnPace* pace = nullptr;       ///< messages of ranks at their own pace

  /// The weights, gradients and states of the model.
  ParameterStore& store() const { return optimizer.parameters(); }
  /// The action's slice [size] of the weights, to read and write.
  Tensor values() const { return store().values().rows(action.slice.begin, action.slice.end); }
  /// The action's slice [size] of the gradients, to read and write; 0 where no backward has written.
  Tensor gradients() const {
    store().zero_missing_grads(action.slice);
    return store().grads().rows(action.slice.begin, action.slice.end);
  }
  /// The action's slice [size] of a state of the plan, to read and write.
  Tensor state(const std::string& name) const { return store().state(name).rows(action.slice.begin, action.slice.end); }
  /// This rank's shard of the action's slice.
  Slice shard() const { return comm ? shard_of(action, comm->rank(), comm->size()) : action.slice; }
  /// The ranks of comm to send to and receive from in this step (Peer::pairs).
  std::vector<RankPair> peers() const {
    return comm ? peers_at(action.peer, comm->rank(), comm->size(), step) : std::vector<RankPair>();
  }
  /// A number of Action::arguments. Throws Error if the name does not exist.
  double argument(const std::string& name) const;
  int ranks() const { return comm ? comm->size() : 1; }  ///< number of ranks of comm
  /// Combines x over the ranks of comm, and waits for it. A rank that is alone leaves x as it is.
  void all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum) const {
    if (comm) comm->all_reduce(x, op).wait();
  }
  /// The vectors of all ranks, in their order: [ranks(), size of x]. Waits for them.
  Tensor all_gather(const Tensor& x) const;
  /// Sends x to the ranks that peers() names, and receives theirs into `received`, in the order of peers().
  Work exchange(const Tensor& x, std::vector<Tensor>& received) const;
};

}  // namespace trireme

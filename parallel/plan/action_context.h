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

class Channels;  // parallel/async/channels.h

/// The library's kinds of actions that need more of a rank than an ActionContext: activations, gradient buckets, agreed
/// numbers. The executor (parallel/runtime/executor.h) implements them. An action that is in progress when
/// its function returns either returns its Work or has an end function.
class RankActions {
 public:
  virtual ~RankActions() = default;
  virtual Work pass(ActionId) = 0;                ///< forward, backward or one of its halves
  virtual Work loss(ActionId) = 0;                ///< the loss of a micro-batch
  virtual Work free(ActionId) = 0;                ///< releases activations
  virtual Work send(ActionId) = 0;                ///< a message to another stage
  virtual Work receive(ActionId) = 0;             ///< a message from another stage
  virtual void end_receive(ActionId) = 0;         ///< ends receive()
  virtual Work reduce(ActionId) = 0;              ///< all_reduce or reduce_scatter of gradients
  virtual void end_reduce(ActionId) = 0;          ///< ends reduce()
  virtual Work agree(ActionId) = 0;               ///< agrees on a number
  virtual void end_agree(ActionId) = 0;           ///< ends agree()
  virtual Work update(ActionId) = 0;              ///< the optimizer on a slice
  virtual Tensor step_loss() const = 0;           ///< the loss of the step so far; undefined: none
  virtual void set_step_loss(const Tensor&) = 0;  ///< replaces the loss of the step
};

/// The state of the step in which an action runs.
struct ActionContext {
  const Plan& plan;                ///< the plan of the step
  const Action& action;            ///< the action that runs
  Optimizer& optimizer;            ///< of this rank's model
  Communicator* comm;              ///< the ranks along action.peer.axis; null: this rank is alone on it
  std::int64_t step;               ///< number of steps before this one
  Index rows;                      ///< rows of the batch on the ranks with equal weights after every step
  std::any& memory;                ///< storage of the action; kept from its start to its finish and for later steps
  Arrivals& arrivals;              ///< messages from any rank at any time
  ActionId id = -1;                ///< position of the action in its program
  RankActions* actions = nullptr;  ///< the rank that runs the action
  Channels* channels = nullptr;    ///< messages of ranks at their own pace

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

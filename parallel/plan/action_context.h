// ActionContext: what an action of a kind of the caller's own (parallel/plan/action_row.h) finds when it runs.
#pragma once
#include <any>
#include <string>

#include "framework/optim/optimizer.h"
#include "parallel/comm/arrivals.h"
#include "parallel/plan/peers.h"

namespace trireme {

struct ActionContext {
  const Plan& plan;
  const Action& action;
  Optimizer& optimizer;
  Communicator* comm;  ///< the ranks along action.peer.axis; null: this rank is alone on it
  std::int64_t step;   ///< steps before this one
  Index rows;          ///< of the batch, on the ranks that have the same weights after every step
  std::any& memory;    ///< the action's own, from its start to its finish, and on to the next step
  Arrivals& arrivals;  ///< of messages that others send to this rank when it suits them

  ParameterStore& store() const { return optimizer.parameters(); }
  /// The action's slice [size] of weights, of gradients (those that no backward has reached are 0 now), and of a state
  /// of the plan: to read and to write.
  Tensor values() const { return store().values().rows(action.slice.begin, action.slice.end); }
  Tensor gradients() const {
    store().zero_missing_grads(action.slice);
    return store().grads().rows(action.slice.begin, action.slice.end);
  }
  Tensor state(const std::string& name) const { return store().state(name).rows(action.slice.begin, action.slice.end); }
  /// The ranks of comm to send to and to receive from in this step (Peer::pairs).
  std::vector<RankPair> peers() const {
    return comm ? peers_at(action.peer, comm->rank(), comm->size(), step) : std::vector<RankPair>();
  }
  /// A number of Action::arguments. Throws Error where there is none of the name.
  double argument(const std::string& name) const;
};

}  // namespace trireme

// Custom strategies from one function. All ranks of a mesh axis call the function together: on the weights every few
// steps, or on the gradients in each step. Its messages and its state are declared as data. Plan checks, checkpoints,
// drawings, predicted times and counted bytes follow from the declaration. A strategy that needs more rewrites the plan
// (parallel/plan/plan.h).
//
//   Strategy local_means(int every) {  // local SGD (Stich, arXiv 1805.09767)
//     return periodically({.name = "local_means",
//                          .every = every,
//                          .sends = {CallKind::all_reduce},
//                          .run = [](ActionContext& now) { now.all_reduce(now.values(), ReduceOp::average); }});
//   }
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/plan/action_context.h"
#include "parallel/plan/action_row.h"
#include "parallel/plan/codec.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// A communicator call of a custom action, on one vector with an element for each weight of the action's slice.
struct SentVector {
  /// kind: all_reduce, broadcast, reduce or all_gather; or send: one message to each rank that CustomAction::peer
  /// names. all_gather: each rank gets the vectors of all ranks.
  SentVector(CallKind kind_, std::optional<DType> wire_ = {}) : kind(kind_), wire(wire_) {}
  CallKind kind;              ///< which operation
  std::optional<DType> wire;  ///< type of the elements; none: the type of the parameters
};

/// A function that all ranks along an axis call together, and its properties.
struct CustomAction {
  std::string name = {};  ///< in texts: lower case, words joined by _
  /// The function runs after steps from + every - 1, from + 2 every - 1, ..., counted from 0, that are below `until`.
  std::int64_t every = 1,              ///< steps from one run to the next, at least 1
      from = 0,                        ///< first step of the first period, at least 0
      until = Trigger::forever;        ///< first step without the function, above from
  std::string axis = "data";           ///< mesh axis of the ranks; empty (act_on_weights only): each rank acts alone
  std::vector<SentVector> sends = {};  ///< the calls of one run, in order
  std::vector<State> keeps = {};       ///< states of one number per weight, stored in checkpoints
  std::vector<State> remembers = {};   ///< further states; they start as the weights at the beginning of step `from`
  /// Numbers that the function depends on, by name. Ranks compare them; now.argument(name) reads them.
  std::vector<std::pair<std::string, double>> arguments = {};
  /// Whether all ranks of the axis have the same weights afterwards. False: weights only become more similar
  /// (Consistency::Kind::gossip).
  bool alike = true;
  Peer peer = {};  ///< of messages: the graph, for example {.pairs = "ring"}; its axis is `axis`
  std::function<void(ActionContext&)> run = {};  ///< all ranks of the axis call it; it may wait for its messages
  Claim claim = Claim::statistical;              ///< relation to the serial run
  std::string phase = {};                        ///< name of the phase; empty: `name` and the axis
  /// Members that are set replace those that follow from this declaration: for example costs, or start and finish
  /// functions that overlap messages with other work.
  ActionRow row = {};
};

/// A strategy in which each rank trains on its own rows, and the action changes the weights after the updates of the
/// given steps. In the function, now.values() are the weights of a slice and now.state(name) is a state of the same
/// length. Batch norm uses each rank's rows.
Strategy periodically(CustomAction);
/// A strategy whose action changes the gradients, now.gradients(), before each update. With `sends` the action replaces
/// the sum of gradients over the axis: each rank's gradients are means over its own rows, and batch norm uses these
/// rows. Without `sends` it changes gradients that are summed already, and all ranks must change them equally.
Strategy on_gradients(CustomAction);
/// A strategy that sends gradients encoded: each reduction of gradients gets the codec with these arguments. Applies
/// data_parallel first if nothing is reduced yet. codec must outlive the strategy.
Strategy on_gradients(const Codec& codec, const std::vector<std::pair<std::string, double>>& arguments = {});

/// For strategies of several actions: adds an action on the weights to the plan, after all other actions that write
/// them. The caller sets Plan::consistency.
void act_on_weights(Plan&, const CustomAction&);
/// For strategies of several actions: adds an action on the gradients to the plan, before the updates.
void act_on_gradients(Plan&, const CustomAction&);

/// The plan whose reductions of gradients get the codec. strategy: its name, for messages. Applies data_parallel first
/// if nothing is reduced yet.
Plan encode_gradients(Plan, const std::string& strategy, const Codec&,
                      const std::vector<std::pair<std::string, double>>& arguments);

}  // namespace trireme

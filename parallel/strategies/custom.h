// Custom strategies from one function: a function that all ranks of a mesh axis call together, every few steps on the
// weights, or in each step on the gradients. What the function sends and keeps is declared as data; plan checks,
// checkpoints, drawings, predicted times and counted bytes follow from it. A strategy that needs more rewrites the plan
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

/// A communicator call of a custom action, on a vector of the slice's size.
struct SentVector {
  /// kind: all_reduce, broadcast, reduce, or all_gather of each rank's vector. send: one message to each rank that
  /// CustomAction::peer names.
  SentVector(CallKind kind_, std::optional<DType> wire_ = {}) : kind(kind_), wire(wire_) {}
  CallKind kind;              ///< which operation
  std::optional<DType> wire;  ///< type of the elements; none: the type of the parameters
};

/// A function of the ranks along an axis, and what it does.
struct CustomAction {
  std::string name = {};               ///< in texts: lower case, words joined by _
  std::int64_t every = 1,              ///< steps from one run to the next; it runs after the last of them
      from = 0,                        ///< first step, from 0, of the first `every` steps
      until = Trigger::forever;        ///< first step without it
  std::string axis = "data";           ///< mesh axis of the ranks; empty, for act_on_weights: each acts alone
  std::vector<SentVector> sends = {};  ///< the calls of one run, in order
  std::vector<State> keeps = {};       ///< one number per weight each, stored in checkpoints
  std::vector<State> remembers = {};   ///< the same, with the values of the weights at the beginning of step `from`
  /// Numbers that the function depends on, by name. Ranks compare them; now.argument(name) reads them.
  std::vector<std::pair<std::string, double>> arguments = {};
  /// Whether the ranks have the same weights after it; false: they only come nearer (Consistency::Kind::gossip).
  bool alike = true;
  Peer peer = {};  ///< of messages, the graph: {.pairs = "ring"}; its axis is the one above
  std::function<void(ActionContext&)> run = {};  ///< called by all ranks of the axis; may wait for its calls
  Claim claim = Claim::statistical;              ///< relation to the serial run
  std::string phase = {};                        ///< name of the phase; empty: the name, and the axis
  /// Members that are set take the place of what follows from the declarations: costs, a letter, start and finish that
  /// overlap calls with other work.
  ActionRow row = {};
};

/// Each rank trains on its own rows, and the action changes weights after each update that its steps name. In the
/// function, now.values() are the weights and now.state(name) is a kept state: the slices of one program's weights.
/// Batch norm uses each rank's rows.
Strategy periodically(CustomAction);
/// The action changes gradients, now.gradients(), before each update. With `sends` it takes the place of the sum over
/// the axis: each rank's gradients are means over its own rows, and batch norm uses these. Without, it changes what is
/// reduced already; all ranks must change it alike.
Strategy on_gradients(CustomAction);
/// Sends gradients encoded: all_reduce gets the codec, with these arguments. It brings data_parallel along if nothing
/// is reduced yet. codec must outlive the strategy.
Strategy on_gradients(const Codec& codec, const std::vector<std::pair<std::string, double>>& arguments = {});

/// For strategies of several actions: the plan with the action on the weights, after everything else that writes them.
/// Plan::consistency is left to the caller.
void act_on_weights(Plan&, const CustomAction&);
/// The same on the gradients, before the updates.
void act_on_gradients(Plan&, const CustomAction&);

/// The plan with encoded sums of gradients: data_parallel's, which it brings along if nothing is reduced yet.
Plan encode_gradients(Plan, const std::string& strategy, const Codec&,
                      const std::vector<std::pair<std::string, double>>& arguments);

}  // namespace trireme

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

/// A function that all ranks along an axis call together, and its properties.
struct CustomAction {
  std::string name = {};               ///< in texts: lower case, words joined by _
  std::int64_t every = 1,              ///< steps from one run to the next; it runs after the last of them
      from = 0,                        ///< first step, from 0, of the first `every` steps
      until = Trigger::forever;        ///< first step without it
  std::string axis = "data";           ///< mesh axis of the ranks; empty (act_on_weights only): each rank acts alone
  std::vector<SentVector> sends = {};  ///< the calls of one run, in order
  std::vector<State> keeps = {};       ///< one number per weight each, stored in checkpoints
  std::vector<State> remembers = {};   ///< the same, with the values of the weights at the beginning of step `from`
  /// Numbers that the function depends on, by name. Ranks compare them; now.argument(name) reads them.
  std::vector<std::pair<std::string, double>> arguments = {};
  /// Whether all ranks have the same weights afterwards; false: they only become more similar
  /// (Consistency::Kind::gossip).
  bool alike = true;
  Peer peer = {};  ///< of messages, the graph: {.pairs = "ring"}; its axis is the one above
  std::function<void(ActionContext&)> run = {};  ///< called by all ranks of the axis; may wait for its calls
  Claim claim = Claim::statistical;              ///< relation to the serial run
  std::string phase = {};                        ///< name of the phase; empty: the name, and the axis
  /// Members that are set replace the values derived from the declarations: costs, letter, start and finish functions
  /// that overlap calls with other work.
  ActionRow row = {};
};

/// Each rank trains on its own rows. The action changes weights after the updates in the given steps. In the function,
/// now.values() are the weights and now.state(name) is a kept state, for a slice of the program's weights. Batch norm
/// uses each rank's rows.
Strategy periodically(CustomAction);
/// The action changes gradients, now.gradients(), before each update. With `sends` it replaces the sum over the axis:
/// each rank's gradients are means over its own rows, and batch norm uses these rows. Without `sends` it changes
/// reduced gradients, and all ranks must change them equally.
Strategy on_gradients(CustomAction);
/// Sends gradients encoded: all_reduce gets the codec with these arguments. Adds data_parallel if nothing is reduced
/// yet. codec must outlive the strategy.
Strategy on_gradients(const Codec& codec, const std::vector<std::pair<std::string, double>>& arguments = {});

/// For strategies of several actions: adds the action on weights after everything else that writes them. The caller
/// sets Plan::consistency.
void act_on_weights(Plan&, const CustomAction&);
/// The same on the gradients, before the updates.
void act_on_gradients(Plan&, const CustomAction&);

/// Adds encoded gradient sums to the plan. Applies data_parallel first if nothing is reduced yet.
Plan encode_gradients(Plan, const std::string& strategy, const Codec&,
                      const std::vector<std::pair<std::string, double>>& arguments);

}  // namespace trireme

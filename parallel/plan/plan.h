// Plan: what each role does in one step, as plain data: it can be printed, compared, hashed across ranks,
// checked, run, simulated and drawn. A strategy turns a plan into a plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "parallel/comm/call_kind.h"
#include "parallel/comm/world/axis.h"

namespace trireme {

/// The kinds of actions. What a kind reads and writes follows from its part, or from its slice of the flat buffers.
enum class ActionKind : std::uint8_t {
  forward,          ///< of one part and micro-batch
  loss,             ///< of one micro-batch's outputs
  backward,         ///< of one part and micro-batch, whole
  backward_input,   ///< its half that makes the gradient of the part's input (zero bubble: Qi et al., arXiv 2401.10241)
  backward_weight,  ///< its other half, which makes the gradients of the weights
  send,             ///< an activation over a cut, or its gradient, to peer
  recv,             ///< the same, from peer
  all_reduce,       ///< gradients of slice: summed on every rank of the axis
  reduce_scatter,   ///< gradients of slice: each rank has the sum of its shard
  all_gather,       ///< weights of slice: from each rank its shard
  broadcast,        ///< weights of slice: from peer.root
  update,           ///< the optimizer, on weights of slice
  average,          ///< running statistics of slice: their mean over the axis
  free,             ///< releases the activations of a micro-batch in the part's segment
  drop_gradients,   ///< of slice, all but this rank's shard: its memory is given back
  drop_values,      ///< the same of the weights; all_gather brings them again
  agree,  ///< a number of the step (field): the same on every rank of the axis; from peer.root if there is one
};
/// Actions of one stream start in list order; those of `compute` also end in that order.
enum class Stream : std::uint8_t { compute, comm };
using ActionId = int;  ///< position in its role's list

namespace detail {
/// The slices in order, neighbours joined to one.
std::vector<Slice> joined(std::vector<Slice>);
}  // namespace detail

/// With whom an action communicates.
struct Peer {
  /// Mesh axis of the message or collective; of an update or drop: whose ranks share the slice, each with a shard of
  /// its own (shard_of in parallel/plan/shards.h). Empty: none.
  std::string axis;
  int offset = 0;  ///< send/recv: peer's coordinate minus own
  int root = -1;   ///< the coordinate that gives (broadcast), or acts alone on the slice (update); -1: no single one
  bool operator==(const Peer&) const = default;  ///< member by member
};
/// One thing that a rank does in a step.
struct Action {
  ActionKind kind;                  ///< of computation, communication or memory
  Stream stream = Stream::compute;  ///< queue that runs it
  /// Index of the model part; -1: all or none. For send and recv: the part in front of the cut that is crossed, by its
  /// output from the role that runs it forward, by that output's gradient the other way.
  int part = -1;
  int microbatch = 0;     ///< in [0, Plan::microbatches)
  Slice slice = {};       ///< of the flat block, for collectives, update and drops
  Peer peer = {};         ///< of messages, collectives, and shared updates and drops
  bool on_ready = false;  ///< starts when the tape completes the gradients of slice, in the midst of `after`'s backward
  std::vector<ActionId> after = {};  ///< must have finished (on the other stream; within a stream the list order holds)
  std::string field =
      {};         ///< of agree: "loss" (its sum), "finite" (all gradients are), "norm" (squares of gradients, summed)
  int every = 1;  ///< steps from one time that it runs to the next, from step 0 on
  bool operator==(const Action&) const = default;  ///< member by member
};

/// One list of actions, run by every rank at a coordinate of the plan's stage_axis (all ranks, if there is one role).
struct Role {
  std::string name;             ///< "all", "stage 0"
  std::vector<Action> actions;  ///< in the order in which those of a stream start
  /// Micro-batches that may be alive at once (run forward by a segment of neighbouring parts, and not yet backward),
  /// counted once per segment; 0: any number. The executor asserts it.
  int in_flight = 0;
  bool operator==(const Role&) const = default;  ///< member by member
};
/// What a part costs for one micro-batch, measured on this machine or counted from shapes; zeros until then.
struct PartCost {
  double forward = 0,                                ///< seconds
      backward_input = 0,                            ///< seconds
      backward_weight = 0;                           ///< seconds
  Index saved = 0;                                   ///< bytes kept from forward for backward
  Index output = 0;                                  ///< bytes that cross a cut behind the part
  Index halo = 0;                                    ///< bytes that neighbours send, kept as long as saved
  bool operator==(const PartCost&) const = default;  ///< member by member
};
/// What a part's layers send for one micro-batch beside the plan's actions (batch norm's sums, halos, divided layers):
/// the calls of a kind along an axis, and their payload_bytes() (parallel/comm/world/traffic.h) together.
struct PartComm {
  CallKind kind;
  std::string axis;  ///< mesh axis, or several joined by +
  Index calls = 0, bytes = 0;
  ActionKind during;                                 ///< forward, loss, backward_input or backward_weight
  bool operator==(const PartComm&) const = default;  ///< member by member
};
/// What a plan knows of a model: the slice of the flat block behind each part, in forward order. Cost and comms are no
/// part of the plan's hash: they depend on the rows of a micro-batch, and ranks at an image's edge send less.
struct PartInfo {
  std::string name;          ///< of its layers: "0-2", "layer1.0"
  Slice slice;               ///< of its weights and biases in the flat block, elements
  PartCost cost = {};        ///< of one micro-batch; zeros until profiled
  Slice buffers = {};        ///< of all buffers, packed one behind the other
  Device device = {};        ///< its weights lie on: no bucket reaches over two
  std::string divided = {};  ///< mesh axis over which its weights are cut: no gradient of theirs is summed along it
  int outputs = 1;           ///< tensors that cross a cut behind it: its output, and what is stashed
  std::vector<PartComm> comms = {};                  ///< of one rank; empty until a dry run has found them
  bool operator==(const PartInfo&) const = default;  ///< member by member, cost included
};

/// One step of all ranks. A strategy takes a plan and returns another.
struct Plan {
  std::vector<PartInfo> parts;               ///< of the model, in forward order
  Index parameters = 0;                      ///< length of the flat block
  Index buffers = 0;                         ///< elements of all buffers (running statistics)
  std::vector<Role> roles;                   ///< one, or a pipeline's one per coordinate of stage_axis
  std::vector<std::string> strategies = {};  ///< names of those applied, in order
  std::string stage_axis = "pipe";           ///< mesh axis whose coordinate picks the role, where there are several
  int microbatches = 1;                      ///< micro-batches in a mini-batch
  std::vector<Axis> axes = {};               ///< of the mesh it is made for
  /// The layers that a pipeline's stages begin at, but for the first, as its option `partition` takes them ("3, 5");
  /// where it is not empty before, a pipeline that would choose by cost takes this cut.
  std::string partition = {};
  bool operator==(const Plan&) const = default;  ///< member by member, costs included

  int size(const std::string& axis) const;  ///< ranks along it; 1 where the mesh has no such axis
  int role_of(int part) const;              ///< the role that runs it forward; -1: none
  /// The axis over which gradients are summed, or several joined by + ("data+h"); "data" where none are.
  std::string reduced_axis() const;
  /// What role r changes, in order: the slices of its updates, neighbours joined.
  std::vector<Slice> updated(std::size_t role) const;
  std::string to_string() const;  ///< a table, one action a line
  /// A table, one line for the actions of a role that are alike: how many there are, and how many elements they move.
  std::string summary() const;
  std::uint64_t hash() const;  ///< equal plans, equal hashes: compared across ranks before step 1
};

std::string to_string(ActionKind);  ///< the enumerator: "all_reduce"
std::string to_string(Stream);      ///< "compute", "comm"
/// "all_reduce [0, 4096) over data, on ready": for error messages.
std::string to_string(const Action&);

/// Puts an action before position `at` of the role's list; ids in `after`, the new action's included, mean
/// positions before the insertion. Throws nothing; `at` in [0, number of actions].
void insert(Role&, ActionId at, Action);

/// Everything on one rank: forward, loss, backward of each part, update. axes: of the mesh that strategies may use.
Plan serial(std::vector<PartInfo> parts, Index parameters, Index buffers = 0, std::vector<Axis> axes = {});

/// What is wrong with a plan, one line each; empty: it is sound. Looks for unmatched or crossed messages,
/// deadlock, a gradient never or twice reduced, an update before its reduction, a backward before its
/// forward, dependencies on nothing. data_ranks: size of the axis "data".
std::vector<std::string> check(const Plan&, int data_ranks);

}  // namespace trireme

// Plan: the actions of each program in one step, as plain data. A plan can be printed, compared, hashed across ranks,
// checked, run, simulated and drawn. A strategy transforms a plan into another plan.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/parameters.h"
#include "parallel/comm/call_kind.h"
#include "parallel/comm/world/rank_grid.h"

namespace trireme {

struct ActionRow;  // parallel/plan/action_row.h

/// The kind of an action: one of the library's, or a custom row (parallel/plan/action_row.h) that defines how the
/// action runs, what it accesses and what it costs.
class ActionKind {
 public:
  /// row must outlive the kind; each kind has one row.
  constexpr ActionKind(const ActionRow& row) : row_(&row) {}
  /// A row that the kind and its copies keep alive.
  ActionKind(std::shared_ptr<const ActionRow> row) : row_(row.get()), owned_(std::move(row)) {}
  const ActionRow* operator->() const { return row_; }  ///< the kind's row
  /// The same row, or two owned rows of the same name and options.
  bool operator==(const ActionKind& other) const {
    return row_ == other.row_ || (owned_ && other.owned_ && is_like(other));
  }
  bool operator<(const ActionKind&) const;  ///< in the order of the list below, then by name and options

  // Passes. Each is of one part; those that follow each other run as one segment (parallel/plan/liveness.h).
  static const ActionKind forward;   ///< forward of one part and micro-batch
  static const ActionKind loss;      ///< loss of one micro-batch's outputs
  static const ActionKind backward;  ///< whole backward of one part and micro-batch
  /// The half of a backward that computes the gradient of the part's input (zero bubble: Qi et al., arXiv 2401.10241).
  static const ActionKind backward_input;
  static const ActionKind backward_weight;  ///< the other half, which computes the gradients of the weights
  static const ActionKind send;             ///< the payload to peer: to another stage, or to a channel
  static const ActionKind recv;             ///< the payload from peer: from another stage, or from a channel
  /// The sum of gradients of slice, or the mean of weights or statistics (payload), on every rank of the axis. With
  /// peer.members: over the programs that share these weights (parallel/plan/ties.h); each then updates its copy.
  static const ActionKind all_reduce;
  static const ActionKind reduce_scatter;  ///< gradients of slice: each rank has the sum of its shard
  static const ActionKind all_gather;      ///< slice of the payload: from each rank its shard
  static const ActionKind broadcast;       ///< slice of the payload: from peer.root
  static const ActionKind update;          ///< the optimizer, on weights of slice
  static const ActionKind free;            ///< releases the activations of a micro-batch in the part's segment
  /// Frees slice of the gradients or weights (payload), except this rank's shard; all_gather restores weights.
  static const ActionKind drop;
  /// Makes a number of the step (payload) equal on every rank of the axis; from peer.root if there is one.
  static const ActionKind agree;

 private:
  bool is_like(const ActionKind&) const;
  const ActionRow* row_;
  std::shared_ptr<const ActionRow> owned_;  // null for a row that is a constant
};

/// Actions of one stream start in list order. Actions of `compute` also end in that order.
enum class Stream : std::uint8_t { compute, comm };
using ActionId = int;  ///< position in its program's list

namespace detail {
/// The slices in order, neighbours joined to one.
std::vector<Slice> joined(std::vector<Slice>);
}  // namespace detail

/// The partners of an action, along a mesh axis. One of six cases; check() refuses an action that mixes them:
/// - all ranks along the axis: collectives. They divide the slice of an update or drop (parallel/plan/shards.h).
/// - `members`: some of these ranks, which sum the gradients of tied weights.
/// - `root`: one rank, which broadcasts, or which alone updates the slice.
/// - `offset`: another pipeline stage, for send and recv.
/// - `pairs`: ranks by a rule (parallel/plan/peers.h), for custom kinds.
/// - `channel`: ranks at their own pace, for send and recv (parallel/async/channel_plan.h).
struct Peer {
  std::string axis = {};          ///< mesh axis, or several joined by + ("data+h"); empty: none
  int offset = 0;                 ///< the peer's coordinate minus this rank's; 0: none
  int root = -1;                  ///< coordinate along axis; -1: none
  std::vector<int> members = {};  ///< coordinates along axis, ascending; empty: all
  std::string pairs = {};         ///< "ring", "torus", "matching", ...; empty: none
  std::uint64_t seed = 0;         ///< random seed of pairs
  std::string channel = {};       ///< name of the channel at root; its messages arrive in order; empty: none
  /// Channels: number of neighbouring ranks per peer; the first group uses root, the next group the next rank. 0: all
  /// ranks use root (root_of in parallel/async/channel_plan.h).
  int per_root = 0;
  std::string senders_of = {};  ///< channels, no root: sends to all ranks that send to this channel of this rank
  bool operator==(const Peer&) const = default;  ///< member by member
};
/// The kind of a piece of data that actions read, write, send or agree on (parallel/plan/operands.h).
enum class OperandKind : std::uint8_t {
  none,        ///< Action::payload: the action sends nothing, or its kind says what
  weights,     ///< a slice of the flat block of values
  gradients,   ///< a slice of the flat block of gradients
  statistics,  ///< running statistics: a slice of the packed buffers
  state,       ///< a slice of the Plan::state with the name; without a name, of each state of the optimizer
  activation,  ///< output of a part, of one micro-batch
  cotangent,   ///< gradient of an activation
  scratch,     ///< private data of the action, by name
  /// Agree: the sum of the loss; send: the sender's loss; recv: the mean of the losses.
  loss,
  count,  ///< agree: the number of labels that the loss ignores
  norm,   ///< agree: the sum of the squares of gradients
  /// Agree: the sums of squares from which trust ratios follow (Optimizer::start_update). Action::slice has two
  /// elements for each tensor.
  ratios,
  flags,  ///< agree: flags of the plan by name; `finite_gradients`: whether all gradients are finite
  first,  ///< agree, on call: the first layer with a number that is not finite
  /// Channels: the number of updates of the sender. A rank that has received clocks resumes at the step of the lowest
  /// clock. In the steps before, it only sends the loss that it computed last.
  clock,
  /// Channels: the number of the receiver's next ticket, -1 if no ticket is left; a worker sends the number of the
  /// ticket that it trains.
  ticket,
  senders,  ///< send to a server: the ranks whose messages have started the phase (Trigger::chosen)
  lengths,  ///< on call: lengths of texts
  texts,    ///< on call: texts about a checkpoint
};

/// The flag of Action::names for whether all gradients are finite; no flag of the plan has this name.
inline constexpr const char* finite_gradients = "finite";

/// A micro-batch of a step, or of an earlier step in an asynchronous pipeline.
struct MicroBatch {
  int index = 0;  ///< in [0, Plan::microbatches)
  /// Number of steps since the step that brought the micro-batch; 0 for forwards. In the first steps, and in the first
  /// steps after a flush (phases::flush), there is no such micro-batch, and its actions do not run.
  int steps_ago = 0;
  constexpr MicroBatch(int index = 0, int steps_ago = 0) : index(index), steps_ago(steps_ago) {}
  /// The micro-batch at a position in the sequence of all steps; 0 is the first of this step, -1 the last of the step
  /// before. microbatches: number per step.
  static constexpr MicroBatch at(int position, int microbatches) {
    const int steps_ago = position < 0 ? (microbatches - 1 - position) / microbatches : 0;
    return {position + steps_ago * microbatches, steps_ago};
  }
  bool operator==(const MicroBatch&) const = default;  ///< member by member
  /// Older micro-batches are less.
  std::strong_ordering operator<=>(const MicroBatch& other) const {
    return steps_ago != other.steps_ago ? other.steps_ago <=> steps_ago : index <=> other.index;
  }
};
std::string to_string(const MicroBatch&);  ///< "2", "2 of 1 step ago"

struct Codec;  // parallel/plan/codec.h
/// One thing that a rank does in a step.
struct Action {
  ActionKind kind;                  ///< of computation, communication or memory
  Stream stream = Stream::compute;  ///< queue that runs it
  int part = -1;                    ///< index of the model part; -1: all or none
  MicroBatch microbatch = {};  ///< of passes, messages between stages, frees, and updates of an asynchronous pipeline
  Slice slice = {};            ///< of the flat block, for collectives, update and drops; of ratios
  Peer peer = {};              ///< of messages, collectives, and shared updates and drops
  bool on_ready = false;  ///< reductions: starts as soon as the backward in `after` completes the gradients of slice
  std::vector<ActionId> after = {};  ///< must have finished (on the other stream; within a stream the list order holds)
  /// What messages and collectives send, agreements agree on, and drops free.
  OperandKind payload = OperandKind::none;
  std::vector<std::string> names = {};  ///< of the payload: flags, or the state
  int phase = 0;                        ///< index in Program::phases; the action runs when the phase runs
  /// Sums over replicas (is_replica_sum): the mesh axes, joined by +, whose ranks have divided the slice. Each rank
  /// sums its shard of the slice only. Empty: the action is no such sum.
  std::string shard_axis = {};
  const Codec* codec = nullptr;                                ///< encodes what a reduction sends; null: no encoding
  std::vector<std::pair<std::string, double>> arguments = {};  ///< numbers of the kind, by name: mixing weights
  /// Weight version that a pass reads: 0 is the newest, k is k updates old. With fewer than k updates since the first
  /// step or the last flush: the weights of that moment.
  int version = 0;
  bool operator==(const Action&) const = default;  ///< member by member
};

/// When a phase runs. One of three ways; the members of the other ways are unused:
/// - By steps: in the steps s, counted from 0, with from <= s < until and s mod every = offset.
/// - By messages: once `count` different ranks have sent a message to the channel.
/// - On call: between steps.
struct Trigger {
  /// No end.
  static constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();
  std::int64_t every = 1,    ///< at least 1
      offset = 0,            ///< in [0, every)
      from = 0,              ///< at least 0
      until = forever;       ///< above from
  std::string channel = {};  ///< channel whose messages start the phase; empty: by steps
  int count = 1;             ///< messages per run, each from another rank; 0: one from every rank that sends there
  /// A further channel. Each message, of clock c, waits until every rank that sends to this channel has had a message
  /// of clock c - staleness or more taken there (stale synchronous parallel: Ho et al., NIPS 2013). Empty: none.
  std::string guard = {};
  std::int64_t staleness = 0;  ///< at least 0, in steps
  /// Takes the channel's late messages, whose clock is not newer than the last one that the channel's other phase took.
  /// That phase takes the first `count` messages of each clock; the rest are from backup workers (Chen et al., arXiv
  /// 1604.00981).
  bool late = false;
  /// A channel on which another rank sends "senders": the phase takes messages of these ranks instead of the first
  /// ones.
  std::string chosen = {};
  bool on_call = false;  ///< ranks run the phase between steps, when its name is called (parallel/strategies/on_call.h)
  /// Whether steps start the phase, not messages or a call.
  bool by_step() const { return channel.empty() && !on_call; }
  /// The first step in which it runs, ignoring `until`.
  std::int64_t first() const { return from + ((offset - from) % every + every) % every; }
  /// Whether the phase runs in this step.
  bool runs_at(std::int64_t step) const { return by_step() && from <= step && step < until && step % every == offset; }
  bool operator==(const Trigger&) const = default;  ///< member by member
};
/// "every 4 steps from 100 on", "by 2 messages on gradients"; empty: in every step.
std::string to_string(const Trigger&);
/// Actions that run in the same steps, by the same messages, or when called, in list order; phases do not overlap.
struct ProgramPhase {
  std::string name;      ///< "step", "check gradients", "evaluation"
  Trigger trigger = {};  ///< when they run
  bool last = false;     ///< a server's step ends after this phase
  /// Of a phase on call; `after` has positions in this list. The actions of other phases are in Program::actions.
  std::vector<Action> actions = {};
  bool operator==(const ProgramPhase&) const = default;  ///< member by member
};

/// One list of actions. Collectives along an axis are among the ranks of the program there.
struct Program {
  std::string name;                  ///< "all", "stage 0", "server 1"
  std::vector<Action> actions = {};  ///< in the order in which those of a stream start
  /// The most micro-batches in flight: run forward, and not yet backward. A micro-batch counts once per segment
  /// (parallel/plan/liveness.h). 0: no limit. The executor throws Error beyond it.
  int in_flight = 0;
  std::vector<ProgramPhase> phases = {{"step"}};  ///< the first is the default of Action::phase
  /// The ranks that run it: the ranks in all of these ranges. Empty: in a pipeline, the ranks at the program's index
  /// along Plan::stage_axis; otherwise all ranks.
  std::vector<CoordinateRange> where = {};
  int versions = 1;  ///< number of weight versions in memory: the newest, and earlier ones
  /// When an action of the program runs.
  const Trigger& trigger(const Action& a) const { return phases[static_cast<std::size_t>(a.phase)].trigger; }
  /// Whether messages start its phases. Its ranks are then servers.
  bool serves() const;
  bool operator==(const Program&) const = default;  ///< member by member
};
/// Index of the phase with this name; adds the phase if there is none. Throws Error if it has another trigger.
int add_phase(Program&, const std::string& name, const Trigger&);

/// Numbers that are kept from step to step in addition to weights and optimizer state: one per parameter.
struct State {
  std::string name;    ///< name in operands of actions and in files
  double initial = 0;  ///< value at the start of training
  bool saved = true;   ///< whether checkpoints store it; false: a resumed run starts from initial
  /// Whether ranks with the same weights have the same numbers (an outer momentum, after the step that averages
  /// weights). False: each rank has its own (a codec's residual), which no other layout of ranks can resume.
  bool replicated = false;
  std::optional<DType> dtype = {};                ///< none: type of the parameters
  bool operator==(const State&) const = default;  ///< member by member
};

/// When the ranks along an axis have the same weights.
struct Consistency {
  /// The rule for the weights of ranks.
  enum class Kind : std::uint8_t {
    synchronous,  ///< after each step: each gradient is reduced once, then used by one update
    periodic,     ///< after every `bound` steps, in which an action writes all weights with the ranks of the axis
    /// Never, but no rank is more than `bound` steps ahead. Along Plan::stage_axis, where ranks have different parts of
    /// the model: gradients are of weights that are at most `bound` updates old.
    stale,
    /// In the mean: actions average weights by a doubly stochastic matrix. `bound` is `unbounded` if the ranks do so
    /// by asynchronous messages (ActionRow::flush).
    gossip
  };
  static constexpr std::int64_t unbounded = Trigger::forever;  ///< no bound
  Kind kind = Kind::synchronous;                               ///< which rule
  std::int64_t bound = 0;                                      ///< in steps; `unbounded`: any number
  bool operator==(const Consistency&) const = default;         ///< member by member
};
std::string to_string(const Consistency&);  ///< "synchronous", "periodic(8)", "stale(unbounded)"

/// What a part costs for one micro-batch, measured on this machine or counted from shapes; zeros until then.
struct PartCost {
  double forward = 0,       ///< seconds
      backward_input = 0,   ///< seconds
      backward_weight = 0;  ///< seconds
  Index saved = 0;          ///< bytes kept from forward for backward
  Index output = 0;         ///< bytes that cross a cut after the part
  Index halo = 0;           ///< bytes that neighbours send, kept as long as saved
  Index unsaved = 0;        ///< bytes of output that are not in saved: kept only at a cut
  Index offloaded = 0;      ///< the part of `saved` that waits in host memory
  /// Bytes of activations, halos, copies that are sent or summed together (MemoryKind::packed), and activations in host
  /// memory, in this order.
  using Bytes = std::array<Index, 4>;
  /// The most bytes while a pass of the part runs: tensors that the part keeps, gradients of activations, operands of
  /// kernels. Tensors that earlier parts of its segment keep do not count. Zeros until a dry run has counted them.
  Bytes forward_bytes = {},                          ///< of the last part: with the loss
      backward_bytes = {},                           ///< both halves at once
      backward_input_bytes = {},                     ///< without `deferred_bytes` of the parts after it
      backward_weight_bytes = {};                    ///< without `deferred_bytes` of the parts before it
  Bytes deferred_bytes = {};                         ///< kept from backward_input for backward_weight
  bool operator==(const PartCost&) const = default;  ///< member by member
};
/// A part of the model: layers that run together. The plan's hash leaves out cost, comms and tensors, which may differ
/// between ranks: ranks may have other numbers of rows, send less at the edge of an image, or have another shard of a
/// tensor. It also leaves out read_as, which ranks agree on when they have found it.
struct PartInfo {
  std::string name;        ///< of its layers: "0-2", "layer1.0"
  Slice slice;             ///< of its weights and biases in the flat block, elements
  PartCost cost = {};      ///< of one micro-batch; zeros until profiled
  Slice buffers = {};      ///< of its running statistics in the packed block of all parts' statistics, elements
  int buffer_tensors = 0;  ///< number of tensors in `buffers`, without empty ones
  Device device = {};      ///< of its weights; the weights of a bucket are on one device
  /// By mesh axes, joined by +: slices of weights, with the padding after them, whose gradients are not summed along
  /// these axes. Each rank has another shard of these weights, or computes the whole gradient. In order.
  std::map<std::string, std::vector<Slice>> divided = {};
  int outputs = 1;  ///< number of tensors that cross a cut after it: its output and stashed tensors
  /// By pass (forward, loss, backward_input or backward_weight): the calls that the part's layers make on one rank for
  /// one micro-batch: sums of batch norm, halos, divided layers. The plan has no actions for them. Empty until a dry
  /// run has found them.
  std::map<ActionKind, std::vector<PlannedCall>> comms = {};
  /// Shapes of its weights and biases, by first element in the flat block. If ranks divide a tensor: the shape of this
  /// rank's shard. Empty tensors are left out. A tied tensor is listed at the part that holds it.
  std::map<Index, Shape> tensors = {};
  /// Tied weights: the slices of tensors that an earlier part holds and this part uses, too, with the padding after
  /// them.
  std::vector<Slice> tied = {};
  /// Types of 2 bytes, by first element of a tensor in `tensors`: the passes of all parts read this f32 weight only to
  /// convert it to this type. Weights that a kernel also reads in f32 are left out. Empty until a dry run has found
  /// them.
  std::map<Index, DType> read_as = {};
  bool operator==(const PartInfo&) const = default;  ///< member by member, cost included
};

/// One step of all ranks. A strategy takes a plan and returns another.
struct Plan {
  std::vector<PartInfo> parts;    ///< of the model, in forward order
  Index parameters = 0;           ///< length of the flat block
  Index buffers = 0;              ///< elements of all buffers (running statistics)
  std::vector<Program> programs;  ///< one; in a pipeline, one per coordinate of stage_axis; several: Program::where
  std::vector<std::string> strategies = {};  ///< names of the applied strategies, in order
  std::string stage_axis = "pipe";           ///< mesh axis of a pipeline: its coordinate is the index of the program
  int microbatches = 1;                      ///< micro-batches in a mini-batch
  std::vector<Axis> axes = {};               ///< of the mesh that the plan is for
  std::vector<State> state = {};             ///< kept from step to step, with weights and optimizer state
  std::vector<std::string> flags = {};       ///< names of flags that a rank may raise; `agree` gives them to all ranks
  std::map<std::string, Consistency> consistency = {};  ///< by axis; an axis without an entry is synchronous
  /// The first layers of a pipeline's stages, without stage 0, as in the pipeline's option `partition` ("3, 5"). If it
  /// is set before, a pipeline that would choose the cuts by cost uses these cuts.
  std::string partition = {};
  std::int64_t epoch_steps = 0;  ///< steps of an epoch, for strategies that change with epochs; 0: not known
  /// Set before strategies are applied. True: asynchronous workers ask for tickets, which are shares of global batches
  /// (parallel/async/tickets.h). False: each rank takes its share of every batch.
  bool wants_tickets = false;
  int tickets = 0;        ///< tickets per global batch; 0: no program hands them out
  int tickets_ahead = 1;  ///< tickets that a worker holds: it reads the rows of one while it trains another
  bool operator==(const Plan&) const = default;  ///< member by member, costs included

  int size(const std::string& axis) const;  ///< ranks along an axis; 1 if the mesh does not have the axis
  /// Ranks of the program along an axis.
  int size(const Program&, const std::string& axis) const;
  /// Ranks that take part in an action of the program with this peer.
  int size(const Program&, const Peer&) const;
  /// The coordinates of the program along an axis of the mesh.
  CoordinateRange range(const Program&, const std::string& axis) const;
  /// The index of the program of the rank with these coordinates, by axis. Throws Error if there is none.
  int program_at(const std::function<int(const std::string&)>& coordinate) const;
  /// Whether programs differ along stage_axis, as a pipeline's do.
  bool has_stages() const;
  int program_of(int part) const;  ///< index of the program that runs the part forward; -1: none
  /// The axis over which gradients are summed, or several joined by + ("data+h"); "data" if the plan sums none.
  /// Gradients of some weights are not summed over all of these axes (PartInfo::divided).
  std::string reduced_axis() const;
  /// The consistency along an axis. Of several axes joined by +: along the first one that is not synchronous.
  Consistency consistency_along(const std::string& axis) const;
  /// The synchronous ones of several axes, joined by +. Ranks along these axes train together, as one worker. Empty: a
  /// worker is one rank.
  std::string synchronous_axes(const std::string& axes) const;
  /// The slices that a program updates, in order. Neighbours are joined, except tied weights (ties_of): each of them
  /// has the same slice in all of its programs.
  std::vector<Slice> updated(std::size_t program) const;
  std::string to_string() const;  ///< a table with one line per action
  /// A table with one line per group of similar actions of a program: their number, and the elements that they move.
  std::string summary() const;
  std::uint64_t hash() const;  ///< equal plans, equal hashes: compared across ranks before step 1
};

std::string to_string(ActionKind);   ///< the name of its row: "all_reduce"
std::string to_string(OperandKind);  ///< "weights", "gradient of the activation"
/// What the action sends or agrees on: "weights", the name of a state, flags joined by + ("finite+stop"); empty:
/// nothing.
std::string payload_of(const Action&);
std::string to_string(Stream);  ///< "compute", "comm"
/// "all_reduce gradients [0, 4096) over data, on ready": for error messages.
std::string to_string(const Action&);

/// Inserts an action before position `at` of the program's list, in [0, number of actions]. Ids in `after`, also those
/// of the new action, are positions before the insertion. Throws nothing.
void insert(Program&, ActionId at, Action);

/// The plan of one rank without strategies: forward, loss and backward of each part, update. parameters, buffers:
/// elements of the flat block and of all running statistics. axes: of the mesh that strategies may use.
Plan serial(std::vector<PartInfo> parts, Index parameters, Index buffers = 0, std::vector<Axis> axes = {});

/// The faults of a plan, one line each; empty: it is sound. Finds unmatched or crossed messages, deadlocks, gradients
/// that are not reduced or reduced twice, updates before their reduction, backwards before their forward, dependencies
/// on actions that do not exist. data_ranks: number of ranks whose gradients are summed.
std::vector<std::string> check(const Plan&, int data_ranks);

}  // namespace trireme

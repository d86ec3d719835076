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

  static const ActionKind forward;   ///< forward of one part and micro-batch
  static const ActionKind loss;      ///< loss of one micro-batch's outputs
  static const ActionKind backward;  ///< whole backward of one part and micro-batch
  /// The half of a backward that computes the gradient of the part's input (zero bubble: Qi et al., arXiv 2401.10241).
  static const ActionKind backward_input;
  static const ActionKind backward_weight;  ///< the other half, which computes the gradients of the weights
  static const ActionKind send;             ///< the activation of part, or its gradient (payload), to peer
  static const ActionKind recv;             ///< the activation of part, or its gradient (payload), from peer
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

/// Actions of one stream start in list order; those of `compute` also end in that order.
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
/// - `channel`: ranks at their own pace, for push and pull (parallel/async/channel_plan.h).
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
  std::string senders_of = {};  ///< channels, no root: sends to all ranks that push to this channel of this rank
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
  /// Agree: the sum of the loss; push: the sender's loss; take: the mean of the losses.
  loss,
  count,  ///< agree: the number of labels that the loss ignores
  norm,   ///< agree: the sum of the squares of gradients
  flags,  ///< agree: flags of the plan by name; `finite_gradients`: whether all gradients are finite
  first,  ///< agree, on call: the first layer with a number that is not finite
  /// Push and pull: the number of updates of the sender. A rank that has pulled clocks resumes at the step of the
  /// lowest clock. In the steps before, it only pushes the loss that it computed last.
  clock,
  /// Push and pull: the number of the receiver's next ticket, -1 if no ticket is left; a worker pushes the number of
  /// the ticket that it trains.
  ticket,
  senders,  ///< push to a server: the ranks whose messages have started the phase (Trigger::chosen)
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
  Slice slice = {};            ///< of the flat block, for collectives, update and drops
  Peer peer = {};              ///< of messages, collectives, and shared updates and drops
  bool on_ready = false;  ///< starts when the tape completes the gradients of slice, in the midst of `after`'s backward
  std::vector<ActionId> after = {};  ///< must have finished (on the other stream; within a stream the list order holds)
  /// What messages and collectives send, agreements agree on, and drops free.
  OperandKind payload = OperandKind::none;
  std::vector<std::string> names = {};  ///< of the payload: flags, or the state
  int phase = 0;                        ///< of Program::phases: it runs in steps in which the phase does
  const Codec* codec = nullptr;         ///< of what a reduction sends; null: as it is
  std::vector<std::pair<std::string, double>> arguments = {};  ///< numbers of the kind's own, by name: mixing weights
  /// Of passes: how many updates the weights that they read are older than the newest ones. If there were fewer updates
  /// since the first step or the last flush, the weights of that moment.
  int version = 0;
  bool operator==(const Action&) const = default;  ///< member by member
};

/// When a phase runs. By steps: in the steps s, counted from 0, with from <= s < until and s mod every = offset. By
/// messages: once `count` different ranks have pushed a message to the channel. On call: between steps. The members of
/// the other ways are then unused.
struct Trigger {
  /// No end.
  static constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();
  std::int64_t every = 1,    ///< at least 1
      offset = 0,            ///< in [0, every)
      from = 0,              ///< at least 0
      until = forever;       ///< above from
  std::string channel = {};  ///< channel whose messages start the phase; empty: by steps
  int count = 1;             ///< messages per run, each from another rank; 0: one from every rank that pushes there
  /// A further channel. Each message, of clock c, waits until every rank that pushes to this channel has had a message
  /// of clock c - staleness or more taken there (stale synchronous parallel: Ho et al., NIPS 2013). Empty: none.
  std::string guard = {};
  std::int64_t staleness = 0;  ///< at least 0, in steps
  /// Takes the channel's late messages, whose clock is not newer than the last one that the channel's other phase took.
  /// That phase takes the first `count` messages of each clock; the rest are from backup workers (Chen et al., arXiv
  /// 1604.00981).
  bool late = false;
  /// A channel on which another rank pushes "senders": the phase takes messages of these ranks instead of the first
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
  bool last = false;     ///< a step of a program that messages drive ends with it
  /// Of a phase on call; `after` has positions in this list. Other phases have theirs in Program::actions.
  std::vector<Action> actions = {};
  bool operator==(const ProgramPhase&) const = default;  ///< member by member
};

/// One list of actions. Collectives along an axis are among the ranks of the program there.
struct Program {
  std::string name;                  ///< "all", "stage 0", "server 1"
  std::vector<Action> actions = {};  ///< in the order in which those of a stream start
  /// Micro-batches that may be alive at once (run forward by a segment of neighbouring parts, and not yet backward),
  /// counted once per segment; 0: any number. The executor asserts it.
  int in_flight = 0;
  std::vector<ProgramPhase> phases = {{"step"}};  ///< the first is the default of Action::phase
  /// The ranks that run it: in all of these ranges. Empty: of several programs, those at its index along the plan's
  /// stage_axis; else all.
  std::vector<CoordinateRange> where = {};
  int versions = 1;  ///< of its weights that it keeps: the newest, and those that updates replaced
  /// When an action of the program runs.
  const Trigger& trigger(const Action& a) const { return phases[static_cast<std::size_t>(a.phase)].trigger; }
  /// Whether messages start what it does: its ranks serve others.
  bool serves() const;
  bool operator==(const Program&) const = default;  ///< member by member
};
/// The phase of that name, as an index; made if there is none. Throws Error where there is one with another trigger.
int add_phase(Program&, const std::string& name, const Trigger&);

/// Numbers that live across steps beside weights and optimizer state, one for each parameter.
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
    /// Never, but no rank is more than `bound` steps ahead; along Plan::stage_axis, whose ranks have different weights:
    /// gradients are of weights that at most `bound` updates are missing in.
    stale,
    /// In the mean: actions mix weights with weights that add up to 1 by row and column; `bound` is `unbounded` where
    /// ranks do so by messages of their own time (ActionRow::flush).
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
  /// Bytes of activations, halos, and copies that are sent or summed together (MemoryKind::packed), in this order.
  using Bytes = std::array<Index, 3>;
  /// Bytes at most while a pass of the part runs: what it has kept and keeps, gradients of activations, operands of
  /// kernels. Without what parts before it in its segment keep. Zeros until a dry run has counted them.
  Bytes forward_bytes = {},                          ///< of the last part: with the loss
      backward_bytes = {},                           ///< both halves at once
      backward_input_bytes = {},                     ///< without `deferred_bytes` of the parts after it
      backward_weight_bytes = {};                    ///< without `deferred_bytes` of the parts before it
  Bytes deferred_bytes = {};                         ///< kept from backward_input for backward_weight
  bool operator==(const PartCost&) const = default;  ///< member by member
};
/// What a plan knows of a model: the slice of the flat block behind each part, in forward order. Cost, comms and
/// tensors are no part of the plan's hash: they depend on the rows of a micro-batch, ranks at an image's edge send
/// less, and shards of a tensor may have different shapes.
struct PartInfo {
  std::string name;        ///< of its layers: "0-2", "layer1.0"
  Slice slice;             ///< of its weights and biases in the flat block, elements
  PartCost cost = {};      ///< of one micro-batch; zeros until profiled
  Slice buffers = {};      ///< of all buffers, packed one behind the other
  int buffer_tensors = 0;  ///< that these are, but for those without elements
  Device device = {};      ///< its weights lie on: no bucket reaches over two
  /// By mesh axes, joined by +: the slices of weights, with the padding after them, whose gradients are not summed
  /// along these axes: each rank has its own part of them, or finds the whole gradient. In order.
  std::map<std::string, std::vector<Slice>> divided = {};
  int outputs = 1;  ///< tensors that cross a cut behind it: its output, and what is stashed
  /// By pass (forward, loss, backward_input or backward_weight): the calls of one rank that the part's layers make for
  /// one micro-batch, in addition to the plan's actions (batch norm's sums, halos, divided layers). Empty until a dry
  /// run has found them.
  std::map<ActionKind, std::vector<PlannedCall>> comms = {};
  /// Shapes of its weights and biases, by first element in the flat block; of this rank's shard if ranks divide a
  /// tensor. Without tensors of no elements, and those shared with another part, which are listed there.
  std::map<Index, Shape> tensors = {};
  std::vector<Slice> tied =
      {};  ///< of tensors that it uses, too, but that a part before it holds; padding behind included
  bool operator==(const PartInfo&) const = default;  ///< member by member, cost included
};

/// One step of all ranks. A strategy takes a plan and returns another.
struct Plan {
  std::vector<PartInfo> parts;    ///< of the model, in forward order
  Index parameters = 0;           ///< length of the flat block
  Index buffers = 0;              ///< elements of all buffers (running statistics)
  std::vector<Program> programs;  ///< one, a pipeline's one per coordinate of stage_axis, or by Program::where
  std::vector<std::string> strategies = {};  ///< names of those applied, in order
  std::string stage_axis = "pipe";           ///< mesh axis whose coordinate picks the program, where there are several
  int microbatches = 1;                      ///< micro-batches in a mini-batch
  std::vector<Axis> axes = {};               ///< of the mesh it is made for
  std::vector<State> state = {};             ///< what lives across steps beside weights and optimizer state
  std::vector<std::string> flags = {};       ///< that ranks may raise, and actions `agree` tell to all
  std::map<std::string, Consistency> consistency = {};  ///< by axis; those that are not named: synchronous
  /// The layers that a pipeline's stages begin at, but for the first, as its option `partition` takes them ("3, 5");
  /// where it is not empty before, a pipeline that would choose by cost takes this cut.
  std::string partition = {};
  std::int64_t epoch_steps = 0;  ///< steps of an epoch, for strategies that change with epochs; 0: not known
  /// Before strategies are applied: workers at their own pace ask for tickets, shares of global batches
  /// (parallel/async/tickets.h); else each rank takes its own share of every batch.
  bool wants_tickets = false;
  int tickets = 0;        ///< tickets per global batch; 0: no program hands them out
  int tickets_ahead = 1;  ///< tickets that a worker has at once: it may read the rows of one while it trains another
  bool operator==(const Plan&) const = default;  ///< member by member, costs included

  int size(const std::string& axis) const;  ///< ranks along it; 1 where the mesh has no such axis
  /// Those of the program among them.
  int size(const Program&, const std::string& axis) const;
  /// Those who take part in an action of the program with this peer.
  int size(const Program&, const Peer&) const;
  /// The coordinates of the program along an axis of the mesh.
  CoordinateRange range(const Program&, const std::string& axis) const;
  /// The program of the rank with these coordinates, by axis. Throws Error where there is none.
  int program_at(const std::function<int(const std::string&)>& coordinate) const;
  /// Whether programs differ along stage_axis, as a pipeline's do.
  bool has_stages() const;
  int program_of(int part) const;  ///< the program that runs it forward; -1: none
  /// The axis over which gradients are summed, or several joined by + ("data+h"); "data" where none are. Some weights
  /// may leave axes out (PartInfo::divided).
  std::string reduced_axis() const;
  /// Of an axis, or of the first of several joined by +, that does not make weights alike after each step.
  Consistency consistency_along(const std::string& axis) const;
  /// Of several axes joined by +, those along which weights are alike after each step: the ranks of a worker, which
  /// train together; empty: a worker is one rank.
  std::string synchronous_axes(const std::string& axes) const;
  /// What program r changes, in order: the slices of its updates, neighbours joined but for weights that other programs
  /// change alike (ties_of), whose slices are the same there.
  std::vector<Slice> updated(std::size_t program) const;
  std::string to_string() const;  ///< a table, one action a line
  /// A table, one line for the actions of a program that are alike: how many there are, and how many elements they
  /// move.
  std::string summary() const;
  std::uint64_t hash() const;  ///< equal plans, equal hashes: compared across ranks before step 1
};

std::string to_string(ActionKind);   ///< the enumerator: "all_reduce"
std::string to_string(OperandKind);  ///< "weights", "gradient of the activation"
/// What the action sends or agrees on: "weights"; the name of a state; "finite+stop" for flags; empty for none.
std::string payload_of(const Action&);
std::string to_string(Stream);  ///< "compute", "comm"
/// "all_reduce gradients [0, 4096) over data, on ready": for error messages.
std::string to_string(const Action&);

/// Puts an action before position `at` of the program's list; ids in `after`, the new action's included, mean
/// positions before the insertion. Throws nothing; `at` in [0, number of actions].
void insert(Program&, ActionId at, Action);

/// Everything on one rank: forward, loss, backward of each part, update. axes: of the mesh that strategies may use.
Plan serial(std::vector<PartInfo> parts, Index parameters, Index buffers = 0, std::vector<Axis> axes = {});

/// What is wrong with a plan, one line each; empty: it is sound. Looks for unmatched or crossed messages,
/// deadlock, a gradient never or twice reduced, an update before its reduction, a backward before its
/// forward, dependencies on nothing. data_ranks: size of the axis "data".
std::vector<std::string> check(const Plan&, int data_ranks);

}  // namespace trireme

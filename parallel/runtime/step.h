// Step: one optimizer step of a model under a strategy. It builds the plan, checks it, compares it across
// ranks, broadcasts the initial state from rank 0, and then interprets its program's actions on each call.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/io/checkpoint.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/batch.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/memory.h"
#include "parallel/plan/tickets.h"
#include "parallel/plan/timeline.h"
#include "parallel/runtime/loss_scale.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Options of a Step.
struct StepOptions {
  std::uint64_t seed = 0;           ///< of dropout masks
  OptimizerOptions optimizer = {};  ///< gradient clipping, decay of biases, place of the state
  /// A loss that is not finite (or a gradient, looked at every finite_every-th step, but where ranks meet by messages
  /// alone or a pipeline is asynchronous) throws NonFiniteError naming the step and the first input, parameter or layer
  /// output that is not; parameters are left as they were.
  bool check_finite = true;
  /// At least 1; 1 where gradients are summed in f16. Weights may go bad behind a finite loss.
  int finite_every = 64;
  /// Steps before the first look at gradients, 0 to finite_every - 1: with 10 and 9 it is at steps 10, 20, ..., counted
  /// from 1. Where workers meet now and then it is at their meetings.
  int finite_offset = 0;
  /// > 0: what loss scaling starts with, for f16 (parallel/runtime/loss_scale.h). A step whose gradients overflow
  /// counts, and changes no weight.
  double loss_scale = 0;
  /// On a rank that has the whole model on one CUDA device, alone or with others (data parallelism, zero(1),
  /// central_storage): from the second of steps with equal shapes on, forward and backward are replayed as CUDA graphs,
  /// which spares the host to start each kernel; collectives start between their parts. The host's own code in
  /// layers and in the loss then runs no more: it may make tensors, which every step writes anew, but read none, and
  /// what it does must be the same in every step. Batches of several tensors (Tensor::with()), and layers that ranks
  /// divide, are not replayed. After
  /// consolidate(), record() or a step of another kind steps are
  /// captured anew; until then the memory of one is kept.
  bool cuda_graphs = false;
  bool refuse_unsound = true;    ///< false: run a plan that check() finds faults in, to see what it does
  std::int64_t epoch_steps = 0;  ///< Plan::epoch_steps
  /// Mesh axes that the model's own layers use (those split over ranks); its ranks get the same rows.
  std::vector<std::string> layer_axes = {};
  /// What else must be equal on all ranks, a setting a line ("batch: 64"): a program's own configuration.
  std::string settings = {};
  /// Plan::partition of an earlier run, to go on with: pipeline(partition=auto) cuts there, and measures nothing.
  std::string partition = {};
  /// Inputs like those of one micro-batch: with it, a strategy that asks what parts cost (pipeline(partition=auto))
  /// gets what rank 0 measures; without, all parts count alike. With it the plan also says what the parts' own layers
  /// send (PartInfo::comms), on this rank.
  Tensor example = {};
  /// Rows of a global batch. Above 0, costs in virtual time and PartInfo::comms are those of a micro-batch of it on a
  /// rank that trains; rows of the example are repeated or left out. 0: the example has the rows of a micro-batch.
  Index batch = 0;
  /// Flags that a rank may raise() between steps ("stop", "save"): those of all ranks are put together before updates,
  /// every so many steps, and with the look at gradients where that comes as often, for no message of their own. Where
  /// ranks serve others (Program::serves) nobody is told, and raise() throws.
  std::vector<std::string> flags = {};
  int flags_every = 1;
  /// What Step::outputs() has of each micro-batch whose loss this rank computes: a function of its prediction and
  /// target, not recorded; whole_output() keeps the predictions as they are. Null: nothing is kept. With cuda_graphs it
  /// is captured as the loss is.
  using KeepOutputs = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
  KeepOutputs keep_outputs = {};
  /// The caller trains what granted() says, so that workers at their own pace may share what is to be trained: then
  /// operator() wants an open() before, on all ranks. False: each rank feeds its share() of every batch.
  bool tickets = false;
};

/// StepOptions::keep_outputs that keeps the predictions, with what stands beside them (Tensor::with()).
inline Tensor whole_output(const Tensor& prediction, const Tensor& /*target*/) { return prediction.detach(); }

/// What a step throws for a loss or a gradient that is not finite.
class NonFiniteError : public Error {
 public:
  NonFiniteError(std::string message, std::source_location where) : Error(std::move(message), where, Kind::numerics) {}
};

/// What a rank has sent in a step, by mesh axis: by its plan, and as its communicators counted it.
struct StepTraffic {
  Traffic planned, counted;
};

class Step {
 public:
  /// model is shared, not copied. Without a strategy: serial on one rank, data_parallel on several. A
  /// collective call. Throws Error when the plan is unsound, when a mesh axis has no use, or when ranks are about to do
  /// different things: the error shows the first difference. Compared are the library's version, the mesh, the
  /// strategy and the plan, the recipe (a learning rate that is a function of the caller's own: by its value for step
  /// 0), the options, the loss (which function, or its type: of closures, not what they captured), every tensor of the
  /// model (name, shape, type; with layer_axes among ranks at the same place of these), the functions and the types of
  /// layers in its Sequential, and the options of this library's own layers there. What a layer of the caller's does is
  /// not seen.
  Step(Module model, Loss loss, OptimizerConfig recipe, World& world, std::optional<Strategy> strategy = {},
       StepOptions = {});
  /// The same on a mesh of the caller's, which must outlive the Step; the other makes one of the axis "data".
  Step(Module model, Loss loss, OptimizerConfig recipe, Mesh& mesh, std::optional<Strategy> strategy = {},
       StepOptions = {});
  ~Step();
  Step(const Step&) = delete;

  /// x, y: this rank's rows of the global batch (none is allowed), as shard() deals them: ranks that differ in their
  /// pipeline stage or along layer_axes get the same rows (the first stage reads x, the last y). The BatchContext that
  /// x carries (else y's, else the enclosing StepContext's) names their ids, the global batch and the share of it that
  /// they are. Where it names no share, the rows of all ranks together must be the batch, numbered by rank where they
  /// have no ids; that costs a message. Throws Error for rows that cannot be this rank's share. Micro-batches are those
  /// that the loader cut, else even ones. On a rank whose program messages start (Program::serves) it reads no rows,
  /// and handles messages until that program's last phase. Returns the loss of the global batch, a scalar, on every
  /// rank (of this rank's worker, if trains_apart()); reading it synchronises. A collective call.
  Tensor operator()(const Tensor& x, const Tensor& y);
  /// What StepOptions::keep_outputs made of the predictions whose loss this rank computed in the last step, row by row,
  /// and the targets of these rows; the next step may write over them. Undefined where there were none, as on all but a
  /// pipeline's last stage.
  Tensor outputs() const;
  Tensor targets() const;
  /// The next so many global batches are to be trained: granted() says which shares of them by this rank. In between
  /// ranks may only call operator(), each as often as it has tickets, then all close(). Where ranks share what is to be
  /// trained (Plan::tickets), steps are counted by batches: of a worker that trains a share of the batch k, from 0,
  /// behind open(), the step is the k-th from there. To be called on all ranks; nothing is sent. Throws Error for less
  /// than 1, and where the batches before are not closed.
  void open(std::int64_t batches);
  /// The tickets that this rank has got since the last call, in the order in which it is to train them: behind open()
  /// the first, then at most one with each step. A rank without any is done; servers that share get none.
  std::vector<Ticket> granted();
  /// Waits until all ranks have trained what they were granted (not all of it need be trained where each rank has its
  /// own share of every batch). Where they share, all workers then have the servers' weights, and each share of the
  /// batches counts once. A collective call.
  void close();
  /// Whether workers train apart (Plan::consistency other than synchronous): their losses are means over their own
  /// rows. A worker is the ranks that have the same weights after every step.
  bool trains_apart() const;
  /// Raises one of StepOptions::flags on this rank: the next step whose ranks put flags together tells it to all.
  /// Throws Error for another name.
  void raise(const std::string& flag);
  /// Whether the last step has told that a rank had raised it: the same on all ranks.
  bool raised(const std::string& flag) const;
  /// Norm of the last step's gradient of the global batch, before clipping (of this rank's worker's, if
  /// trains_apart()). NaN where nobody had to know it: it is known where gradients are clipped, and where all are
  /// looked at (finite_every) on ranks that update all.
  double grad_norm() const;
  /// What loss scaling has come to (scale 1: it is off); a checkpoint keeps both numbers, so that a run goes on as if
  /// it had not stopped. Setting it where scaling is off changes nothing.
  LossScaleState loss_scale() const;
  void set_loss_scale(const LossScaleState&);  ///< the same on all ranks; ignored where scaling is off
  /// Which rows of the global batch this rank is to feed; a Loader takes it.
  RankShare shard() const;
  /// Ends what an asynchronous pipeline (pipeline(schedule=pipedream) or 2bw) has in flight, so that all weights are
  /// those behind the last step's update, or the exchanges of asynchronous gossip; the next step begins anew with them.
  /// A collective call; nothing elsewhere. consolidate(), checkpoint_shard(), timeline(), memory(), the end of the Step
  /// and, of a pipeline, a step that is refused do it, too. Ranks that gossip asynchronously answer each other in their
  /// steps and in this call alone, so collective calls of the caller's own come behind it; it waits for the slowest, no
  /// longer than TRIREME_TIMEOUT. Throws Error where an exception, or a step that was refused on this rank alone, has
  /// left messages under way: make another Step on all ranks then.
  void flush();
  /// Brings the weights and running statistics of every stage to all ranks: before evaluating. Before the first step,
  /// and between gather_weights() and the next one, every rank has all weights; else a stage (and under zero(3) a rank)
  /// has its own, and reading another's, in the model or by itself, is an Error. Where a strategy lets ranks train for
  /// themselves (Plan::consistency: periodic, gossip), each keeps its own weights: until the next step all ranks then
  /// have the mean of theirs, and of their running statistics, which is also what model files hold; where there are
  /// servers (stale), theirs, with the first worker's running statistics. A collective call; free without stages, zero,
  /// servers and ranks that train for themselves.
  void gather_weights();
  /// The same, and the optimizer's state, which else is held only for what this rank updates (less under zero): from
  /// consolidate() to the next step every rank holds all of it, with Adam twice the weights. A collective call.
  void consolidate();

  /// This rank's part in checkpoints that all ranks write together, each what it holds (SaveOptions::shard): nothing is
  /// gathered.
  CheckpointShard checkpoint_shard();
  /// Restores weights, running statistics and optimizer from a checkpoint's directory, whatever ranks wrote it; each
  /// reads what it holds between steps, and consolidate() brings the rest, as behind a step. A collective call. Throws
  /// Error as load_checkpoint() of framework/io/checkpoint.h, on all ranks.
  LoadedCheckpoint load_checkpoint(const std::string& directory);
  /// From now on the ranks whose phases messages start (servers) handle them in the order in which they came in the run
  /// that wrote this checkpoint, whose settings must be this one's: all that it computed comes out the same, bit for
  /// bit. Between steps that all ranks end together (consolidate(), checkpoints) some are ahead of others, so it must
  /// stop where that run did; else a server waits in vain, which ends in Error after TRIREME_TIMEOUT seconds. A
  /// checkpoint holds that order from the beginning of its run on. To be called on all ranks. Throws Error where no
  /// rank's steps depend on it, for a checkpoint of another layout or without that order, for a Step that has gone
  /// another way so far; steps behind the checkpoint's throw Error.
  void replay(const std::string& checkpoint);

  /// Whether the last step was replayed (StepOptions::cuda_graphs).
  bool replayed() const;
  /// Why no step is, although graphs were asked for and would serve; empty: nothing has spoken against it so far.
  std::string not_replayed() const;
  /// Turns profiling on or off: from the next step on each action is timed and memory is counted; the host then waits
  /// for devices after each action.
  void record(bool on);
  /// When they ran, on all ranks, in the last step that was recorded. A collective call.
  Timeline timeline();
  /// What each rank held at most in that step. A collective call.
  std::vector<RankMemory> memory();

  /// What this rank sent in the last step, calls and bytes, planned and counted: equal, but for one_weird_trick where
  /// ranks had different numbers of rows, and asynchronous gossip, in which odd ranks send as often as they are asked.
  /// The plan's side runs the model dry on that batch's shape (parallel/model/dry_run.h): layers and losses whose own
  /// code reads values on the host see undefined ones, and gradients end cleared. Throws Error before the first step.
  /// phase: the same of the last run of a phase on call (parallel/plan/on_call.h): "set-up", "evaluation" and
  /// "consolidation" (a gather_weights() and a consolidate() that had something to bring), "saving" (one exchange),
  /// "flush", "diagnosis"; nothing is counted where there was none.
  StepTraffic traffic(const std::string& phase = "") const;
  /// Bytes that this rank's calls have had in all steps so far: payload_bytes() (parallel/comm/world/traffic.h).
  Index bytes_sent() const;

  /// Over which rows batch norms take their statistics, in words: "global", "local: each rank's rows", "each
  /// micro-batch over all ranks". Empty: the model has none.
  std::string batch_norm() const;
  /// Which weights gather_weights() brings to all ranks, for evaluation and for files, in words: "the servers'
  /// weights", "the mean of all workers' weights". Empty: all ranks train the same.
  std::string evaluated_weights() const;
  /// What the strategy claims of this model.
  Claim claim() const;

  /// Whether ranks hold different parts of weights (strategies tensor, one_weird_trick): then all of them must evaluate
  /// model() on the rows of shard(), save and load together, each reading the file.
  bool is_tensor_parallel() const;

  Parameters& parameters();  ///< of this rank's model; lives as long as the Step
  Optimizer& optimizer();    ///< its state covers what this rank updates; consolidate() completes it
  const Plan& plan() const;  ///< the same on all ranks
  /// The slices of the flat block that this rank updates, in order.
  const std::vector<Slice>& updated() const;
  /// The most micro-batches, per segment of parts, whose activations this rank held at once in the last step.
  int most_in_flight() const;
  Module& model();  ///< with its layers split as the strategy asks

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme

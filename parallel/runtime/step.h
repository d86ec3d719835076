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
#include "parallel/async/tickets.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/memory.h"
#include "parallel/plan/timeline.h"
#include "parallel/runtime/loss_scale.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Options of a Step. All must be equal on all ranks.
struct StepOptions {
  std::uint64_t seed = 0;           ///< random seed of dropout masks
  OptimizerOptions optimizer = {};  ///< gradient clipping, weight decay of biases, device of the state
  /// Throw NonFiniteError for a loss that is not finite. It names the step and the first input, parameter or layer
  /// output that is not finite; parameters do not change. Gradients are checked every finite_every steps, except with
  /// asynchronous pipelines and if ranks only exchange messages.
  bool check_finite = true;
  /// Steps between gradient checks, at least 1; always 1 if gradients are summed in f16. Weights may become NaN
  /// although the loss is finite.
  int finite_every = 64;
  /// Steps before the first gradient check, 0 to finite_every - 1: with finite_every = 10 and finite_offset = 9,
  /// gradients are checked at steps 10, 20, ..., counted from 1. Workers that synchronise periodically check when they
  /// do.
  int finite_offset = 0;
  /// Initial factor of loss scaling, for f16 (parallel/runtime/loss_scale.h); 0: off. A step whose gradients overflow
  /// is counted but changes no weights.
  double loss_scale = 0;
  /// Replay forward and backward as CUDA graphs from the second of several steps with equal shapes, so that the host
  /// does not start each kernel. Collectives start between parts of the graph. It needs a rank with the whole model on
  /// one CUDA device, alone or with other ranks (data parallelism, zero(1), central_storage). Limits:
  /// - Host code in layers and in the loss does not run in a replay. It may make tensors, which every step writes
  /// again,
  ///   but read none, and must do the same in every step.
  /// - Batches of several tensors (Tensor::with()), and layers that ranks divide, are not replayed.
  /// - consolidate(), record() or a step of another kind drop the graph; later steps are captured again. Until then the
  ///   memory of one step stays allocated.
  bool cuda_graphs = false;
  bool refuse_unsound = true;    ///< throw for a plan in which check() finds faults; false: run it, for experiments
  std::int64_t epoch_steps = 0;  ///< steps per epoch: see Plan::epoch_steps
  /// Mesh axes along which custom layers of the model are split; ranks along them get the same rows.
  std::vector<std::string> layer_axes = {};
  /// Further settings of the program that must be equal on all ranks, one per line ("batch: 64").
  std::string settings = {};
  /// Plan::partition of an earlier run: pipeline(partition=auto) uses these cuts and measures nothing. Empty: measure.
  std::string partition = {};
  /// Example inputs of one micro-batch. With it, rank 0 measures the costs of parts for strategies that need them
  /// (pipeline(partition=auto)), and the plan lists what the parts' layers send on this rank (PartInfo::comms).
  /// Undefined: all parts have equal cost.
  Tensor example = {};
  /// Rows of a global batch. Above 0, costs in virtual time and PartInfo::comms are for a micro-batch of that batch on
  /// a training rank; rows of the example are repeated or dropped. 0: the example has the rows of a micro-batch.
  Index batch = 0;
  /// Names of flags that a rank may raise() between steps ("stop", "save"). Ranks combine them before updates, every
  /// flags_every steps. If gradients are checked as often, the flags need no separate message. With servers
  /// (Program::serves) flags are not supported and raise() throws.
  std::vector<std::string> flags = {};
  int flags_every = 1;  ///< steps between two exchanges of flags, at least 1
  /// Makes what Step::outputs() returns from the prediction and target of each micro-batch whose loss this rank
  /// computes. It is not recorded for backward; cuda_graphs captures it like the loss.
  using KeepOutputs = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
  KeepOutputs keep_outputs = {};  ///< whole_output keeps the predictions unchanged; null: nothing is kept
  /// True: the caller trains the tickets of granted(), so that workers of different speed can divide the batches. All
  /// ranks must then call open() before operator(). False: each rank feeds its shard() of every batch.
  bool tickets = false;
};

/// A StepOptions::keep_outputs that keeps the predictions, including further tensors of Tensor::with().
inline Tensor whole_output(const Tensor& prediction, const Tensor& /*target*/) { return prediction.detach(); }

/// Thrown by a step for a loss or a gradient that is not finite.
class NonFiniteError : public Error {
 public:
  /// message: names the step and what is not finite.
  NonFiniteError(std::string message, std::source_location where) : Error(std::move(message), where, Kind::numerics) {}
};

/// Bytes and calls that a rank sent in a step, by mesh axis.
struct StepTraffic {
  Traffic planned,  ///< according to the plan
      counted;      ///< as counted by the communicators
};

/// Trains a model under a strategy, one optimizer step per call.
class Step {
 public:
  /// model is shared, not copied. Without a strategy: serial on one rank, data_parallel on several. A collective call.
  /// Throws Error if the plan is unsound, a mesh axis is unused, or ranks have different settings; the message shows
  /// the first difference. Ranks compare:
  /// - the library's version, the mesh, the strategy, the plan and the options;
  /// - the recipe (a custom learning rate function: its value for step 0);
  /// - the loss (the function, or its type; not what a closure has captured);
  /// - name, shape and type of every tensor of the model (with layer_axes, among ranks at the same place on these);
  /// - the functions and the types of layers in the model's Sequential, and the options of this library's layers there.
  ///
  /// What custom layers compute is not compared.
  Step(Module model, Loss loss, OptimizerConfig optimizer_config, World& world, std::optional<Strategy> strategy = {},
       StepOptions = {});
  /// As above, on the caller's mesh, which must outlive the Step. The constructor above makes a mesh of one axis
  /// "data".
  Step(Module model, Loss loss, OptimizerConfig optimizer_config, Mesh& mesh, std::optional<Strategy> strategy = {},
       StepOptions = {});
  ~Step();
  Step(const Step&) = delete;

  /// Runs one optimizer step. x, y: this rank's rows of the global batch according to shard(); zero rows are allowed.
  /// Ranks that differ only in their pipeline stage or along layer_axes get the same rows (the first stage reads x, the
  /// last y). Returns the loss of the global batch, a scalar, on every rank (of this rank's worker, if trains_apart());
  /// reading it synchronises with the device. A collective call.
  ///
  /// The BatchContext of x (else of y, else the enclosing StepContext's) has the rows' ids, the size of the global
  /// batch and this rank's share. If it has no share, the rows of all ranks together must be the batch, and rows
  /// without ids are numbered by rank; that costs a message. Throws Error for rows that cannot be this rank's share.
  /// Micro-batches are the loader's, else even ones. A server (Program::serves) reads no rows and handles messages
  /// until its program's last phase.
  Tensor operator()(const Tensor& x, const Tensor& y);
  /// The results of StepOptions::keep_outputs in the last step, for the rows whose loss this rank computed. The next
  /// step may overwrite them. Undefined if there were none, for example on all stages of a pipeline but the last.
  Tensor outputs() const;
  /// The targets of the rows of outputs().
  Tensor targets() const;
  /// Starts the training of the next `batches` global batches; granted() returns this rank's shares of them. Until
  /// close(), which all ranks call, a rank may only call operator(), once per ticket. If workers divide the batches
  /// (Plan::tickets), steps are counted by batches: a share of the k-th batch after open() belongs to the k-th step,
  /// from 0. Call on all ranks; sends nothing. Throws Error below 1, and if the previous batches are not closed.
  void open(std::int64_t batches);
  /// The tickets that this rank got since the last call, in training order: the first after open(), then at most one
  /// per step. A rank that gets none is done. Servers of Plan::tickets get none.
  std::vector<Ticket> granted();
  /// Waits until all ranks have trained their tickets. If each rank has a fixed share of every batch, some may be left
  /// out. If workers divide the batches, all workers then have the servers' weights, and each share counts once. A
  /// collective call.
  void close();
  /// Whether workers train separately (Plan::consistency is not synchronous): the loss is then the mean over the
  /// worker's rows. A worker is a group of ranks with equal weights after every step.
  bool trains_apart() const;
  /// Raises one of StepOptions::flags on this rank. The next exchange of flags (flags_every) informs all ranks. Throws
  /// Error for another name.
  void raise(const std::string& flag);
  /// Whether the last step informed all ranks that a rank had raised this flag; equal on all ranks.
  bool raised(const std::string& flag) const;
  /// L2 norm of the last step's gradient of the global batch, before clipping (of this rank's worker, if
  /// trains_apart()). NaN if it was not computed. It is computed if gradients are clipped, and in steps that check
  /// gradients (finite_every) on ranks that update all parameters.
  double grad_norm() const;
  /// The state of loss scaling (scale 1 if it is off). A checkpoint stores it, so that a resumed run continues exactly.
  LossScaleState loss_scale() const;
  void set_loss_scale(const LossScaleState&);  ///< state: equal on all ranks; ignored if scaling is off
  /// The share of the global batch that this rank feeds; pass it to a Loader.
  RankShare shard() const;
  /// Completes the micro-batches in flight of an asynchronous pipeline (pipeline(schedule=pipedream) or 2bw), or the
  /// exchanges of asynchronous gossip, so that all weights are up to date. The next step starts with an empty pipeline.
  /// A collective call; does nothing with other strategies. consolidate(), checkpoint_shard(), timeline(), memory() and
  /// the destructor flush, too; so does a refused step of a pipeline.
  ///
  /// Ranks with asynchronous gossip answer each other only in steps and in this call. So flush before any other
  /// collective call; it waits for the slowest rank, at most TRIREME_TIMEOUT. Throws Error if an exception, or a step
  /// refused on this rank alone, has left messages in flight: make a new Step on all ranks then.
  void flush();
  /// Brings the weights and running statistics of every stage to all ranks; call it before evaluating. Every rank has
  /// all weights before the first step, and from gather_weights() to the next step. At other times a stage (with
  /// zero(3) a rank) has only its part, and reading other weights is an Error.
  ///
  /// If ranks train separately (Plan::consistency periodic or gossip), all ranks get the mean of the workers' weights
  /// and running statistics until the next step; model files hold this mean, too. Each rank's separate weights are
  /// kept. With servers (stale), all ranks get the servers' weights and the first worker's running statistics. A
  /// collective call; free without stages, zero, servers or separate training.
  void gather_weights();
  /// As gather_weights(), and also brings the optimizer's state. At other times a rank holds only the state for the
  /// slices that it updates. From consolidate() to the next step every rank holds all of it: with Adam twice the size
  /// of the weights. A collective call.
  void consolidate();

  /// This rank's part of checkpoints that all ranks write together (SaveOptions::shard). Each rank writes what it
  /// holds; nothing is gathered.
  CheckpointShard checkpoint_shard();
  /// Restores weights, running statistics and optimizer from a checkpoint's directory. Another number of ranks or
  /// another mesh may have written it. Each rank reads what it holds between steps; consolidate() brings the rest, as
  /// after a step. A collective call. Throws Error on all ranks as load_checkpoint() of framework/io/checkpoint.h.
  LoadedCheckpoint load_checkpoint(const std::string& directory);
  /// From now on servers (and ranks with asynchronous gossip) handle messages in the order of the run that wrote this
  /// checkpoint, so that all results are equal bit for bit. Settings must equal that run's. Call on all ranks. The
  /// checkpoint must hold the order from the beginning of its run.
  ///
  /// Some ranks are ahead of others until all ranks end a step together (consolidate(), checkpoints). So this run must
  /// stop where that run did; otherwise a server waits in vain and throws Error after TRIREME_TIMEOUT seconds. Throws
  /// Error if no rank's steps depend on the order, for a checkpoint with another layout or without the order, and if
  /// this Step has already run differently. Steps after the checkpoint's throw Error.
  void replay(const std::string& checkpoint);

  /// Whether the last step was replayed (StepOptions::cuda_graphs).
  bool replayed() const;
  /// Why steps are not replayed although cuda_graphs is set and the plan allows it; empty: no reason so far.
  std::string not_replayed() const;
  /// Turns profiling on or off: from the next step on each action is timed and memory is counted; the host then waits
  /// for devices after each action.
  void record(bool on);
  /// Times of all actions on all ranks in the last recorded step. A collective call.
  Timeline timeline();
  /// Peak memory of each rank in that step. A collective call.
  std::vector<RankMemory> memory();

  /// Calls and bytes that this rank sent in the last step, planned and counted. Both are equal, except for
  /// one_weird_trick if ranks had different numbers of rows, and asynchronous gossip, in which odd ranks send once per
  /// request. The planned side makes a dry run of the model on that batch's shape (parallel/model/dry_run.h): custom
  /// layers and losses that read values on the host see undefined values, and gradients are cleared. Throws Error
  /// before the first step.
  ///
  /// phase: traffic of the last run of a phase on call (parallel/plan/on_call.h) instead: "set-up", "evaluation" and
  /// "consolidation" (a gather_weights() and a consolidate() that sent something), "saving" (one exchange), "flush",
  /// "diagnosis". The count is 0 if the phase never ran.
  StepTraffic traffic(const std::string& phase = "") const;
  /// Total bytes of this rank's calls in all steps so far: payload_bytes() (parallel/comm/world/traffic.h).
  Index bytes_sent() const;

  /// The rows over which batch norms compute their statistics, for reports: "global", "local: each rank's rows", "each
  /// micro-batch over all ranks". Empty: the model has none.
  std::string batch_norm() const;
  /// The weights that gather_weights() brings to all ranks for evaluation and files, for reports: "the servers'
  /// weights", "the mean of all workers' weights". Empty: all ranks train the same.
  std::string evaluated_weights() const;
  /// The strategy's claim for this model.
  Claim claim() const;

  /// Whether ranks hold different parts of weights (strategies tensor, one_weird_trick): then all ranks must evaluate
  /// model() on the rows of shard(), save and load together, and each reads the file.
  bool is_tensor_parallel() const;

  Parameters& parameters();  ///< parameters of this rank's model; live as long as the Step
  Optimizer& optimizer();    ///< its state covers the slices that this rank updates; consolidate() completes it
  const Plan& plan() const;  ///< the same on all ranks
  /// The slices of the flat block that this rank updates, in order.
  const std::vector<Slice>& updated() const;
  /// The largest number of micro-batches, per segment of parts, whose activations this rank held at once in the last
  /// step.
  int most_in_flight() const;
  Module& model();  ///< the model, with its layers split by the strategy

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme

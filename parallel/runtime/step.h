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
#include "parallel/strategies/agreements.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// How the costs of a model's parts are found, for strategies that need them (pipeline(partition=auto)).
struct PartProfile {
  /// Example inputs of one micro-batch. With it, rank 0 measures the costs of parts, and the plan lists what the parts'
  /// layers send on this rank (PartInfo::comms). Undefined: all parts have equal cost.
  Tensor example = {};
  /// Rows of a global batch. Above 0, costs in virtual time and PartInfo::comms are for a micro-batch of that batch on
  /// a training rank; rows of the example are repeated or dropped. 0: the example has the rows of a micro-batch.
  Index batch = 0;
  /// Plan::partition of an earlier run: pipeline(partition=auto) uses these cuts and measures nothing. Empty: measure.
  std::string partition = {};
};

/// Options of a Step. All must be equal on all ranks.
struct StepOptions {
  std::uint64_t seed = 0;           ///< random seed of dropout masks
  OptimizerOptions optimizer = {};  ///< gradient clipping, weight decay of biases, device of the state
  FiniteChecks checks = {};         ///< checks of loss and gradients
  /// Initial factor of loss scaling, for f16 (parallel/runtime/loss_scale.h); 0: off. A step whose gradients overflow
  /// is counted but changes no weights.
  double loss_scale = 0;
  /// Replay forward and backward as CUDA graphs from the second of several steps with equal shapes, so that the host
  /// does not start each kernel. It needs a rank with the whole model on one CUDA device, alone or with other ranks
  /// (data parallelism, zero(1), central_storage). Batches of several tensors (Tensor::with()), and layers that ranks
  /// divide, are not replayed. Host code in layers and in the loss does not run in a replay. It may make tensors, which
  /// every step writes again, but read none, and must do the same in every step. gather_weights(), StepProbe::record()
  /// or a step of another kind drop the graph. Until the next capture the memory of one step stays allocated.
  bool cuda_graphs = false;
  bool refuse_unsound = true;    ///< throw for a plan in which check() finds faults; false: run it, for experiments
  std::int64_t epoch_steps = 0;  ///< steps per epoch: see Plan::epoch_steps
  /// Mesh axes along which custom layers of the model are split; ranks along them get the same rows.
  std::vector<std::string> layer_axes = {};
  /// Further settings of the program that must be equal on all ranks, one per line ("batch: 64").
  std::string settings = {};
  PartProfile profile = {};  ///< costs of the model's parts
  /// Flags that ranks combine before updates: StepFlags (parallel/runtime/step_flags.h). With servers (Program::serves)
  /// flags are not supported.
  FlagOptions flags = {};
  /// Makes what StepProbe::outputs() returns from the prediction and target of each micro-batch whose loss this rank
  /// computes. It is not recorded for backward; cuda_graphs captures it like the loss.
  using KeepOutputs = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
  KeepOutputs keep_outputs = {};  ///< whole_output keeps the predictions unchanged; null: nothing is kept
  /// True: the caller trains the tickets of StepTickets::granted() (parallel/runtime/step_tickets.h), so that workers
  /// of different speed can divide the batches. Call StepTickets::open() before steps then. False: each rank feeds its
  /// shard() of every batch.
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

/// Trains a model under a strategy, one optimizer step per call. Handles on a Step have further abilities:
/// - StepFlags (step_flags.h): flags that ranks raise between steps;
/// - StepTickets (step_tickets.h): workers of different speed divide the batches;
/// - StepResume (step_resume.h): the loss scale, and the replay of an asynchronous run;
/// - StepProbe (step_probe.h): outputs, times, memory, traffic and all optimizer state.
class Step {
 public:
  /// model is shared, not copied. Without a strategy: serial on one rank, data_parallel on several. A collective call.
  /// Throws Error if the plan is unsound, a mesh axis is unused, or ranks differ; the message shows the first
  /// difference. Ranks compare the library's version, mesh, strategy, plan, options, optimizer (of a custom learning
  /// rate function its value for step 0), loss (the function, or its type), and the model: name, shape and type of its
  /// tensors (with layer_axes, among ranks at the same place on these), types of its layers, and options of this
  /// library's layers. What custom layers and closures compute is not compared.
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
  /// last y). Returns the loss of the global batch, a scalar, on every rank (of this rank's worker, if
  /// StepProbe::trains_apart());
  /// reading it synchronises with the device. A collective call.
  ///
  /// The BatchContext of x (else of y, else the enclosing StepContext's) has the rows' ids, the size of the global
  /// batch and this rank's share. If it has no share, the rows of all ranks together must be the batch, and rows
  /// without ids are numbered by rank; that costs a message. Throws Error for rows that cannot be this rank's share.
  /// Micro-batches are the loader's, else even ones. A server (Program::serves) reads no rows and handles messages
  /// until its program's last phase.
  Tensor operator()(const Tensor& x, const Tensor& y);
  /// The share of the global batch that this rank feeds; pass it to a Loader.
  RankShare shard() const;
  /// Completes the micro-batches in flight of an asynchronous pipeline (pipeline(schedule=pipedream) or 2bw), or the
  /// exchanges of asynchronous gossip, so that all weights are up to date. The next step starts with an empty pipeline.
  /// A collective call; does nothing with other strategies. gather_weights(), checkpoint_shard(), StepProbe and the
  /// destructor flush, too; so does a refused step of a pipeline.
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
  /// StepProbe::consolidate() also brings the optimizer's state.
  void gather_weights();
  /// This rank's part of checkpoints that all ranks write together (SaveOptions::shard). Each rank writes what it
  /// holds; nothing is gathered.
  CheckpointShard checkpoint_shard();
  /// Restores weights, running statistics and optimizer from a checkpoint's directory. Another number of ranks or
  /// another mesh may have written it. Each rank reads what it holds between steps; gather_weights() brings the other
  /// weights, as after a step. A collective call. Throws Error on all ranks as load_checkpoint() of
  /// framework/io/checkpoint.h.
  LoadedCheckpoint load_checkpoint(const std::string& directory);
  Parameters& parameters();  ///< parameters of this rank's model; live as long as the Step
  Optimizer& optimizer();    ///< its state covers the slices that this rank updates (StepProbe::consolidate())
  const Plan& plan() const;  ///< the same on all ranks
  Module& model();           ///< the model, with its layers split by the strategy

 private:
  friend class StepFlags;
  friend class StepProbe;
  friend class StepResume;
  friend class StepTickets;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme

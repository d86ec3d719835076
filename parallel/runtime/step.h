// Step: one optimizer step of a model under a strategy. It builds the plan, checks it, compares it across
// ranks, broadcasts or draws the initial state, and then interprets its program's actions on each call.
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
  /// Example input of one micro-batch [rows, ...]. Rank 0 measures the costs of the model's parts on it, and the plan
  /// lists the messages of the parts' layers on this rank (PartInfo::comms). zero(3) then gathers weights that all
  /// parts convert to bf16 or f16 in that type (PartInfo::read_as). The first step throws Error if the loss or a layer
  /// reads such a weight in f32. Undefined: all parts have equal cost, and zero(3) gathers f32.
  Tensor example = {};
  /// Rows of the global batch, from which the rows of a rank's micro-batch follow. The example's rows are repeated or
  /// dropped to that number, for costs in virtual time and for PartInfo::comms. 0: the example has as many rows as a
  /// micro-batch.
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
  /// Replay forward and backward as CUDA graphs, so that the host does not start each kernel. The second of several
  /// steps with equal shapes is captured.
  /// - Each rank must have the whole model on one CUDA device (data_parallel, zero(1), central_storage).
  /// - Batches of several tensors (Tensor::with()) and layers that ranks divide are not replayed.
  /// - Host code in layers and in the loss does not run in a replay. It must do the same in every step, and must not
  ///   read values of tensors. Each step writes the tensors that it makes again.
  /// - gather_weights(), StepProbe::record() and a step with other shapes drop the graph. The memory of one step stays
  ///   allocated until the next capture.
  bool cuda_graphs = false;
  /// Deferred initialization, for a model that was made and placed under SkipInit (framework/layers/init.h). After the
  /// model is divided, each rank draws the weights and buffers that it holds between steps, with the bits of
  /// initialize(model, *initialize). No rank ever writes the whole model. None: the caller has initialized the model,
  /// and rank 0 sends its weights to all ranks that hold the same.
  std::optional<std::uint64_t> initialize = {};
  bool refuse_unsound = true;    ///< throw Error for a plan in which check() finds faults; false: run it anyway
  std::int64_t epoch_steps = 0;  ///< steps per epoch: see Plan::epoch_steps
  /// Mesh axes along which custom layers of the model are split; ranks along them get the same rows.
  std::vector<std::string> layer_axes = {};
  /// Further settings of the program that must be equal on all ranks, one per line ("batch: 64").
  std::string settings = {};
  PartProfile profile = {};  ///< costs of the model's parts
  /// Flags that ranks combine before updates: StepFlags (parallel/runtime/step_flags.h). With servers (Program::serves)
  /// flags are not supported.
  FlagOptions flags = {};
  /// Computes the tensor that StepProbe::outputs() returns, from the prediction and target of each micro-batch whose
  /// loss this rank computes. It is not recorded for backward; cuda_graphs captures it like the loss.
  using KeepOutputs = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
  KeepOutputs keep_outputs = {};  ///< whole_output keeps the predictions unchanged; null: nothing is kept
  /// True: the caller trains the shares of batches that StepTickets::granted() returns, so that workers of different
  /// speed can divide the batches (parallel/runtime/step_tickets.h). Call StepTickets::open() before the first step.
  /// False: each rank trains its shard() of every batch.
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
/// - StepForward (step_forward.h): evaluation without bringing all weights to any rank;
/// - StepTickets (step_tickets.h): workers of different speed divide the batches;
/// - StepResume (step_resume.h): weights of a file, the loss scale, and the replay of an asynchronous run;
/// - StepProbe (step_probe.h): outputs, times, memory, traffic and all optimizer state.
class Step {
 public:
  /// The Step shares the model; it does not copy it. strategy: none: serial on one rank, data_parallel on several. A
  /// collective call. Throws Error if the plan is unsound, if a mesh axis is unused, or if ranks differ; the message
  /// shows the first difference. Ranks compare:
  /// - the library's version, mesh, strategy, plan and options;
  /// - the optimizer; of a custom learning rate function, its value for step 0;
  /// - the loss: the function, or its type;
  /// - the model: name, shape and type of its tensors, types of its layers, and options of this library's layers. With
  ///   layer_axes, ranks with the same coordinates along these axes compare their tensors.
  ///
  /// The code of custom layers and closures is not compared.
  Step(Module model, Loss loss, OptimizerConfig optimizer_config, World& world, std::optional<Strategy> strategy = {},
       StepOptions = {});
  /// As above, on the caller's mesh, which must outlive the Step. The constructor above makes a mesh of one axis
  /// "data".
  Step(Module model, Loss loss, OptimizerConfig optimizer_config, Mesh& mesh, std::optional<Strategy> strategy = {},
       StepOptions = {});
  ~Step();
  Step(const Step&) = delete;

  /// Runs one optimizer step. x [rows, ...], y [rows, ...]: this rank's rows of the global batch, according to shard();
  /// zero rows are allowed. Ranks that differ only in their pipeline stage or along layer_axes get the same rows (the
  /// first stage reads x, the last y). Returns the loss of the global batch, a scalar, on every rank; reading it
  /// synchronises with the device. If StepProbe::trains_apart(), it is the loss of this rank's worker. A collective
  /// call.
  ///
  /// A BatchContext names the rows' ids, the size of the global batch, this rank's share and its micro-batches. It is
  /// that of x; if x has none, that of y; else that of the current StepContext. Without a share, the rows of all ranks
  /// together are the global batch, and rows without ids are numbered by rank; both cost a message. Without
  /// micro-batches, the rows are cut evenly. Throws Error for rows that cannot be this rank's share.
  ///
  /// A server (Program::serves) reads no rows. It handles messages until the phase that ends its step.
  Tensor operator()(const Tensor& x, const Tensor& y);
  /// The share of each global batch that this rank trains; pass it to a Loader.
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
  /// Brings all weights and running statistics to all ranks; call it before evaluating. Every rank has all weights
  /// before the first step (unless StepOptions::initialize is set), and from gather_weights() to the next step. At
  /// other times a rank has only the weights of its pipeline stage (with zero its shard), and reading other weights
  /// throws Error.
  /// - If workers train separately (Plan::consistency periodic or gossip), all ranks get the mean of the workers'
  ///   weights and running statistics until the next step; model files hold this mean, too. Then each worker continues
  ///   with its separate weights.
  /// - With servers (stale), all ranks get the servers' weights and the first worker's running statistics.
  ///
  /// A collective call; it sends nothing without stages, zero, servers or separate training. StepProbe::consolidate()
  /// also brings the optimizer's state.
  void gather_weights();
  /// This rank's part of a checkpoint that all ranks write together (SaveOptions::shard). Each rank writes the state
  /// that it holds; nothing is gathered.
  CheckpointShard checkpoint_shard();
  /// Restores weights, running statistics and optimizer from a checkpoint's directory. Another number of ranks or
  /// another mesh may have written it. Each rank reads the state that it holds between steps; call gather_weights()
  /// for the other weights, as after a step. A collective call. Throws Error on all ranks, for the reasons of
  /// load_checkpoint() in framework/io/checkpoint.h.
  LoadedCheckpoint load_checkpoint(const std::string& directory);
  Parameters& parameters();  ///< parameters of this rank's model; live as long as the Step
  Optimizer& optimizer();    ///< has state for the slices that this rank updates; StepProbe::consolidate() brings all
  const Plan& plan() const;  ///< the same on all ranks
  Module& model();           ///< this rank's model; if the strategy splits layers, with this rank's parts of them

 private:
  friend class StepFlags;
  friend class StepForward;
  friend class StepProbe;
  friend class StepResume;
  friend class StepTickets;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme

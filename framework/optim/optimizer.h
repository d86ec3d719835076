// Optimizer: applies settings (Sgd{...}, Adam{...}; framework/optim/optimizers.h) to a ParameterStore, which needs no
// model, and owns the state and the count of steps that belong to it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/optimizers.h"
#include "framework/optim/parameters.h"

namespace trireme {

/// Parameters with settings of their own (PyTorch's param_groups).
struct ParameterGroup {
  std::string names;                        ///< pattern of full names: "head.*" (matches())
  double lr_factor = 1;                     ///< >= 0; their learning rate is so many times the schedule's
  std::optional<double> weight_decay = {};  ///< >= 0; none: the optimizer's
  bool operator==(const ParameterGroup&) const = default;
};
/// Options of an Optimizer beside its update rule: clipping, groups of parameters, checks, offload of the state.
struct OptimizerOptions {
  double clip_norm = 0;  ///< >= 0, else Error; > 0: bound of the gradient's L2 norm (torch.nn.utils.clip_grad_norm_)
  /// > 0: each number of the gradient, after its sum over ranks, is cut to [-clip_value, clip_value]
  /// (clip_grad_value_); before clip_norm is applied, by the norm from before the cut. Error below 0.
  double clip_value = 0;
  /// The first one that a parameter's name matches counts. Each must match one, else Error.
  std::vector<ParameterGroup> groups = {};
  bool decay_biases = true;  ///< false: StateKind::no_decay entries (biases, norm scales) have no weight decay
  /// Refuse gradients that are not finite, at the price of a pass over them; clipping and trust ratios (LARS) always
  /// do.
  bool check_finite = false;
  /// Where the state lies and updates are computed, weights and gradients being copied there and back (Ren et al.,
  /// ZeRO-Offload, arXiv 2101.06840): the host, for devices without room. None: beside the weights.
  std::optional<Device> store = {};
};

class Optimizer {
 public:
  /// Throws Error for settings or options out of their ranges. parameters must outlive it.
  Optimizer(ParameterStore& parameters, OptimizerConfig, OptimizerOptions = {});
  /// As other, with a copy of its state and steps, of another store, whose spec() is that of other's store (a clone()
  /// of it, say), else it throws Error. parameters must outlive it.
  Optimizer(ParameterStore& parameters, const Optimizer& other);

  /// One update of all parameters from their gradients: zero_missing_grads, clip_scale, update of everything,
  /// finish. When clipping, checking (options) or LARS finds a gradient that is not finite, throws Error
  /// naming its tensor before anything is changed. A collective call where that norm is (grad_norm()).
  void step();
  /// Part of an update: only [slice) of the flat block (a ZeRO shard), from gradients times grad_scale.
  /// finish() then ends the step. Throws Error for a slice outside of the block or of kept(). LARS needs the norms of
  /// whole tensors: throws Error for a slice that cuts one; a collective call where a tensor has parts on other ranks.
  /// Counts as an update of the slice (ParameterStore::version()).
  void update(Slice slice, double grad_scale);
  /// Holds state for these slices only (in order, apart) from now on, packed one behind the other. What is held stays,
  /// what is new starts afresh; update() then wants slices among these. Before: for the whole block.
  void keep(const std::vector<Slice>& slices);
  /// Slices that have state, in elements of the flat block; at first one, the whole block.
  const std::vector<Slice>& kept() const { return kept_; }
  /// Counts the step and forgets the gradients (clear_grads).
  void finish();
  /// L2 norm of the gradient over all entries (before clipping), divided by loss_scale(), f64 accumulated. Zeroes
  /// missing gradients; a collective call where a tensor has parts on other ranks.
  double grad_norm() const { return grad_norm(std::vector{Slice{0, parameters_.size()}}); }
  /// Of what lies in these slices, and of the parts of it that other ranks hold (framework/tensor/shard_spec.h): a
  /// collective call of theirs, whatever slices each has.
  double grad_norm(const std::vector<Slice>&) const;
  /// What clip_norm makes of the gradients at hand: the factor min(1, clip_norm / (norm + 1e-6)), as
  /// torch.nn.utils.clip_grad_norm_ (1: no clipping asked). Throws Error where wants_norm() and the norm is not finite.
  /// A collective call as grad_norm().
  double clip_scale() const { return wants_norm() ? clip_scale(grad_norm()) : 1; }
  /// The same for a norm that was put together elsewhere (of slices that several ranks hold).
  double clip_scale(double norm) const;
  /// Whether all values in these slices are finite: a pass over them.
  bool has_finite_values(const std::vector<Slice>&) const;
  bool wants_norm() const;  ///< whether an update looks at the gradient's norm first

  /// The gradients at hand are those of so many times the loss (mixed precision): norms and updates divide by it.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  double loss_scale() const { return loss_scale_; }  ///< as set; 1 at first

  std::int64_t steps() const { return steps_; }  ///< updates done
  /// Sets steps(), as a checkpoint says: learning rate and Adam's bias correction go on from there.
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// So many updates, at least 1, are one step of the learning rate's schedule: of a server that updates by each
  /// gradient.
  void set_updates_per_step(int updates) { updates_per_step_ = updates; }
  double rate() const;  ///< learning rate of the next update; throws Error when it is negative or not finite
  /// State for a checkpoint: parallel to the kept() slices of values(), by name ("momentum", "exp_avg", ...), in the
  /// parameters' type. Allocated by the first call or update().
  const std::vector<std::pair<std::string, FlatBuffer>>& state() const {
    if (!allocated_) [[unlikely]]
      allocate_once();
    return state_;
  }
  std::string name() const { return config_.name(); }           ///< "sgd", "adam", ...
  ParameterStore& parameters() { return parameters_; }          ///< updated by this optimizer
  const OptimizerOptions& options() const { return options_; }  ///< as given to the constructor

 private:
  /// A stretch of the flat block, padding included, that one kernel call may update.
  struct Range {
    Slice slice;
    const ParameterStore::Entry* entry;  // the first in it
    double weight_decay, lr_factor;
  };
  /// state_begin: where the slice lies in the state.
  void apply(const Range&, Slice, Index state_begin, double grad_scale, double trust);
  /// Per range the config's trust ratio; 1 for ranges outside the slice, and for no_decay entries. One read for all.
  std::vector<double> trust_ratios(const Slice&, double grad_scale) const;
  void refuse_non_finite(double norm) const;
  void allocate() const;
  void allocate_once() const;

  ParameterStore& parameters_;
  OptimizerConfig config_;
  OptimizerOptions options_;
  std::vector<Range> ranges_;  // in order, covering the block
  std::vector<Slice> kept_;
  // Allocated when first asked for, so that a rank that keeps a ZeRO shard never holds all.
  mutable std::mutex allocation_;  // of state_, which two threads may ask for first
  mutable std::vector<std::pair<std::string, FlatBuffer>> state_;
  mutable std::atomic<bool> allocated_ = false;
  std::int64_t steps_ = 0;
  int updates_per_step_ = 1;
  double loss_scale_ = 1;
};

}  // namespace trireme

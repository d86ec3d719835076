// Optimizer: applies an update rule (Sgd{...}, Adam{...}; framework/optim/optimizers.h) to a ParameterStore, and owns
// the rule's state and the count of steps. It needs no model.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/optimizers.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/rank_mesh.h"

namespace trireme {

/// Different settings for a group of parameters (PyTorch's param_groups).
struct ParameterGroup {
  std::string names;                                       ///< pattern of full names: "head.*" (see matches())
  double lr_factor = 1;                                    ///< >= 0; factor of the scheduled learning rate
  std::optional<double> weight_decay = {};                 ///< >= 0; none: the optimizer's weight decay
  bool operator==(const ParameterGroup&) const = default;  ///< all members are equal
};
/// Options of an Optimizer other than the update rule: clipping, parameter groups, checks, offload of the state.
struct OptimizerOptions {
  /// >= 0; > 0: maximum L2 norm of the gradient (torch.nn.utils.clip_grad_norm_); 0: no clipping.
  double clip_norm = 0;
  /// >= 0; > 0: each number of the gradient, after the sum over ranks, is clipped to [-clip_value, clip_value]
  /// (clip_grad_value_). If clip_norm is set too, its factor comes from the norm before this clipping. Trust ratios
  /// (LARS, LAMB) come from the clipped numbers. 0: no clipping.
  double clip_value = 0;
  /// The first group that matches a parameter's name applies. Throws Error for a group that matches no parameter.
  std::vector<ParameterGroup> groups = {};
  bool decay_biases = true;  ///< false: no weight decay for StateKind::no_decay entries (biases, norm scales)
  /// Throw Error for gradients that are not finite, at the cost of a pass over them. Clipping and trust ratios (LARS,
  /// LAMB) always do.
  bool check_finite = false;
  /// Device of the state and of the update, with weights and gradients copied there and back (ZeRO-Offload, Ren et al.,
  /// arXiv 2101.06840): the host, if device memory is short. None: the weights' device.
  std::optional<Device> store = {};
};

class Optimizer {
 public:
  /// Throws Error for settings or options outside their ranges. parameters must outlive the optimizer.
  Optimizer(ParameterStore& parameters, OptimizerConfig, OptimizerOptions = {});
  /// A copy of other, with its state and steps, for another store with an equal spec() (a clone() of the store, for
  /// example), else throws Error. parameters must outlive the optimizer.
  Optimizer(ParameterStore& parameters, const Optimizer& other);

  /// Updates all parameters from their gradients: zero_missing_grads(), clip_scale(), update(), finish(). If clipping,
  /// checks or trust ratios find a gradient that is not finite, throws Error naming its tensor before anything is
  /// changed. Collective if grad_norm() is.
  void step();
  /// Part of an update: only [slice) of the flat block (a ZeRO shard), from gradients times grad_scale; finish() then
  /// ends the step. Counts as an update of the slice (ParameterStore::version()). Throws Error for a slice outside of
  /// the block or of kept().
  ///
  /// LARS and LAMB need norms of whole tensors. Without a call of start_update() in this step, update() takes the norms
  /// itself: it then throws Error for a slice that cuts a weight, and is collective if other ranks have parts of a
  /// tensor.
  void update(Slice slice, double grad_scale);
  /// First half of an update by a rule with trust ratios, for slices that cut tensors. Give it all slices that this
  /// rank updates in this step:
  ///   const Tensor squares = optimizer.start_update({shard}, scale);
  ///   world.comm().all_reduce(squares).wait();
  ///   optimizer.set_squares(squares);
  ///   optimizer.update(shard, scale);
  /// Call it once a step, after clip_scale(). Runs the rule's direction(), which changes the gradients and the state
  /// (LAMB), and returns f64 [2, entries] on the host. For each weight of entries(), row 0 has the sum of squares of
  /// the elements of its value in these slices, and row 1 that of its gradient, or of its direction. Collective if
  /// other ranks have parts of a tensor, whatever their slices. but: as for grad_norm().
  Tensor start_update(const std::vector<Slice>&, double grad_scale, AxisMask but = 0);
  /// Second half: the result of start_update(), summed over the ranks that update other slices. Sets the trust ratios
  /// of this step. Throws Error for another shape or type.
  void set_squares(const Tensor& squares);
  /// From now on, keeps state for these slices only (ordered, disjoint), packed one after another. Existing state of
  /// these slices stays, new state is initialised, and update() accepts only slices inside them. The default is the
  /// whole block.
  void keep(const std::vector<Slice>& slices);
  /// Slices that have state, in elements of the flat block; by default one slice, the whole block.
  const std::vector<Slice>& kept() const { return kept_; }
  /// Counts the step and clears the gradients.
  void finish();
  /// L2 norm of the gradient over all entries before clipping, divided by loss_scale(), summed in f64. Zeroes missing
  /// gradients. Collective if other ranks have parts of a tensor.
  double grad_norm() const { return grad_norm(std::vector{Slice{0, parameters_.size()}}); }
  /// As above, over these slices and the parts that other ranks have of their tensors (framework/tensor/shard_spec.h).
  /// Collective among these ranks, whatever their slices. but: axes of the tensors' mesh over which the caller sums the
  /// squares; parts are not summed over them.
  double grad_norm(const std::vector<Slice>&, AxisMask but = 0) const;
  /// The factor of clip_norm for the current gradients: min(1, clip_norm / (norm + 1e-6)), as
  /// torch.nn.utils.clip_grad_norm_; 1 without clipping. Throws Error if wants_norm() and the norm is not finite.
  /// Collective as grad_norm().
  double clip_scale() const { return wants_norm() ? clip_scale(grad_norm()) : 1; }
  /// As above, for a given norm (for example over slices of several ranks).
  double clip_scale(double norm) const;
  /// Whether all values in these slices are finite. Costs a pass over them.
  bool has_finite_values(const std::vector<Slice>&) const;
  bool wants_norm() const;  ///< whether an update needs the gradient's norm first
  /// Number of entries of parameters() if the rule has trust ratios (start_update); 0: it has none.
  Index tensors_with_ratios() const { return config_.has_trust_ratio() ? std::ssize(parameters_.entries()) : 0; }

  /// Loss scale (mixed precision): the gradients are gradients of scale times the loss. Norms and updates divide by it.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  double loss_scale() const { return loss_scale_; }  ///< current loss scale; default 1

  std::int64_t steps() const { return steps_; }  ///< number of updates done
  /// Sets steps(), when resuming from a checkpoint: learning rate and Adam's bias correction continue from there.
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Number of updates, at least 1, per step of the learning rate's schedule: for a server that updates once per
  /// worker's gradient.
  void set_updates_per_step(int updates) { updates_per_step_ = updates; }
  double rate() const;  ///< learning rate of the next update; throws Error if it is negative or not finite
  /// State for a checkpoint: buffers by name ("momentum", "exp_avg", ...), parallel to the kept() slices of values(),
  /// in the parameters' type. Allocated by the first call or update().
  const std::vector<std::pair<std::string, FlatBuffer>>& state() const {
    if (!allocated_) [[unlikely]]
      allocate_once();
    return state_;
  }
  std::string name() const { return config_.name(); }           ///< "sgd", "adam", ...
  ParameterStore& parameters() { return parameters_; }          ///< updated by this optimizer
  const OptimizerOptions& options() const { return options_; }  ///< as given to the constructor

 private:
  /// A part of the flat block, padding included, that one kernel call may update.
  struct Range {
    Slice slice;
    const ParameterStore::Entry* entry;  // the first entry in it
    double weight_decay, lr_factor;
  };
  void check_inside(const Slice&) const;
  /// Calls f(index in ranges_, part of the slice, position of the part in the state) for each part in one range.
  template <class F>
  void each_part(const Slice&, F f) const;
  OptimizerUpdate arguments(const Range&, const Slice& part, Index state_begin, double grad_scale) const;
  void clip_values(const Slice& part) const;
  void refuse_non_finite(double norm) const;
  void allocate() const;
  void allocate_once() const;

  ParameterStore& parameters_;
  OptimizerConfig config_;
  OptimizerOptions options_;
  std::vector<Range> ranges_;   // in order; together they cover the block
  std::vector<double> ratios_;  // of this step, by range; empty: not known yet
  std::vector<Slice> kept_;
  // Allocated on demand, so that a rank that keeps a ZeRO shard never allocates everything.
  mutable std::mutex allocation_;  // for state_, which two threads may allocate
  mutable std::vector<std::pair<std::string, FlatBuffer>> state_;
  mutable std::atomic<bool> allocated_ = false;
  std::int64_t steps_ = 0;
  int updates_per_step_ = 1;
  double loss_scale_ = 1;
};

}  // namespace trireme

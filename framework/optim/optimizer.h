// Optimizers. A recipe (Sgd{...}, Adam{...}) is plain data; an Optimizer applies it to Parameters and owns
// its state.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "framework/optim/parameters.h"
#include "framework/optim/schedule.h"

namespace trireme {

// Fields and defaults are PyTorch's, formulas too (kernels/contracts/update.h). weight_decay is L2 (added to the
// gradient) unless said otherwise. An Optimizer refuses numbers outside their ranges: momentum, beta1, beta2 and rho
// lie in [0, 1), dampening in [0, 1], eps and trust_coefficient above 0; weight_decay, initial and lr, at every step,
// are at least 0 and finite.
struct Sgd {
  Schedule lr = 0.01;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
struct Adagrad {
  Schedule lr = 0.01;
  double eps = 1e-10, weight_decay = 0, initial = 0;
};
struct Adadelta {
  Schedule lr = 1.0;
  double rho = 0.9, eps = 1e-6, weight_decay = 0;
};
struct Adam {
  Schedule lr = 0.001;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
/// Decoupled decay.
struct AdamW {
  Schedule lr = 0.001;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
/// You et al. (arXiv 1708.03888): per-tensor rate trust_coefficient * |v| / (|g| + weight_decay |v|); biases and norm
/// scales use plain SGD.
struct Lars {
  Schedule lr = 0.1;
  double momentum = 0.9, weight_decay = 1e-4, trust_coefficient = 0.001, eps = 1e-9;
};
using OptimizerConfig = std::variant<Sgd, Adagrad, Adadelta, Adam, AdamW, Lars>;
/// "sgd(lr=0.1, momentum=0.9, dampening=0, weight_decay=0, nesterov=false)": equal numbers, equal texts.
std::string to_string(const OptimizerConfig&);

struct OptimizerOptions {
  double clip_norm = 0;      ///< > 0: bound of the gradient's global norm (torch.nn.utils.clip_grad_norm_)
  bool decay_biases = true;  ///< false: StateKind::bias entries form a group without weight decay
  /// Refuse gradients that are not finite, at the price of a pass over them; clipping and LARS always do.
  bool check_finite = false;
  /// Where the state lies and updates are computed, weights and gradients being copied there and back (Ren et al.,
  /// ZeRO-Offload, arXiv 2101.06840): the host, for devices without room. None: beside the weights.
  std::optional<Device> store = {};
};

class Optimizer {
 public:
  Optimizer(Parameters&, OptimizerConfig, OptimizerOptions = {});

  /// One update of all parameters from their gradients: zero_missing_grads, clip_scale, update of everything,
  /// finish. When clipping, checking (options) or LARS finds a gradient that is not finite, throws Error
  /// naming its tensor before anything is changed.
  void step();
  /// Part of an update: only [slice) of the flat block (a ZeRO shard), from gradients times grad_scale.
  /// finish() then ends the step. LARS needs the norms of whole tensors: its slices must not cut one.
  void update(Slice slice, double grad_scale);
  /// Holds state for these slices only (in order, apart) from now on, packed one behind the other. What is held stays,
  /// what is new starts afresh; update() then wants slices among these. Before: for the whole block.
  void keep(const std::vector<Slice>& slices);
  const std::vector<Slice>& kept() const { return kept_; }
  /// Counts the step and forgets the gradients (clear_grads).
  void finish();
  /// Norm of the gradient over all entries (before clipping), f64 accumulated.
  double grad_norm() const { return grad_norm(std::vector{Slice{0, parameters_.size()}}); }
  /// Of what lies in these slices, and of the parts of it that other ranks hold (framework/tensor/shard_spec.h): a
  /// collective call of theirs, whatever slices each has.
  double grad_norm(const std::vector<Slice>&) const;
  /// What clip_norm makes of the gradients at hand: a factor <= 1, as torch.nn.utils.clip_grad_norm_ (1: no
  /// clipping asked).
  double clip_scale() const { return wants_norm() ? clip_scale(grad_norm()) : 1; }
  /// The same for a norm that was put together elsewhere (of slices that several ranks hold).
  double clip_scale(double norm) const;
  bool wants_norm() const;  ///< whether an update looks at the gradient's norm first

  /// The gradients at hand are those of so many times the loss (mixed precision): norms and updates divide by it.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  double loss_scale() const { return loss_scale_; }

  std::int64_t steps() const { return steps_; }  ///< updates done
  void set_steps(std::int64_t steps) { steps_ = steps; }
  double rate() const;  ///< that the next update will use; throws Error when it is negative or not finite
  /// State for a checkpoint: parallel to the kept() slices of values(), by name ("momentum", "exp_avg", ...).
  const std::vector<std::pair<std::string, FlatBuffer>>& state() const {
    if (!allocated_) [[unlikely]]
      allocate_once();
    return state_;
  }
  std::string name() const;  ///< "sgd", "adam", ...
  Parameters& parameters() { return parameters_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  /// A stretch of the flat block, padding included, that one kernel call may update.
  struct Range {
    Slice slice;
    const Parameters::Entry* entry;  // the first in it
    bool decays;
  };
  /// state_begin: where the slice lies in the state.
  void apply(const Range&, Slice, Index state_begin, double grad_scale, double trust);
  /// Per range, LARS' factor of the rate; 1 for ranges outside the slice, and for biases. One read for all.
  std::vector<double> lars_trusts(const Lars&, const Slice&, double grad_scale) const;
  void refuse_non_finite(double norm) const;
  void allocate() const;
  void allocate_once() const;

  Parameters& parameters_;
  OptimizerConfig recipe_;
  OptimizerOptions options_;
  std::vector<Range> ranges_;  // in order, covering the block
  std::vector<Slice> kept_;
  // Allocated when first asked for, so that a rank that keeps a ZeRO shard never holds all.
  mutable std::mutex allocation_;  // of state_, which two threads may ask for first
  mutable std::vector<std::pair<std::string, FlatBuffer>> state_;
  mutable std::atomic<bool> allocated_ = false;
  std::int64_t steps_ = 0;
  double loss_scale_ = 1;
};

}  // namespace trireme

// Losses. Each is a scalar: the sum over the local rows, divided by the number of rows of the *global* batch
// (BatchContext of the prediction, or of the target). The shares of all ranks therefore add up to the mean over the
// global batch. Several rows per sample ([B * T, C] for B sequences) count as such. A part of a batch's rows is refused
// if ranks share the batch.
#pragma once
#include <concepts>
#include <functional>
#include <optional>
#include <utility>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/loss.h"

namespace trireme {

/// F.cross_entropy: the sum of -log_softmax(logits) at the labels, divided by the rows of the global batch. logits
/// [..., C], labels i64 [...] in [0, C) -> scalar: f64 for f64 logits, else f32. Throws Error for any other label, -100
/// included (see cross_entropy_with()); on a GPU at the next synchronization.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
/// Returns x, floating and of any shape. Its backward also starts the backward of `loss`, a scalar of an inner layer,
/// as if it were added to the step's loss. The loss that a Step returns does not contain it.
Tensor with_loss(const Tensor& x, const Tensor& loss);
/// How a loss joins the values of its elements. none: one value per element. sum: their sum over the local rows. mean:
/// that sum divided by the number of elements of the global batch.
enum class Reduction : std::uint8_t { none, sum, mean };
/// Options of cross_entropy_with() and nll_loss_with().
struct LabelLossOptions {
  double label_smoothing = 0;  ///< in [0, 1]; not for nll_loss_with()
  /// z, at least 0: adds z (log Z)^2 to the loss of a row, where Z is the sum of exp(logits). It keeps log Z near 0
  /// (PaLM uses 1e-4: Chowdhery et al., arXiv 2204.02311, section 5). Not for nll_loss_with().
  double z_loss = 0;
  Index ignore_index = -100;              ///< rows with this label do not count
  Tensor weights = {};                    ///< [C]: weight of a row of each class; undefined: 1
  Reduction reduction = Reduction::mean;  ///< mean: divided by the summed weights of the global batch's rows
};
/// A loss: a function of (prediction, target) that returns a scalar, together with what a Step must know about it.
class Loss {
 public:
  /// A loss of this header that takes a Reduction, for example mse_loss.
  using Reduced = Tensor (*)(const Tensor& prediction, const Tensor& target, Reduction);
  /// The mean of such a loss, as a function.
  struct Mean {
    Reduced loss;  ///< called with Reduction::mean
    /// Scalar.
    Tensor operator()(const Tensor& prediction, const Tensor& target) const {
      return loss(prediction, target, Reduction::mean);
    }
  };
  /// prediction and target of a micro-batch -> scalar.
  using Function = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
  /// Number of labels of a target that do not count: the ignored ones (PyTorch's ignore_index), plus 1 - weight for
  /// each label of a weighted class.
  using CountIgnored = std::function<double(const Tensor& target)>;
  Loss() = default;  ///< null
  /// ignored: needed by a function that divides by the number of labels that count. A Step adds up ignored() over all
  /// rows of the global batch before it calls the function. A function that calls a loss of cross_entropy_with() passes
  /// that loss's ignored() here. Null: each label counts.
  template <class F>
  requires(std::constructible_from<Function, F> && !std::same_as<F, Loss>) Loss(F function, CountIgnored ignored = {})
      : function_(std::move(function)), ignored_(std::move(ignored)) {
    if constexpr (std::same_as<F, Tensor (*)(const Tensor&, const Tensor&)>)
      if (function == trireme::cross_entropy) cross_entropy_ = {.ignore_index = CrossEntropyOptions::ignore_none};
  }
  /// For a function that computes the mean cross-entropy with these options, without class weights. It is not always
  /// called: see cross_entropy().
  Loss(Function function, CountIgnored ignored, LabelLossOptions cross_entropy)
      : function_(std::move(function)), ignored_(std::move(ignored)), cross_entropy_(std::move(cross_entropy)) {}
  Loss(Reduced loss) : function_(Mean{loss}) {}  ///< its mean. NOLINT: implicit
  /// Calls the function. A cross_entropy() of predictions whose classes ranks divide is computed by parts instead.
  Tensor operator()(const Tensor& prediction, const Tensor& target) const;
  explicit operator bool() const { return static_cast<bool>(function_); }  ///< not null
  const Function& function() const { return function_; }                   ///< the wrapped function
  const CountIgnored& ignored() const { return ignored_; }                 ///< null: each label counts
  /// Options of a mean cross-entropy without class weights, else null. A last layer LmHead computes such a loss
  /// together with its matrix product (linear_cross_entropy()), and where ranks divide the classes no rank has all of
  /// them.
  const LabelLossOptions* cross_entropy() const { return cross_entropy_ ? &*cross_entropy_ : nullptr; }

 private:
  Function function_;
  CountIgnored ignored_;
  std::optional<LabelLossOptions> cross_entropy_;
};
/// F.cross_entropy with label smoothing, class weights, an ignored label (-100 by default, as in PyTorch) and z-loss.
/// The mean divides by the summed weights of the labels that count. Throws Error if other ranks have rows of the global
/// batch and their weights are not known (StepContext::ignored), as in a Step whose Loss has no ignored().
Loss cross_entropy_with(const LabelLossOptions&);
/// F.nll_loss: -log_p at the label, of log-probabilities [..., C] (log_softmax()) and labels i64 [...]. The mean
/// divides as in cross_entropy_with().
Loss nll_loss_with(const LabelLossOptions&);
/// nll_loss_with() without options: every label must be in [0, C), as in cross_entropy().
Tensor nll_loss(const Tensor& log_p, const Tensor& labels);

/// Mean over the global batch, for the end of a custom loss: the sum of `each` divided by the number of its elements in
/// all rows of the global batch. The shares of ranks and micro-batches add up to the mean. each [rows, ...] must be
/// computed from the rows of a batch, whose BatchContext knows the global number; otherwise this is mean().
///   Loss pinball = [](const Tensor& y, const Tensor& t) { return batch_mean(maximum(0.9 * (t - y), 0.1 * (y - t))); };
Tensor batch_mean(const Tensor& each);
/// Weighted mean over the global batch, for example with a mask: the sum of each * weights divided by the sum of all
/// weights of the global batch. weights has the shape of each and takes no gradient. If ranks or micro-batches share
/// the batch, the loss must be Loss(function, ignored) with ignored(target) = sum of (1 - weight); otherwise Error is
/// thrown.
///   Loss([](auto& y, auto& t) { return batch_mean(square(y - t), t.at("mask")); },
///        [](const Tensor& t) { return sum(1 - t.at("mask")).item(); })
Tensor batch_mean(const Tensor& each, const Tensor& weights);

// Elementwise losses of a prediction and a target of one shape, computed in f64 for an f64 prediction, else in f32.
// They return a scalar of that dtype, or the operands' shape for Reduction::none, and throw Error for other shapes.
/// F.mse_loss: (prediction - target)^2.
Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction = Reduction::mean);
/// F.l1_loss: |prediction - target|; gradient 0 where they are equal.
Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction = Reduction::mean);
/// F.smooth_l1_loss: with d = |prediction - target|, d^2 / (2 beta) for d < beta, else d - beta / 2; beta > 0.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, Reduction = Reduction::mean);
/// The same with beta 1.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, Reduction = Reduction::mean);
/// F.huber_loss: delta times smooth_l1_loss() with beta = delta.
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, Reduction = Reduction::mean);
/// F.binary_cross_entropy_with_logits: -target log p - (1 - target) log(1 - p) with p = sigmoid(logits), computed
/// without overflow.
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, Reduction = Reduction::mean);
/// The same with the term -target log p multiplied by pos_weight, which broadcasts to the logits, as in PyTorch.
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, const Tensor& pos_weight,
                            Reduction = Reduction::mean);
/// F.kl_div: target (log target - log_p), 0 where target is 0. Reduction::mean divides by all elements (PyTorch's
/// "mean").
Tensor kl_div_loss(const Tensor& log_p, const Tensor& target, Reduction = Reduction::mean);

}  // namespace trireme

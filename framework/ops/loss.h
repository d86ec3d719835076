// Losses: scalars. The sum over the rows at hand divided by the rows of the *global* batch (BatchContext of the
// prediction, or of the target), so that the shares of all ranks add up. Several rows per sample ([B * T, C] of B
// sequences) are counted as such; a part of a batch's rows is refused where ranks share the batch.
#pragma once
#include <concepts>
#include <functional>
#include <optional>
#include <utility>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/loss.h"

namespace trireme {

/// F.cross_entropy: sum of -log_softmax(logits) at the label, divided by the rows of the global batch: logits [..., C],
/// labels i64 [...] in [0, C) -> scalar, f32, f64 for f64. Throws Error for any other label, -100 too (see
/// cross_entropy_with); on a GPU at the next wait.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
/// How a loss joins the numbers of its elements: not at all, to their sum over the rows at hand, or to that sum divided
/// by the elements of the global batch.
enum class Reduction : std::uint8_t { none, sum, mean };
/// What cross_entropy_with() and nll_loss_with() may be told beside the labels.
struct LabelLossOptions {
  double label_smoothing = 0;             ///< in [0, 1]; not for nll_loss_with()
  Index ignore_index = -100;              ///< rows with this label count for nothing
  Tensor weights = {};                    ///< [C]: what a row of each class counts; undefined: 1
  Reduction reduction = Reduction::mean;  ///< mean: the sum divided by what the rows of the global batch count
};
/// A function of (prediction, target) that gives a scalar, and what it says of itself.
class Loss {
 public:
  /// One of the losses below, by its mean.
  using Reduced = Tensor (*)(const Tensor& prediction, const Tensor& target, Reduction);
  /// What function() holds then.
  struct Mean {
    Reduced loss;
    Tensor operator()(const Tensor& prediction, const Tensor& target) const {
      return loss(prediction, target, Reduction::mean);
    }
  };
  using Function = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;
  /// How much of a target counts for nothing, in labels: those that are ignored (PyTorch's ignore_index), and what the
  /// weights of their classes leave to 1.
  using CountIgnored = std::function<double(const Tensor& target)>;
  Loss() = default;  ///< null
  /// ignored: of a function that divides by the labels that count. A Step adds up those that do not, over all rows of
  /// the global batch, before it calls the function; a function that calls a loss of cross_entropy_with() hands its
  /// ignored() on. Null: each label counts.
  template <class F>
  requires(std::constructible_from<Function, F> && !std::same_as<F, Loss>) Loss(F function, CountIgnored ignored = {})
      : function_(std::move(function)), ignored_(std::move(ignored)) {
    if constexpr (std::same_as<F, Tensor (*)(const Tensor&, const Tensor&)>)
      if (function == trireme::cross_entropy) cross_entropy_ = {.ignore_index = CrossEntropyOptions::ignore_none};
  }
  /// Of a function that is the mean cross-entropy of these options, without weights of classes.
  Loss(Function function, CountIgnored ignored, LabelLossOptions cross_entropy)
      : function_(std::move(function)), ignored_(std::move(ignored)), cross_entropy_(std::move(cross_entropy)) {}
  Loss(Reduced loss) : function_(Mean{loss}) {}  // NOLINT: implicit
  Tensor operator()(const Tensor& prediction, const Tensor& target) const { return function_(prediction, target); }
  explicit operator bool() const { return static_cast<bool>(function_); }  ///< not null
  const Function& function() const { return function_; }
  const CountIgnored& ignored() const { return ignored_; }
  /// The options of a mean cross_entropy() without class weights, which a last layer LmHead computes together with its
  /// product (linear_cross_entropy()); null: another loss.
  const LabelLossOptions* cross_entropy() const { return cross_entropy_ ? &*cross_entropy_ : nullptr; }

 private:
  Function function_;
  CountIgnored ignored_;
  std::optional<LabelLossOptions> cross_entropy_;
};
/// F.cross_entropy with label smoothing, an ignored label, -100 by default as in PyTorch, and weights of classes: the
/// mean divides by what the labels count for. Throws Error where others have rows of the global batch and what theirs
/// count for is not known (StepContext::ignored), as in a Step whose Loss does not say how to count.
Loss cross_entropy_with(const LabelLossOptions&);
/// F.nll_loss of logarithms of probabilities [..., C] (log_softmax()) and labels i64 [...]: -log_p at the label. Its
/// mean divides as cross_entropy_with()'s does.
Loss nll_loss_with(const LabelLossOptions&);
/// nll_loss_with() of each label in [0, C), as cross_entropy() is.
Tensor nll_loss(const Tensor& log_p, const Tensor& labels);

/// What a loss of one's own ends with: the sum of `each` divided by its elements over all rows of the global batch, so
/// that the ranks' and micro-batches' shares add up to its mean. each [rows, ...] of a batch's rows, computed from them
/// (its BatchContext tells how many there are); of a tensor that comes from no batch mean().
///   Loss pinball = [](const Tensor& y, const Tensor& t) { return batch_mean(maximum(0.9 * (t - y), 0.1 * (y - t))); };
Tensor batch_mean(const Tensor& each);
/// The weighted mean, a mask's for instance: the sum of each * weights divided by the sum of all weights of the global
/// batch. weights of each's shape, not differentiated. Where ranks or micro-batches have parts of it, they come to know
/// that sum by Loss(function, ignored) with ignored(target) = the sum of 1 - weight; without, it throws Error.
///   Loss([](auto& y, auto& t) { return batch_mean(square(y - t), t.at("mask")); },
///        [](const Tensor& t) { return sum(1 - t.at("mask")).item(); })
Tensor batch_mean(const Tensor& each, const Tensor& weights);

// Of two tensors of one shape, element by element, computed in f32, in f64 for an f64 prediction -> a scalar of that
// type, or their shape (Reduction::none). Throw Error for other shapes.
/// F.mse_loss: (prediction - target)^2.
Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction = Reduction::mean);
/// F.l1_loss: |prediction - target|; gradient 0 where they are equal.
Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction = Reduction::mean);
/// F.smooth_l1_loss: with d = |prediction - target|, d^2 / (2 beta) up to beta > 0, d - beta / 2 from there on.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, Reduction = Reduction::mean);
/// The same with beta 1.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, Reduction = Reduction::mean);
/// F.huber_loss: delta times smooth_l1_loss() of beta = delta.
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, Reduction = Reduction::mean);
/// F.binary_cross_entropy_with_logits: -target log p - (1 - target) log(1 - p) of p = sigmoid(logits), without
/// overflow.
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, Reduction = Reduction::mean);
/// The same with -target log p times pos_weight, which broadcasts to the logits (PyTorch's pos_weight).
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, const Tensor& pos_weight,
                            Reduction = Reduction::mean);
/// F.kl_div: target (log target - log_p), 0 where target is 0. Reduction::mean divides by all elements (PyTorch's
/// "mean").
Tensor kl_div_loss(const Tensor& log_p, const Tensor& target, Reduction = Reduction::mean);

}  // namespace trireme

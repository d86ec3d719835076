// Losses. A share of the global batch's mean: the sum over the rows at hand divided by the count of the global batch,
// so that the ranks' shares, and their gradients, add up.
#include <limits>

#include "framework/autograd/step_context.h"
#include "framework/ops/help.h"
#include "framework/ops/ops.h"

namespace trireme {
namespace {

/// Rows of the global batch, in units of x's rows over all but `inner` last axes. Where the first axis has several rows
/// per sample ([B * T, C] of B sequences), so many times the global batch.
double global_rows(const char* op, const Tensor& x, const BatchContext& batch, int inner) {
  const Index at_hand = x.rank() > inner ? x.dim(0) : 1;
  const Index per_sample = x.rank() > inner ? x.shape().product(1, x.rank() - inner) : 1;
  Index rows = at_hand;
  if (batch.global_batch > 0) {
    const Index named = batch.samples ? batch.samples.numel() : at_hand;
    check(
        named == at_hand || (named > 0 && at_hand % named == 0), op,
        "{} rows of a batch that has {} here, so what they are of the global batch cannot be told: give all rows, and "
        "mark those that do not count with ignore_index",
        at_hand, named);
    rows = batch.global_batch * (named > 0 ? at_hand / named : 1);
  } else {
    check(!batch.sliced, op,
          "the rows are a slice of a share of the global batch, and how many the other ranks have in theirs is not "
          "known: give all rows, and mark those that do not count with ignore_index");
  }
  return static_cast<double>(rows * per_sample);
}

Index count_label(const Tensor& labels, Index label) {
  const Tensor host = labels.detach().to(cpu());
  return std::ranges::count(host.view().span<const std::int64_t>(), label);
}

/// Rows of the global batch less those whose label is ignored.
double counted_rows(const char* op, const Tensor& labels, double rows, Index ignored_label) {
  const auto& ignored = StepContext::current().ignored;
  check(ignored || static_cast<double>(labels.numel()) == rows, op,
        "{} of the global batch's {} labels are here, and how many of the others are ignored is not known: give the "
        "Step a Loss that counts them (Loss(function, cross_entropy_with(...).ignored()))",
        labels.numel(), rows);
  return rows - static_cast<double>(ignored ? *ignored : count_label(labels, ignored_label));
}

Tensor cross_entropy_over(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& o) {
  const char* op = "cross_entropy";
  ops::check_float(op, logits);
  check(labels && labels.dtype() == DType::i64, op, "labels must be i64, got {}",
        labels ? name_of(labels.dtype()) : "none");
  check(logits.rank() >= 1 && labels.shape() == logits.shape().without(logits.rank() - 1), op,
        "logits are {}, so labels must be {}, got {}", logits.shape(), logits.shape().without(logits.rank() - 1),
        labels.shape());
  check(o.label_smoothing >= 0 && o.label_smoothing <= 1, op, "label smoothing {} lies outside [0, 1]",
        o.label_smoothing);
  const Shape rows = ops::as_rows(logits.shape());
  const BatchContext& batch = batch_of(logits, labels);
  double count = global_rows(op, logits, batch, 1);
  if (o.ignore_index != CrossEntropyOptions::ignore_none) count = counted_rows(op, labels, count, o.ignore_index);
  const double share = count > 0 ? 1 / count : 0;

  const DType type = ops::accumulator(logits.dtype());
  const Tensor each = Tensor::empty({rows[0]}, type, logits.device()), log_p = Tensor::like(logits);
  launch<kernel::CrossEntropy>(each, ops::shaped(log_p, rows), ops::shaped(logits, rows),
                               ops::shaped(labels, {rows[0]}), o);
  Tensor loss = Tensor::empty({}, type, logits.device());
  ops::sum_to(loss, each);
  launch<kernel::Axpby>(loss, loss, share, 0.0);
  if (!needs_record(op, loss, {&logits})) return loss;
  return record(op, std::move(loss), {logits},
                [log_p, labels = SavedTensor(labels), o, share, rows](const Tensor& dy, Gradients& g) {
                  const Tensor by = Tensor::like(dy);
                  launch<kernel::Axpby>(by, dy, share, 0.0);
                  write_grad(g, 0, [&](const Tensor& dx) {
                    launch<kernel::CrossEntropyBackward>(ops::shaped(dx, rows), ops::shaped(log_p, rows),
                                                         ops::shaped(labels, {rows[0]}), by, o);
                  });
                });
}

/// Prediction and target, in the type that the loss is computed in.
struct Operands {
  Tensor y, target;
  Operands(const char* op, const Tensor& prediction, const Tensor& wanted) {
    ops::check_float(op, prediction);
    check(wanted && wanted.shape() == prediction.shape(), op, "prediction is {}, target {}: they must agree",
          prediction.shape(), wanted ? wanted.shape() : Shape{});
    const DType type = ops::accumulator(prediction.dtype());
    y = prediction.to(type), target = wanted.to(type);
  }
};
Tensor joined(const char* op, const Tensor& each, const Tensor& prediction, const Tensor& target, Reduction how) {
  if (how == Reduction::none) return each;
  if (how == Reduction::sum) return sum(each);
  const double count = global_rows(op, prediction, batch_of(prediction, target), 0);
  return scale(sum(each), count > 0 ? 1 / count : 0);
}
/// Twice smooth_l1_loss() times beta: q^2 + 2 beta (d - q), q = min(d, beta).
Tensor smooth_distance(const char* op, const Tensor& prediction, const Tensor& target, double beta) {
  check(beta > 0, op, "bound {}, expected more than 0", beta);
  const Operands x(op, prediction, target);
  const Tensor d = abs(x.y - x.target), q = clamp(d, 0, beta);
  return square(q) + (d - q) * (2 * beta);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  return cross_entropy_over(logits, labels, {.ignore_index = CrossEntropyOptions::ignore_none});
}
Loss cross_entropy_with(const CrossEntropyOptions& options) {
  Loss::CountIgnored ignored;
  if (options.ignore_index != CrossEntropyOptions::ignore_none)
    ignored = [label = options.ignore_index](const Tensor& labels) { return count_label(labels, label); };
  return {[options](const Tensor& logits, const Tensor& labels) { return cross_entropy_over(logits, labels, options); },
          std::move(ignored)};
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction how) {
  const Operands x("mse_loss", prediction, target);
  return joined("mse_loss", square(x.y - x.target), prediction, target, how);
}
Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction how) {
  const Operands x("l1_loss", prediction, target);
  return joined("l1_loss", abs(x.y - x.target), prediction, target, how);
}
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, Reduction how) {
  const Tensor each = smooth_distance("smooth_l1_loss", prediction, target, beta) / (2 * beta);
  return joined("smooth_l1_loss", each, prediction, target, how);
}
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, Reduction how) {
  return smooth_l1_loss(prediction, target, 1, how);
}
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, Reduction how) {
  return joined("huber_loss", smooth_distance("huber_loss", prediction, target, delta) * 0.5, prediction, target, how);
}
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, Reduction how) {
  const Operands x("bce_with_logits_loss", logits, target);
  return joined("bce_with_logits_loss", softplus(x.y) - x.y * x.target, logits, target, how);
}
Tensor kl_div_loss(const Tensor& log_p, const Tensor& target, Reduction how) {
  const Operands x("kl_div_loss", log_p, target);
  constexpr double tiny = 1e-37;
  const Tensor log_target = log(clamp(x.target, tiny, std::numeric_limits<double>::infinity()));
  return joined("kl_div_loss", x.target * (log_target - x.y), log_p, target, how);
}

}  // namespace trireme

// Losses. A share of the global batch's mean: the sum over the rows at hand divided by the count of the global batch,
// so that the ranks' shares, and their gradients, add up.
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

Tensor mse_loss(const Tensor& prediction, const Tensor& target) {
  ops::check_float("mse_loss", prediction);
  check(target && target.shape() == prediction.shape(), "mse_loss", "prediction is {}, target {}: they must agree",
        prediction.shape(), target ? target.shape() : Shape{});
  const DType type = ops::accumulator(prediction.dtype());
  const double count = global_rows("mse_loss", prediction, batch_of(prediction, target), 0);
  return scale(sum(square(sub(prediction.to(type), target.to(type)))), count > 0 ? 1 / count : 0);
}

}  // namespace trireme

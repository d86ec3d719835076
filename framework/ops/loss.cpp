// Losses. Each is a share of the global batch's mean: the sum over this tensor's rows, divided by the number of rows of
// the global batch. So the shares of ranks, and their gradients, add up.
#include <cmath>
#include <limits>

#include "framework/autograd/step_context.h"
#include "framework/ops/help.h"
#include "framework/ops/loss_share.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"

namespace trireme {
namespace {

/// Number of rows of the global batch, in units of x's rows over all but the `inner` last axes. If the first axis has
/// several rows per sample ([B * T, C] of B sequences), that many times the global batch.
double global_rows(const char* op, const Tensor& x, const BatchContext& batch, int inner) {
  const Index at_hand = x.rank() > inner ? x.dim(0) : 1;
  const Index per_sample = x.rank() > inner ? x.global_shape().product(1, x.rank() - inner) : 1;
  Index rows = at_hand;
  if (batch.global_batch > 0) {
    const Index named = batch.samples ? batch.samples.numel() : at_hand;
    check(named == at_hand || (named > 0 && at_hand % named == 0), op,
          "got {} rows of a batch with {} rows here, so their share of the global batch is unknown: give all rows, and "
          "mark rows that do not count with ignore_index",
          at_hand, named);
    rows = batch.global_batch * (named > 0 ? at_hand / named : 1);
  } else {
    check(!batch.sliced, op,
          "the rows are a slice of this rank's share, and the number of rows in the other ranks' slices is unknown: "
          "give all rows, and mark rows that do not count with ignore_index");
  }
  return static_cast<double>(rows * per_sample);
}

/// Sum over labels of 1 - weight: an ignored label has weight 0, another label the weight of its class.
double ignored_part(const Tensor& labels, const LabelLossOptions& o) {
  const Tensor host = labels.detach().to(cpu());
  const auto weights = o.weights ? o.weights.to_vector() : std::vector<double>{};
  double all = 0;
  for (const Index label : host.view().span<const std::int64_t>()) {
    const bool known = label >= 0 && label < static_cast<Index>(weights.size());
    all += label == o.ignore_index ? 1 : known ? 1 - weights[static_cast<std::size_t>(label)] : 0;
  }
  return all;
}

/// Sum of the weights of the global batch's rows, without ignored ones.
double counted_rows(const char* op, const Tensor& labels, double rows, const LabelLossOptions& o) {
  const auto& ignored = StepContext::current().ignored;
  check(ignored || static_cast<double>(labels.numel()) == rows, op,
        "this rank has {} of the global batch's {} labels, and the number of ignored labels among the others is "
        "unknown: give the Step a Loss that counts them (Loss(function, cross_entropy_with(...).ignored()))",
        labels.numel(), rows);
  return rows - (ignored ? *ignored : ignored_part(labels, o));
}

}  // namespace

void ops::check_labels(const char* op, const Tensor& x, const Tensor& labels) {
  ops::check_float(op, x);
  check(labels && labels.dtype() == DType::i64, op, "labels must be i64, got {}",
        labels ? name_of(labels.dtype()) : "none");
  check(x.rank() >= 1 && labels.shape() == x.shape().without(x.rank() - 1), op,
        "logits are {}, so labels must be {}, got {}", x.shape(), x.shape().without(x.rank() - 1), labels.shape());
}
void ops::check_label_options(const char* op, const LabelLossOptions& o) {
  check(o.label_smoothing >= 0 && o.label_smoothing <= 1, op, "label smoothing is {}, expected 0 to 1",
        o.label_smoothing);
  check(o.z_loss >= 0 && std::isfinite(o.z_loss), op, "z_loss is {}, expected 0 or more", o.z_loss);
}
double ops::share_of_row(const char* op, const Tensor& rows, const Tensor& labels, const LabelLossOptions& o) {
  double count = global_rows(op, labels, batch_of(rows, labels), 0);
  if (o.ignore_index != CrossEntropyOptions::ignore_none || o.weights) count = counted_rows(op, labels, count, o);
  return count > 0 ? 1 / count : 0;
}

namespace {

/// The sum over rows without class weights times `share`, in one kernel.
Tensor fused_cross_entropy(const Tensor& logits, const Tensor& labels, const LabelLossOptions& given, double share) {
  const char* op = "cross_entropy";
  const CrossEntropyOptions o{given.label_smoothing, given.ignore_index, given.z_loss};
  const Shape rows = ops::as_rows(logits.shape());
  const DType type = ops::accumulator(logits.dtype());
  const Tensor each = Tensor::empty({rows[0]}, type, logits.device()), log_p = Tensor::like(logits);
  const Tensor log_z = o.z_loss > 0 ? Tensor::like(each) : Tensor{};
  launch<kernel::CrossEntropy>(each, ops::shaped(log_p, rows), log_z, ops::shaped(logits, rows),
                               ops::shaped(labels, {rows[0]}), o);
  Tensor loss = Tensor::empty({}, type, logits.device());
  ops::sum_to(loss, each);
  launch<kernel::Axpby>(loss, loss, share, 0.0);
  if (!needs_record(op, loss, {&logits})) return loss;
  return record(op, std::move(loss), {logits},
                ops::twice(
                    [log_p, log_z, labels = SavedTensor(labels), o, share, rows](const Tensor& dy, Gradients& g) {
                      if (g.records())
                        return ops::give_recorded(g, 0, [&] {
                          const Tensor label = labels->reshape({rows[0], 1}),
                                       counted = ne(label, static_cast<double>(o.ignore_index));
                          const double off = o.label_smoothing / static_cast<double>(rows[1]);
                          const Tensor p = exp(ops::as_log_softmax(log_p, g.zeros_for(0)).reshape(rows));
                          const Tensor on = Tensor::full({rows[0], 1}, o.label_smoothing - 1, p.dtype(), p.device());
                          const Tensor dz = scatter_add(p - off, where(counted, label, 0), on, 1);
                          return where(counted, dz * (dy * share), 0).reshape(g.input(0).shape);
                        });
                      const Tensor by = Tensor::like(dy);
                      launch<kernel::Axpby>(by, dy, share, 0.0);
                      write_grad(g, 0, [&](const Tensor& dx) {
                        launch<kernel::CrossEntropyBackward>(ops::shaped(dx, rows), ops::shaped(log_p, rows), log_z,
                                                             ops::shaped(labels, {rows[0]}), by, o);
                      });
                    },
                    o.z_loss == 0 && !is_half(logits.dtype())));
}

/// -log_p at the label times its weight, smoothed towards the weighted sum over classes: one number per row. For a
/// Trace also the weights of the rows. log_z: of the rows, for z-loss; undefined: none.
std::pair<Tensor, Tensor> label_losses(const char* op, const Tensor& given, const Tensor& labels,
                                       const LabelLossOptions& o, const Tensor& log_z) {
  const Tensor log_p = given.to(ops::accumulator(given.dtype()));
  const Index classes = log_p.dim(-1);
  check(!o.weights || o.weights.shape() == Shape{classes}, op, "weights are {}, expected [{}]",
        o.weights ? o.weights.shape() : Shape{}, classes);
  const Mask ignored = eq(labels, static_cast<double>(o.ignore_index));
  const Tensor label = o.ignore_index == CrossEntropyOptions::ignore_none ? labels : masked_fill(labels, ignored, 0);
  const Tensor weights = ops::constant(o.weights ? o.weights.detach().to(log_p.device()).to(log_p.dtype())
                                                 : Tensor::full({classes}, 1, log_p.dtype(), log_p.device()));
  const Tensor weight = take(weights, label);
  Tensor each = -squeeze(gather(log_p, unsqueeze(label, -1), -1), -1) * weight;
  if (o.label_smoothing > 0)
    each = each * (1 - o.label_smoothing) -
           sum(log_p * weights, {-1}) * (o.label_smoothing / static_cast<double>(classes));
  if (log_z) each = each + square(log_z) * weight * o.z_loss;
  const auto counted = [&](const Tensor& t) {
    return o.ignore_index == CrossEntropyOptions::ignore_none ? t : masked_fill(t, ignored, 0);
  };
  return {counted(each), ops::is_traced() ? counted(weight) : Tensor{}};
}
Tensor label_loss(const char* op, const Tensor& log_p, const Tensor& labels, const LabelLossOptions& o,
                  const Tensor& log_z = {}) {
  const auto [each, counts] = label_losses(op, log_p, labels, o, log_z);
  if (o.reduction == Reduction::none) return each;
  // A Trace is for any number of rows: the sum of their weights is no constant.
  if (o.reduction == Reduction::mean && counts && batch_of(log_p, labels).global_batch == 0)
    return sum(each) / sum(counts);
  return o.reduction == Reduction::sum ? sum(each) : scale(sum(each), ops::share_of_row(op, log_p, labels, o));
}
/// Of rows [..., V] whose classes ranks divide: one number per row.
struct DividedRows {
  Tensor most, sum;   ///< of all ranks' logits: the maximum, and the sum of exp(z - most)
  Tensor label, all;  ///< z - most at the label, and summed over the classes
};

/// Each rank's row sums, relative to its own maximum, become those of all. Collective.
DividedRows merged(const RankMesh& mesh, AxisMask axes, const Tensor& most, const Tensor& sum, const Tensor& label,
                   const Tensor& here, const Tensor& all, Index classes) {
  const auto ranks = static_cast<Index>(mesh.ranks(axes));
  const RankMesh::Line line = mesh.line(axes);
  const Index rows = most.numel();
  // All-gather, as a sum of what is zero but in one place: the same numbers in one order on every rank.
  const Tensor gathered = Tensor::zeros({ranks, 6, rows}, most.dtype(), most.device());
  const Tensor mine = gathered.view_rows(line.me, line.me + 1).reshape({6, rows});
  const Tensor count = Tensor::full({rows}, static_cast<double>(classes), most.dtype(), most.device());
  Index row = 0;
  for (const Tensor& t : {most, sum, label, here, all, count}) {
    copy_unnoted(mine.view_rows(row, row + 1).reshape({rows}), t);
    ++row;
  }
  mesh.sum(gathered, axes);
  const auto parts = unbind(gathered, 1);  // each [ranks, rows]
  const Tensor whole = amax(parts[0], {0}, true), by = parts[0] - whole;
  return {.most = whole.reshape({rows}),
          .sum = trireme::sum(parts[1] * exp(by), {0}),
          .label = trireme::sum(parts[2] + parts[3] * by, {0}),
          .all = trireme::sum(parts[4] + parts[5] * by, {0})};
}

/// The loss of logits [..., V] whose rows or classes ranks divide, without bringing them together (classes:
/// Megatron-LM, arXiv 1909.08053, section 3; with label smoothing as in fused_cross_entropy()).
Tensor divided_cross_entropy(const Tensor& logits, const Tensor& labels_given, const LabelLossOptions& o) {
  const char* op = "cross_entropy";
  const Shape& global = logits.global_shape();
  const Tensor all_labels = gathered(labels_given);
  check(all_labels.dtype() == DType::i64 && all_labels.shape() == global.without(global.rank() - 1), op,
        "logits are {}, so labels must be i64 {}, got {}", global, global.without(global.rank() - 1),
        all_labels.shape());
  const ops::Placed p = ops::place({.op = op, .dims = "n.. v, n.. -> n.. v"}, {logits, all_labels});
  const ShardSpec& spec = p.spec(0);
  const AxisMask axes = spec.over(global.rank() - 1), over_rows = spec.placements().axes() & ~axes;
  const double share = o.reduction == Reduction::sum ? 1 : ops::share_of_row(op, all_labels, all_labels, o);
  const Tensor labels = p[1];
  if (axes == 0) return summed(fused_cross_entropy(p[0], labels, o, share), spec.mesh(), over_rows);
  const DType type = ops::accumulator(logits.dtype());
  const Index first = spec.runs(global.rank() - 1)[0].first, classes = global[-1];
  const Tensor in = p[0];
  Tensor loss, z, sum, counted, at, here, log_z;
  {
    const NoGrad constant;
    const Shape rows = ops::as_rows(in.shape());
    z = in.detach().reshape(rows).to(type);
    const Tensor label = labels.detach().reshape({rows[0]});
    counted = ne(label, static_cast<double>(o.ignore_index));
    if (label.device().kind == DeviceKind::cpu) {
      for (const Index id : label.view().span<const std::int64_t>())
        check(id == o.ignore_index || (id >= 0 && id < classes), op, "there is a label {}, but there are {} classes",
              id, classes);
    } else {  // this refuses other labels at the next synchronization
      (void)take(Tensor::zeros({classes}, type, label.device()), where(counted, label, 0), 0);
    }
    const Mask mine = logical_and(label >= static_cast<double>(first), label < static_cast<double>(first + rows[1]));
    at = where(mine, label - static_cast<double>(first), 0);
    here = mine.to(type);
    // Logits may be -inf (masked classes), even all that are here.
    const Tensor most =
        clamp(amax(z, {1}, true), std::numeric_limits<float>::lowest(), std::numeric_limits<double>::infinity());
    z = z - most;
    const Tensor own = where(mine, squeeze(gather(z, unsqueeze(at, 1), 1), 1), 0);
    const DividedRows all = merged(spec.mesh(), axes, most.reshape({rows[0]}), trireme::sum(exp(z), {1}), own, here,
                                   trireme::sum(z, {1}), rows[1]);
    z = z + (most - unsqueeze(all.most, 1));
    sum = unsqueeze(all.sum, 1);
    Tensor each = log(all.sum) - all.label * (1 - o.label_smoothing);
    if (o.label_smoothing > 0) each = each - all.all * (o.label_smoothing / static_cast<double>(classes));
    if (o.z_loss > 0) {
      log_z = log(all.sum) + all.most;
      each = each + square(log_z) * o.z_loss;
    }
    loss = summed(scale(trireme::sum(where(counted, each, 0)), share), spec.mesh(), over_rows);
  }
  if (!needs_record(op, loss, {&in})) return loss;
  return record(op, std::move(loss), {in}, o,
                [=, smoothing = o.label_smoothing, more = 2 * o.z_loss, shape = in.shape(), dtype = in.dtype()](
                    const Tensor& dy, Gradients& g) {
                  if (!g.needs_grad(0)) return;
                  const NoGrad constant;
                  Tensor dz = exp(z) / sum;
                  if (log_z) dz = dz * unsqueeze(log_z * more + 1, 1);
                  dz = dz - smoothing / static_cast<double>(classes);
                  dz = scatter_add(dz, unsqueeze(at, 1), unsqueeze(here * (smoothing - 1), 1), 1);
                  dz = where(unsqueeze(counted, 1), dz * (dy * share).to(dz.dtype()), 0);
                  g.set_grad(0, dz.reshape(shape).to(dtype));
                });
}

Tensor cross_entropy_over(const Tensor& logits, const Tensor& labels, const LabelLossOptions& o) {
  ops::check_label_options("cross_entropy", o);
  if (logits && labels && ops::is_divided({&logits, &labels})) {
    if (is_part(logits) && !o.weights && o.reduction != Reduction::none && !ops::is_traced())
      return divided_cross_entropy(logits, labels, o);
    return cross_entropy_over(gathered(logits), gathered(labels), o);
  }
  ops::check_labels("cross_entropy", logits, labels);
  if (!o.weights && o.reduction == Reduction::mean && !ops::is_traced())
    return fused_cross_entropy(logits, labels, o, ops::share_of_row("cross_entropy", logits, labels, o));
  return label_loss("cross_entropy", log_softmax(logits), labels, o,
                    o.z_loss > 0 ? logsumexp(logits.to(ops::accumulator(logits.dtype())), {-1}) : Tensor{});
}
Tensor nll_over(const Tensor& log_p, const Tensor& labels, const LabelLossOptions& o) {
  if (log_p && labels && ops::is_divided({&log_p, &labels})) return nll_over(gathered(log_p), gathered(labels), o);
  ops::check_labels("nll_loss", log_p, labels);
  check(o.label_smoothing == 0 && o.z_loss == 0, "nll_loss", "label smoothing and z-loss are for cross_entropy_with()");
  return label_loss("nll_loss", log_p, labels, o);
}
Loss label_loss_with(Tensor (*loss)(const Tensor&, const Tensor&, const LabelLossOptions&), const LabelLossOptions& o) {
  Loss::CountIgnored ignored;
  if (o.ignore_index != CrossEntropyOptions::ignore_none || o.weights)
    ignored = [o](const Tensor& labels) { return ignored_part(labels, o); };
  return {[loss, o](const Tensor& x, const Tensor& labels) { return loss(x, labels, o); }, std::move(ignored)};
}

/// Prediction and target, in the type that the loss is computed in.
struct Operands {
  Tensor y, target;
  Operands(const char* op, const Tensor& given, const Tensor& wanted_given) {
    ops::check_float(op, given);
    check(wanted_given.defined(), op, "the target is undefined");
    const Tensor prediction = gathered(given), wanted = gathered(wanted_given);
    check(wanted && wanted.shape() == prediction.shape(), op, "prediction is {}, target {}: expected equal shapes",
          prediction.shape(), wanted ? wanted.shape() : Shape{});
    const DType type = ops::accumulator(prediction.dtype());
    y = prediction.to(type);
    target = wanted.to(type);
  }
};
Tensor mean_over_batch(const char* op, const Tensor& each, const Tensor& rows_of, const BatchContext& batch) {
  const double count = global_rows(op, rows_of, batch, 0);
  const auto mean_of_all = [&] { return scale(sum(each), count > 0 ? 1 / count : 0); };
  return batch.global_batch > 0 ? mean_of_all() : ops::as_one_op("mean", {&each}, {}, mean_of_all);
}
Tensor joined_loss(const char* op, const Tensor& each, const Tensor& prediction, const Tensor& target, Reduction how) {
  if (how == Reduction::none) return each;
  if (how == Reduction::sum) return sum(each);
  return mean_over_batch(op, each, prediction, batch_of(prediction, target));
}
/// Twice beta times smooth_l1_loss(): q^2 + 2 beta (d - q), q = min(d, beta).
Tensor smooth_distance(const char* op, const Tensor& prediction, const Tensor& target, double beta) {
  check(beta > 0, op, "the bound is {}, expected more than 0", beta);
  const Operands x(op, prediction, target);
  const Tensor d = abs(x.y - x.target), q = clamp(d, 0, beta);
  return square(q) + (d - q) * (2 * beta);
}

}  // namespace

Tensor Loss::operator()(const Tensor& prediction, const Tensor& target) const {
  const bool by_parts = cross_entropy_ && prediction && prediction.shard_spec();
  return by_parts ? cross_entropy_over(prediction, target, *cross_entropy_) : function_(prediction, target);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  return cross_entropy_over(logits, labels, {.ignore_index = CrossEntropyOptions::ignore_none});
}
Loss cross_entropy_with(const LabelLossOptions& o) {
  Loss loss = label_loss_with(cross_entropy_over, o);
  if (o.weights || o.reduction != Reduction::mean) return loss;
  return {loss.function(), loss.ignored(), o};
}
Loss nll_loss_with(const LabelLossOptions& o) { return label_loss_with(nll_over, o); }
Tensor nll_loss(const Tensor& log_p, const Tensor& labels) {
  return nll_over(log_p, labels, {.ignore_index = CrossEntropyOptions::ignore_none});
}

Tensor with_loss(const Tensor& x, const Tensor& loss) {
  ops::check_float("with_loss", x);
  check(loss && is_float(loss.dtype()) && loss.numel() == 1 && !loss.shard_spec(), "with_loss",
        "the loss is {}, expected a scalar", loss ? loss.shape() : Shape{});
  Tensor y = x.detach().with_shard_spec(x.impl()->shard_spec);
  y.impl()->batch = x.impl()->batch;
  if (!needs_record("with_loss", y, {&x, &loss})) return y;
  return record("with_loss", std::move(y), {x, loss},
                ops::twice([scale = StepContext::current().loss_scale](const Tensor& dy, Gradients& g) {
                  if (g.needs_grad(0)) g.set_grad(0, dy);
                  if (g.records())
                    return ops::give_recorded(g, 1, [&] {
                      const auto [shape, type, device] = g.input(1);
                      return Tensor::full(shape, scale, type, device);
                    });
                  write_grad(g, 1, [&](const Tensor& dloss) { launch<kernel::Fill>(dloss, scale); });
                }));
}

Tensor batch_mean(const Tensor& each) {
  ops::check_float("batch_mean", each);
  if (each.shard_spec()) return batch_mean(gathered(each));
  return mean_over_batch("batch_mean", each, each, batch_of(each));
}

Tensor batch_mean(const Tensor& each, const Tensor& weights) {
  const char* op = "batch_mean";
  ops::check_float(op, each);
  if (weights && ops::is_divided({&each, &weights})) return batch_mean(gathered(each), gathered(weights));
  check(weights && weights.shape() == each.shape(), op, "numbers are {}, weights {}: expected equal shapes",
        each.shape(), weights ? weights.shape() : Shape{});
  const double count = global_rows(op, each, batch_of(each), 0);
  const auto& ignored = StepContext::current().ignored;
  check(ignored || static_cast<double>(each.numel()) == count, op,
        "this rank has {} of the global batch's {} numbers, and the weights of the others are unknown: give the Step a "
        "Loss(function, ignored) whose ignored(target) is the sum of 1 - weight",
        each.numel(), count);
  const Tensor w = weights.detach().to(DType::f64);
  const double weight = ignored ? count - *ignored : sum(w).item();
  return scale(sum(each * w.to(each.dtype())), weight > 0 ? 1 / weight : 0);
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction how) {
  const Operands x("mse_loss", prediction, target);
  return joined_loss("mse_loss", square(x.y - x.target), prediction, target, how);
}
Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction how) {
  const Operands x("l1_loss", prediction, target);
  return joined_loss("l1_loss", abs(x.y - x.target), prediction, target, how);
}
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, Reduction how) {
  const Tensor each = smooth_distance("smooth_l1_loss", prediction, target, beta) / (2 * beta);
  return joined_loss("smooth_l1_loss", each, prediction, target, how);
}
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, Reduction how) {
  return smooth_l1_loss(prediction, target, 1, how);
}
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, Reduction how) {
  return joined_loss("huber_loss", smooth_distance("huber_loss", prediction, target, delta) * 0.5, prediction, target,
                     how);
}
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, Reduction how) {
  const Operands x("bce_with_logits_loss", logits, target);
  return joined_loss("bce_with_logits_loss", softplus(x.y) - x.y * x.target, logits, target, how);
}
Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target, const Tensor& pos_weight, Reduction how) {
  const Operands x("bce_with_logits_loss", logits, target);
  // (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x))
  const Tensor weight = (ops::in_type(pos_weight, x.y.dtype()) - 1) * x.target + 1;
  return joined_loss("bce_with_logits_loss", (1 - x.target) * x.y + weight * softplus(-x.y), logits, target, how);
}
Tensor kl_div_loss(const Tensor& log_p, const Tensor& target, Reduction how) {
  const Operands x("kl_div_loss", log_p, target);
  constexpr double tiny = 1e-37;
  const Tensor log_target = log(clamp(x.target, tiny, std::numeric_limits<double>::infinity()));
  return joined_loss("kl_div_loss", x.target * (log_target - x.y), log_p, target, how);
}

}  // namespace trireme

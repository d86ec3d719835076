// Linear layer and cross-entropy: few rows as a whole, others in chunks, which give loss and gradients without all
// logits.
#include <cmath>

#include "framework/ops/help.h"
#include "framework/ops/loss_share.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

constexpr const char* op = "linear_cross_entropy";
constexpr Index chunk_bytes = Index{192} << 20;  // of logits at a time
constexpr Index least_rows = 64;                 // of a chunk: fewer make slow products

/// Operands as matrices: x [rows, C], weight [V, C].
struct Head {
  Tensor x;
  ops::Weights weights;
  Tensor labels;
  CrossEntropyOptions options;
  Shape rows;  // [rows, C]
  DType sums;  // type of losses, logits and the gradient of f32 weights with bf16 or f16 data

  Index vocabulary() const { return weights.w.dim(0); }
  View rows_of(const Tensor& t, Index begin, Index end) const {
    View v = ops::shaped(t, rows);
    v.data = static_cast<std::byte*>(v.data) + begin * rows[1] * size_of(t.dtype());
    v.shape = {end - begin, rows[1]};
    return v;
  }
  View labels_of(Index begin, Index end) const {
    View v = labels.view();
    v.data = v.as<std::int64_t>() + begin;
    v.shape = {end - begin};
    return v;
  }
};

/// Whether all logits and their gradient take no more memory than the weight's gradient, which chunks keep until the
/// loss's gradient is known.
bool is_small(const Head& h) { return 2 * h.rows[0] <= h.rows[1]; }

/// The loss of each row, [rows], and the backward of their sum: gradients are computed where they belong.
std::pair<Tensor, BackwardFn> run_whole(const Head& h, double share) {
  const Index rows = h.rows[0];
  const Shape all{rows, h.vocabulary()};
  const Device device = h.x.device();
  const Tensor each = Tensor::empty({rows}, h.sums, device), logits = Tensor::empty(all, h.sums, device);
  const Tensor log_z = h.options.z_loss > 0 ? Tensor::empty({rows}, h.sums, device) : Tensor{};
  const View label = h.labels_of(0, rows);
  launch<kernel::Linear>(logits, h.rows_of(h.x, 0, rows), h.weights.w, h.weights.bias, false);
  launch<kernel::CrossEntropy>(each, logits, log_z ? log_z.view() : View{}, logits, label, h.options);
  return {each, [=, x = SavedTensor(h.x), w = SavedTensor(h.weights.w), labels = SavedTensor(h.labels),
                 options = h.options, flat = h.rows](const Tensor& dy, Gradients& g) {
            const Tensor by = Tensor::like(dy);
            launch<kernel::Axpby>(by, dy, share, 0.0);
            Tensor dz = Tensor::like(logits);
            launch<kernel::CrossEntropyBackward>(dz, logits, log_z ? log_z.view() : View{}, ops::shaped(labels, {rows}),
                                                 by, options);
            const Tensor input = x.get();
            if (input.dtype() != dz.dtype()) dz = dz.to(input.dtype());
            write_grad(g, 0,
                       [&](const Tensor& dx) { launch<kernel::LinearBackwardInput>(ops::shaped(dx, flat), dz, w); });
            ops::give_weight_and_bias(g, 1, 2, dz.view(), [&](const View& dw, const View& db, bool accumulate) {
              launch<kernel::LinearBackwardWeight>(dw, db, ops::shaped(input, flat), dz, accumulate);
            });
          }};
}

/// Gradients of the sum of all rows' losses; undefined where none is wanted.
struct HeadGradients {
  Tensor dx, dw, dbias;
};

View first_rows(const Tensor& t, Index rows) {
  View v = t.view();
  v.shape[0] = rows;
  return v;
}

/// The loss of each row, [rows], and the gradients of their sum that `want` has tensors for. Chunks run in a fixed
/// order.
Tensor run_chunks(const Head& h, HeadGradients& want, Index given_chunk) {
  const Index rows = h.rows[0], vocabulary = h.vocabulary();
  const Device device = h.x.device();
  const bool half = h.x.dtype() != h.sums, gradients = want.dx || want.dw || want.dbias;
  const Tensor each = Tensor::empty({rows}, h.sums, device);
  const Index fitting = chunk_bytes / std::max<Index>(1, vocabulary * static_cast<Index>(size_of(h.sums)));
  const Index chunk = std::min(rows, given_chunk > 0 ? given_chunk : std::max(least_rows, fitting));
  const Tensor logits = Tensor::empty({chunk, vocabulary}, h.sums, device);
  const Tensor rounded = half && gradients ? Tensor::empty({chunk, vocabulary}, h.x.dtype(), device) : Tensor{};
  const Tensor log_zs = h.options.z_loss > 0 ? Tensor::empty({chunk}, h.sums, device) : Tensor{};
  const Tensor one = gradients ? Tensor::full({}, 1, h.sums, device) : Tensor{};
  for (Index begin = 0; begin < rows; begin += chunk) {
    const Index end = std::min(rows, begin + chunk);
    const View z = first_rows(logits, end - begin), x = h.rows_of(h.x, begin, end), label = h.labels_of(begin, end);
    View losses = each.view();
    losses.data = static_cast<std::byte*>(losses.data) + begin * size_of(h.sums);
    losses.shape = {end - begin};
    launch<kernel::Linear>(z, x, h.weights.w, h.weights.bias, false);
    const View log_z = log_zs ? first_rows(log_zs, end - begin) : View{};
    launch<kernel::CrossEntropy>(losses, z, log_z, z, label, h.options);
    if (!gradients) continue;
    launch<kernel::CrossEntropyBackward>(z, z, log_z, label, one, h.options);
    View dz = z;
    if (half) {
      dz = first_rows(rounded, end - begin);
      launch<kernel::Cast>(dz, z);
    }
    if (want.dx) launch<kernel::LinearBackwardInput>(h.rows_of(want.dx, begin, end), dz, h.weights.w);
    if (want.dw) {
      launch<kernel::LinearBackwardWeight>(want.dw, want.dbias ? want.dbias.view() : View{}, x, dz, begin > 0);
    } else if (want.dbias) {
      const Tensor sum = begin > 0 ? Tensor::like(want.dbias) : want.dbias;
      launch<kernel::Reduce>(ops::shaped(sum, {1, vocabulary}), dz, ReduceKind::sum);
      if (begin > 0) add_into(want.dbias, sum);
    }
  }
  return each;
}

/// Input i's gradient (+)= by * gradient, where `by` is a scalar on the same device. On the CPU one pass; elsewhere
/// nothing waits for it.
void give_scaled(Gradients& g, int i, const Tensor& gradient, const Tensor& by) {
  if (!g.needs_grad(i)) return;
  if (gradient.device().kind == DeviceKind::cpu) {
    const Gradients::Target to = g.grad_buffer(i);
    return launch<kernel::Axpby>(to.tensor, gradient, by.item(), to.accumulate ? 1.0 : 0.0);
  }
  const Tensor factor = by.to(gradient.dtype());
  write_grad(g, i, [&](const Tensor& to) { ops::zip_into<pointwise::Mul>(to, gradient, factor); });
}

/// On the CPU all labels are checked at once, so that the error names the row of the batch.
void check_values(const Head& h) {
  if (h.labels.device().kind != DeviceKind::cpu) return;
  const auto labels = h.labels.view().span<const std::int64_t>();
  for (std::size_t r = 0; r < labels.size(); ++r)
    check(labels[r] == h.options.ignore_index || (labels[r] >= 0 && labels[r] < h.vocabulary()), op,
          "row {} has label {}, but there are {} classes: labels must lie in [0, {})", r, labels[r], h.vocabulary(),
          h.vocabulary());
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& labels, const LabelLossOptions& o,
                            const Tensor& bias) {
  return ops::linear_cross_entropy_in_chunks(x, w, labels, o, bias, 0);
}

Tensor ops::linear_cross_entropy_in_chunks(const Tensor& x, const Tensor& w, const Tensor& labels,
                                           const LabelLossOptions& o, const Tensor& bias, Index chunk) {
  ops::check_float(op, x);
  check(!o.weights && o.reduction != Reduction::none, op,
        "class weights and Reduction::none are not supported: use cross_entropy_with() on the result of linear()");
  ops::check_label_options(op, o);
  const auto composed = [&] { return cross_entropy_with(o)(linear(x, w, bias), labels); };
  if (ops::is_traced() || ops::is_divided({&x, &w, &labels, &bias})) return composed();
  check(x.rank() >= 1 && w && w.rank() == 2 && x.dim(-1) == w.dim(1), op,
        "input {} does not fit the weight {}: its last extent must be the weight's second", x.shape(),
        w ? w.shape() : Shape{});
  ops::check_channels(op, "bias", bias, w.dim(0), true);
  ops::check_labels(op, x, labels);
  Head h{.x = x,
         .weights = ops::Weights(w, bias, x.dtype()),
         .labels = labels,
         .options = {o.label_smoothing, o.ignore_index, o.z_loss},
         .rows = ops::as_rows(x.shape()),
         .sums = ops::accumulator(x.dtype())};
  check_values(h);
  const double share = o.reduction == Reduction::sum ? 1 : ops::share_of_row(op, x, labels, o);
  Tensor loss = Tensor::empty({}, h.sums, x.device());
  const bool recorded = needs_record(op, loss, {&x, &h.weights.leaf_w, &h.weights.leaf_bias});
  const std::vector<Tensor> inputs{x, h.weights.leaf_w, h.weights.leaf_bias};
  if (recorded && chunk == 0 && h.rows[0] > 0 && is_small(h)) {
    auto [each, backward] = run_whole(h, share);
    ops::sum_to(loss, each);
    launch<kernel::Axpby>(loss, loss, share, 0.0);
    return record(op, std::move(loss), inputs, o, std::move(backward));
  }
  HeadGradients gradients;
  const auto wanted = [&](const Tensor& t) { return recorded && t && t.requires_grad(); };
  if (wanted(x)) gradients.dx = Tensor::like(x);
  if (wanted(h.weights.leaf_w)) gradients.dw = Tensor::like(h.weights.leaf_w);
  if (wanted(h.weights.leaf_bias)) gradients.dbias = Tensor::like(h.weights.leaf_bias);
  if (h.rows[0] == 0) {
    for (const Tensor& t : {loss, gradients.dx, gradients.dw, gradients.dbias})
      if (t) launch<kernel::Fill>(t, 0.0);
  } else {
    ops::sum_to(loss, run_chunks(h, gradients, chunk));
    launch<kernel::Axpby>(loss, loss, share, 0.0);
  }
  if (!recorded) return loss;
  return record(op, std::move(loss), inputs, o, [kept = std::move(gradients), share](const Tensor& dy, Gradients& g) {
    const Tensor by = Tensor::like(dy);
    launch<kernel::Axpby>(by, dy, share, 0.0);
    give_scaled(g, 0, kept.dx, by);
    give_scaled(g, 1, kept.dw, by);
    give_scaled(g, 2, kept.dbias, by);
  });
}

}  // namespace trireme

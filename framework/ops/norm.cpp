// Normalisation over the batch and over the last axis, softmax.
#include "kernels/contracts/norm.h"

#include "framework/autograd/step_context.h"
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "framework/tensor/division_error.h"

namespace trireme {
namespace {

using Ranks = std::shared_ptr<const NormRanks>;

/// Number of rows of the scope, if x's batch determines it. Then each rank has one share of a global batch that is not
/// cut further, and every sample has the same number of rows. 0: the ranks must exchange the number.
double rows_told(const Tensor& x, const NormRanks& ranks) {
  const BatchContext& batch = batch_of(x);
  const bool whole = batch.share && batch.share->microbatches == 1 && batch.microbatches.size() <= 1 &&
                     batch.joined.empty() && !batch.sliced;
  if (!whole || batch.share->size != ranks.size() || !batch.names_rows_of(x) || x.shard_spec()) return 0;
  return static_cast<double>(batch.global_batch * x.shape().product(1, x.rank() - 1));
}

/// Combines the moments of this rank's rows of x with those of the scope's other ranks, in one message. Returns the
/// scope's number of rows. Waits for a device only if nothing else determines it.
double combine(const Tensor& x, const Tensor& mean, const Tensor& m2, Index rows, const NormRanks& ranks) {
  const Index channels = mean.numel(), width = 1 + 2 * channels;
  Tensor own, all;
  {
    const MemoryScope packed(MemoryKind::packed);
    own = Tensor::full({width}, static_cast<double>(rows), DType::f64, mean.device());
    all = Tensor::empty({ranks.size() * width}, DType::f64, mean.device());
  }
  copy_unnoted(own.view_rows(1, 1 + channels), mean);
  copy_unnoted(own.view_rows(1 + channels, width), m2);
  ranks.gather(all, own)();
  const Tensor count = own.view_rows(0, 1);
  launch<kernel::BatchNormMerge>(mean, m2, count, all.reshape({ranks.size(), width}));
  const double told = x.device().kind == DeviceKind::cpu ? 0 : rows_told(x, ranks);
  return told > 0 ? told : count.item();
}

struct Statistics {
  Tensor mean, rstd;
  double count = 0;  // rows in the scope; 0: constants (evaluation)
};

Statistics statistics(const Tensor& x, const ChannelStats& known, const Tensor& running_mean, const Tensor& running_var,
                      const BatchNormOptions& o, const Ranks& ranks) {
  const DType type = ops::accumulator(x.dtype());
  const Index channels = x.dim(-1), rows = x.shape().product(0, x.rank() - 1);
  Statistics s{.mean = known.mean ? known.mean : Tensor::empty({channels}, type, x.device()),
               .rstd = Tensor::empty({channels}, type, x.device())};
  if (!is_training(x)) {
    copy_unnoted(s.mean, running_mean);
    launch<kernel::BatchNormFinish>(s.rstd, View{}, View{}, s.mean, running_var.detach().to(type), 1.0, o.eps, 0.0);
    return s;
  }
  const Tensor m2 = known.m2 ? known.m2 : Tensor::like(s.mean);
  if (known.mean) {
    // They came with x.
  } else if (rows > 0) {
    launch<kernel::BatchNormMoments>(s.mean, m2, x);
  } else {
    launch<kernel::Fill>(s.mean, 0.0);
    launch<kernel::Fill>(m2, 0.0);
  }
  s.count = ranks ? combine(x, s.mean, m2, rows, *ranks) : static_cast<double>(rows);
  const bool any = s.count > 0,
             move = any && !StepContext::current().recomputing;  // an empty batch changes nothing
  check(s.count != 1 || !move, "batch_norm",
        "input is {}, one value per channel{}, which has no variance: training takes more than 1 value per channel, so "
        "feed more rows at once, or set training = false",
        x.shape(), ranks ? " of all ranks" : "");
  BatchNormStats* later = StepContext::current().norm_stats;
  if (move && later) later->add(running_mean, running_var, s.mean, m2, s.count, o.momentum);
  launch<kernel::BatchNormFinish>(s.rstd, move && !later ? running_mean.view() : View{},
                                  move && !later ? running_var.view() : View{}, s.mean, m2, any ? s.count : 1.0, o.eps,
                                  o.momentum);
  return s;
}

/// Tensors that the backward of batch norm needs.
struct Kept {
  SavedTensor x, gamma;
  SavedTensor beta;  // with a fused ReLU: its mask is recomputed from x
  SavedTensor y;     // with a fused ReLU after a residual: its mask is read from the output
  Statistics statistics;
  Ranks ranks;  // null: this one alone
};

void batch_norm_backward(const Kept& k, const Tensor& dy, Gradients& g) {
  const Statistics& s = k.statistics;
  // With a residual, dy is masked first: that is the residual's gradient.
  const bool mine = is_uniquely_owned(dy) || k.y;  // dz may be written over
  const Tensor dz = !k.y || is_uniquely_owned(dy) ? dy : Tensor::like(dy);
  const Tensor mask = k.y ? Tensor{} : k.beta.get();
  Tensor dgamma = Tensor::like(s.mean), dbeta = Tensor::like(s.mean);
  if (dy.numel() > 0) {
    launch<kernel::BatchNormBackwardReduce>(dgamma, dbeta, k.y ? dz : Tensor{}, dy, k.x, s.mean, s.rstd, k.gamma, mask,
                                            k.y);
  } else {
    launch<kernel::Fill>(dgamma, 0.0);
    launch<kernel::Fill>(dbeta, 0.0);
  }
  // dx needs the sums over the scope; the gradients of gamma and beta stay this rank's share.
  Tensor sum_dz_xhat = s.count > 0 ? dgamma : Tensor{}, sum_dz = s.count > 0 ? dbeta : Tensor{};
  if (s.count > 0 && k.ranks) {
    const MemoryScope packed(MemoryKind::packed);
    const Index channels = dgamma.numel();
    const Tensor both = Tensor::empty({2 * channels}, dgamma.dtype(), dgamma.device());
    sum_dz_xhat = both.view_rows(0, channels);
    sum_dz = both.view_rows(channels, 2 * channels);
    copy_unnoted(sum_dz_xhat, dgamma);
    copy_unnoted(sum_dz, dbeta);
    k.ranks->sum(both)();
  }
  if (g.needs_grad(0)) {
    Tensor dx = mine && !g.needs_grad(3) ? dz : Tensor::like(k.x);
    launch<kernel::BatchNormBackwardApply>(dx, dz, k.x, s.mean, s.rstd, k.gamma, mask, sum_dz_xhat, sum_dz, s.count);
    g.set_grad(0, std::move(dx));
  }
  g.set_grad(3, dz);
  sum_dz_xhat = {};
  sum_dz = {};
  g.set_grad(1, std::move(dgamma));
  g.set_grad(2, std::move(dbeta));
}

/// y gamma + beta, each of which may be undefined.
Tensor scaled(Tensor y, const Tensor& gamma, const Tensor& beta) {
  if (gamma) y = y * gamma;
  return beta ? y + beta : y;
}

/// For Gradients::records(), on one rank.
void batch_norm_backward_by_ops(const Kept& k, double eps, const Tensor& dy, Gradients& g) {
  const Statistics& s = k.statistics;
  const Tensor dz = k.y ? dy * (k.y.get() > 0).to(dy.dtype()) : dy;
  ops::give_recorded(g, 3, [&] { return dz; });
  const Tensor beta = k.beta || !g.needs_grad(2) ? k.beta.get() : g.zeros_for(2);
  detail::give_by_ops(g, dz, {k.x, k.gamma, beta}, [&](const std::vector<Tensor>& in) {
    std::vector<int> rows;
    for (int axis = 0; axis + 1 < in[0].rank(); ++axis) rows.push_back(axis);
    const Tensor centered = in[0] - (s.count > 0 ? mean(in[0], rows, true) : s.mean);
    const Tensor rstd = s.count > 0 ? rsqrt(mean(square(centered), rows, true) + eps) : s.rstd;
    const Tensor y = scaled(centered * rstd, in[1], in[2]);
    return k.beta && !k.y ? relu(y) : y;
  });
}

/// Of several ranks with the same rows one counts: the others bring no rows, and zeros to sums.
class CountedOnce final : public NormRanks {
 public:
  CountedOnce(Ranks all, bool counts) : all_(std::move(all)), counts_(counts) {}
  int size() const override { return all_->size(); }
  Wait gather(const Tensor& to, const Tensor& from) const override {
    return all_->gather(to, counts_ ? from : Tensor::zeros(from.shape(), from.dtype(), from.device()));
  }
  Wait sum(const Tensor& x) const override {
    if (!counts_) launch<kernel::Fill>(x, 0.0);
    return all_->sum(x);
  }

 private:
  Ranks all_;
  bool counts_;
};

/// The ranks for the statistics of a tensor with the rows of all ranks along RankMesh::rows(): none but this one,
/// unless other ranks have other rows.
Ranks with_all_rows(const RankMesh& mesh, Ranks norm) {
  if (!norm || norm->size() <= mesh.size(mesh.rows())) return {};
  return std::make_shared<CountedOnce>(std::move(norm), mesh.index(mesh.rows()) == 0);
}

constexpr ops::OpRule batch_norm_rule{
    .op = "batch_norm", .dims = "n s.. c, c, c, n s.. c, c, c -> n s.. c", .stays = 4};

/// batch_norm() with statistics over the ranks that have other cells of the same images, too. Channels are divided
/// where the weights and running statistics are.
Tensor divided_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                          const Tensor& running_var, const BatchNormOptions& o, const Tensor& residual) {
  const ops::Placed p = ops::place(batch_norm_rule, {x, gamma, beta, residual, running_mean, running_var});
  if (p[4].shape() != running_mean.shape() || p[5].shape() != running_var.shape())
    fail_division("batch_norm",
                  "running statistics are {} and {} of {}, and {} channels of the input are here: divide "
                  "them as the weights",
                  running_mean.shape(), running_var.shape(), ops::global_shape(x)[-1], p[0].dim(-1));
  const RankMesh& mesh = p.out().mesh();
  StepContext context = StepContext::current();
  if (mesh.rows() >= 0 && !(p.out().over(0) >> mesh.rows() & 1))
    context.norm = with_all_rows(mesh, std::move(context.norm));
  if (const AxisMask within = spatial_axes(p.out())) context.norm = mesh.norm_ranks(within, std::move(context.norm));
  const StepScope scope(std::move(context));
  return p.put(batch_norm(p[0], p[1], p[2], plain(running_mean), plain(running_var), o, p[3]));
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& gamma_given, const Tensor& beta_given, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& o, const Tensor& residual,
                  const ChannelStats& moments) {
  const char* op = "batch_norm";
  ops::check_float(op, x);
  check(x.rank() >= 2, op, "input is {}, expected [N, ..., C]", x.shape());
  if (ops::is_divided({&x, &gamma_given, &beta_given, &running_mean, &running_var, &residual}))
    return divided_batch_norm(x, gamma_given, beta_given, running_mean, running_var, o, residual);
  const Index channels = x.dim(-1);
  ops::check_channels(op, "gamma", gamma_given, channels, false);
  ops::check_channels(op, "beta", beta_given, channels, false);
  ops::check_channels(op, "running_mean", running_mean, channels, false);
  ops::check_channels(op, "running_var", running_var, channels, false);
  check(running_mean.dtype() == running_var.dtype() && !is_half(running_mean.dtype()) && is_float(running_var.dtype()),
        op, "running statistics are {} and {}: both must be f32, or f64", running_mean.dtype(), running_var.dtype());
  if (residual) {
    ops::check_same_type(op, x, residual);
    check(residual.shape() == x.shape(), op, "input is {}, residual {}", x.shape(), residual.shape());
  }
  const DType type = ops::accumulator(x.dtype());
  const Tensor gamma = ops::in_type(gamma_given, type), beta = ops::in_type(beta_given, type);
  const Ranks ranks = StepContext::current().norm;
  const Statistics s = statistics(x, moments, running_mean, running_var, o, ranks);
  Tensor y = Tensor::like(x);
  launch<kernel::BatchNormApply>(y, x, s.mean, s.rstd, gamma, beta, residual, o.relu);
  if (!needs_record(op, y, {&x, &gamma, &beta, &residual})) return y;
  Kept kept{x, gamma, o.relu ? beta : Tensor{}, o.relu && residual ? y.detach() : Tensor{}, s, ranks};
  y = record(op, std::move(y), {x, gamma, beta, residual, running_mean, running_var}, o,
             Backward{.inputs =
                          [kept = std::move(kept), eps = o.eps](const Tensor& dy, Gradients& g) {
                            g.records() ? batch_norm_backward_by_ops(kept, eps, dy, g)
                                        : batch_norm_backward(kept, dy, g);
                          },
                      .twice = !ranks && !is_half(x.dtype())});
  // The output can be recomputed by one pass over x, which is saved in any case. (With a residual, the residual would
  // have to be saved, too.) gamma and beta are copied, since ZeRO may release the weights before a late half of
  // backward runs.
  if (detail::Node* node = y.impl()->node.get(); node && !residual)
    node->recompute_output = [x = SavedTensor(x), s, gamma = gamma.detach().clone(), beta = beta.detach().clone(),
                              relu = o.relu] {
      Tensor again = Tensor::like(x);
      launch<kernel::BatchNormApply>(again, x, s.mean, s.rstd, gamma, beta, View{}, relu);
      return again;
    };
  return y;
}

namespace {
/// gamma and beta for x [..., C], each [C] or undefined, in the type of statistics.
std::pair<Tensor, Tensor> channel_weights(const char* op, const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  ops::check_channels(op, "gamma", gamma, x.dim(-1), true);
  ops::check_channels(op, "beta", beta, x.dim(-1), true);
  const DType type = ops::accumulator(x.dtype());
  return {ops::in_type(gamma, type), ops::in_type(beta, type)};
}

/// beta, on which no gradient depends, if it needs one.
Tensor needed(const Gradients& g, int beta) { return g.needs_grad(beta) ? g.zeros_for(beta) : Tensor(); }

/// Layer norm, or RMS norm: the same without a mean and beta.
Tensor row_norm(const char* op, const Tensor& x, const Tensor& gamma_given, const Tensor& beta_given, double eps,
                bool center) {
  ops::check_float(op, x);
  check(x.rank() >= 1, op, "a scalar has no axis to normalise over");
  if (ops::is_divided({&x, &gamma_given, &beta_given})) {
    const ops::Placed p =
        ops::place({.op = op, .dims = "n.. c, c, c -> n.. c", .whole = "c"}, {x, gamma_given, beta_given});
    return p.put(row_norm(op, p[0], p[1], p[2], eps, center));
  }
  const auto [gamma, beta] = channel_weights(op, x, gamma_given, beta_given);
  const DType type = ops::accumulator(x.dtype());
  const Index rows = x.shape().product(0, x.rank() - 1);
  const Tensor mean = Tensor::empty({rows}, type, x.device()), rstd = Tensor::empty({rows}, type, x.device());
  Tensor y = Tensor::like(x);
  launch<kernel::LayerNorm>(y, mean, rstd, x, gamma, beta, eps, center);
  if (!needs_record(op, y, {&x, &gamma, &beta})) return y;
  return record(
      op, std::move(y), {x, gamma, beta}, eps,
      Backward{.inputs =
                   [x = SavedTensor(x), gamma = SavedTensor(gamma), mean, rstd, center, eps](const Tensor& dy,
                                                                                             Gradients& g) {
                     if (g.records())
                       return detail::give_by_ops(g, dy, {x, gamma, needed(g, 2)}, [&](const std::vector<Tensor>& in) {
                         const Tensor row = center ? in[0] - trireme::mean(in[0], {-1}, true) : in[0];
                         return scaled(row * rsqrt(trireme::mean(square(row), {-1}, true) + eps), in[1], in[2]);
                       });
                     write_grad(g, 0, [&](const Tensor& dx) {
                       launch<kernel::LayerNormBackwardInput>(dx, dy, x, mean, rstd, gamma, center);
                     });
                   },
               .weights =
                   [x = SavedTensor(x), mean, rstd](const Tensor& dy, Gradients& g) {
                     if (g.records()) return;  // the first half gives all
                     if (!g.needs_grad(1) && !g.needs_grad(2)) return;
                     Tensor dgamma = Tensor::empty({x.shape()[-1]}, mean.dtype(), mean.device()),
                            dbeta = Tensor::like(dgamma);
                     if (dy.numel() > 0) {
                       launch<kernel::LayerNormBackwardWeight>(dgamma, dbeta, dy, x, mean, rstd, false);
                     } else {
                       launch<kernel::Fill>(dgamma, 0.0);
                       launch<kernel::Fill>(dbeta, 0.0);
                     }
                     g.set_grad(1, std::move(dgamma));
                     g.set_grad(2, std::move(dbeta));
                   },
               .twice = !is_half(x.dtype())});
}
}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return row_norm("layer_norm", x, gamma, beta, eps, true);
}
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
  return row_norm("rms_norm", x, gamma, {}, eps, false);
}
Tensor layer_norm_over(const Tensor& x, const Shape& last, const Tensor& gamma, const Tensor& beta, double eps) {
  const char* op = "layer_norm";
  ops::check_float(op, x);
  const Shape& given = x.global_shape();
  if (last.rank() == 1 && (given.rank() == 0 || given[-1] == last[0])) return layer_norm(x, gamma, beta, eps);
  const int first = x.rank() - last.rank();
  bool fits = last.rank() > 0 && first >= 0;
  for (int i = 0; fits && i < last.rank(); ++i) fits = given[first + i] == last[i];
  check(fits, op, "input is {}, expected the last axes {}", given, last);
  for (const Tensor* t : {&gamma, &beta})
    check(!*t || t->global_shape() == last, op, "weights are {}, expected {}", *t ? t->global_shape() : Shape{}, last);
  Shape rows;
  for (int i = 0; i < first; ++i) rows.push_back(given[i]);
  rows.push_back(last.numel());
  const auto flat = [&](const Tensor& t) { return t ? t.reshape({last.numel()}) : t; };
  return layer_norm(x.reshape(rows), flat(gamma), flat(beta), eps).reshape(given);
}

Tensor group_norm(const Tensor& x, Index groups, const Tensor& gamma_given, const Tensor& beta_given, double eps) {
  const char* op = "group_norm";
  ops::check_float(op, x);
  check(x.rank() >= 2, op, "input is {}, expected [N, ..., C]", x.shape());
  if (ops::is_divided({&x, &gamma_given, &beta_given})) {
    const Index channels = ops::global_shape(x)[-1];
    check(groups > 0 && channels % groups == 0, op, "{} groups do not divide the {} channels of {}", groups, channels,
          ops::global_shape(x));
    const ops::Placed p = ops::place({.op = op, .dims = "n s.. (g c), (g c), (g c) -> n s.. (g c)", .whole = "sc"},
                                     {x, gamma_given, beta_given}, {}, {{'g', groups}});
    return p.put(group_norm(p[0], groups * p[0].dim(-1) / channels, p[1], p[2], eps));
  }
  check(groups > 0 && x.dim(-1) % groups == 0, op, "{} groups do not divide the {} channels of {}", groups, x.dim(-1),
        x.shape());
  const auto [gamma, beta] = channel_weights(op, x, gamma_given, beta_given);
  const DType type = ops::accumulator(x.dtype());
  const Tensor mean = Tensor::empty({x.dim(0), groups}, type, x.device()), rstd = Tensor::like(mean);
  Tensor y = Tensor::like(x);
  launch<kernel::GroupNorm>(y, mean, rstd, x, gamma, beta, eps);
  if (!needs_record(op, y, {&x, &gamma, &beta})) return y;
  const Tensor sum_dy = Tensor::empty({x.dim(0), x.dim(-1)}, type, x.device()), sum_dy_xhat = Tensor::like(sum_dy);
  return record(
      op, std::move(y), {x, gamma, beta}, std::pair(groups, eps),
      Backward{.inputs =
                   [=, x = SavedTensor(x), gamma = SavedTensor(gamma)](const Tensor& dy, Gradients& g) {
                     if (g.records())
                       return detail::give_by_ops(g, dy, {x, gamma, needed(g, 2)}, [&](const std::vector<Tensor>& in) {
                         const Shape& shape = x.shape();
                         const Tensor all =
                             in[0].reshape({shape[0], shape.product(1, shape.rank() - 1), groups, shape[-1] / groups});
                         const Tensor centered = all - trireme::mean(all, {1, 3}, true);
                         const Tensor y = centered * rsqrt(trireme::mean(square(centered), {1, 3}, true) + eps);
                         return scaled(y.reshape(shape), in[1], in[2]);
                       });
                     const auto run = [&](const View& dx) {
                       launch<kernel::GroupNormBackward>(sum_dy, sum_dy_xhat, dx, dy, x, mean, rstd, gamma);
                     };
                     if (!g.needs_grad(0)) return run(View{});
                     write_grad(g, 0, [&](const Tensor& dx) { run(dx); });
                   },
               .weights =
                   [=](const Tensor& dy, Gradients& g) {
                     if (g.records()) return;
                     const auto over_samples = [&](int i, const Tensor& sums) {
                       write_grad(g, i, [&](const Tensor& dw) {
                         if (dy.numel() == 0) return launch<kernel::Fill>(dw, 0.0);
                         ops::sum_to(dw, sums);
                       });
                     };
                     over_samples(1, sum_dy_xhat);
                     over_samples(2, sum_dy);
                   },
               .twice = !is_half(x.dtype())});
}

namespace {
/// Records y = Forward of x.
template <class Forward, class Back>
Tensor record_normalised(Tensor y, const Tensor& x) {
  const Tensor kept = y.detach();
  return record(Forward::name, std::move(y), {x}, x.rank() - 1,
                ops::twice([y = SavedTensor(kept)](const Tensor& dy, Gradients& g) {
                  if (!g.records()) return write_grad(g, 0, [&](const Tensor& dx) { launch<Back>(dx, dy, y); });
                  const Tensor out = g.result(y);
                  if constexpr (std::is_same_v<Forward, kernel::Softmax>)
                    g.set_grad(0, out * (dy - sum(dy * out, {-1}, true)));
                  else
                    g.set_grad(0, dy - exp(out) * sum(dy, {-1}, true));
                }));
}
template <class Forward, class Back>
Tensor normalised(const Tensor& x) {
  ops::check_float(Forward::name, x);
  check(x.rank() >= 1, Forward::name, "a scalar has no axis to normalise over");
  if (x.shard_spec())
    return ops::on_blocks({.op = Forward::name, .dims = "n.. c -> n.. c", .whole = "c"}, x, normalised<Forward, Back>);
  Tensor y = Tensor::like(x);
  launch<Forward>(y, x);
  if (!needs_record(Forward::name, y, {&x})) return y;
  return record_normalised<Forward, Back>(std::move(y), x);
}
}  // namespace

Tensor ops::as_log_softmax(const Tensor& log_p, const Tensor& x) {
  return record_normalised<kernel::LogSoftmax, kernel::LogSoftmaxBackward>(log_p.detach(), x);
}

Tensor softmax(const Tensor& x) { return normalised<kernel::Softmax, kernel::SoftmaxBackward>(x); }
Tensor log_softmax(const Tensor& x) { return normalised<kernel::LogSoftmax, kernel::LogSoftmaxBackward>(x); }

Tensor softmax(const Tensor& x, int axis) {
  if (x) ops::refuse_part_of_batch("softmax", x, ops::axis_of("softmax", axis, x.rank()));
  return ops::as_one_op("softmax", {&x}, axis, [&] { return transpose(softmax(transpose(x, axis, -1)), axis, -1); });
}
Tensor log_softmax(const Tensor& x, int axis) {
  if (x) ops::refuse_part_of_batch("log_softmax", x, ops::axis_of("log_softmax", axis, x.rank()));
  return ops::as_one_op("log_softmax", {&x}, axis,
                        [&] { return transpose(log_softmax(transpose(x, axis, -1)), axis, -1); });
}

}  // namespace trireme

#include "framework/layers/experts.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/ops/help.h"
#include "framework/ops/loss.h"
#include "framework/ops/moves.h"
#include "framework/ops/select.h"
#include "framework/tensor/launch.h"

namespace trireme {
namespace {

/// The step of x's batch as a number that ranks average without rounding.
double step_of(const Tensor& x) { return static_cast<double>(batch_of(x).step % 4096 + 1); }

/// [..., E]: 1 where an expert is among ids [..., K], else 0.
Tensor chosen_of(const Tensor& ids, Index experts, DType type) {
  Shape shape = ops::global_shape(ids);
  const Tensor ones = Tensor::full(shape, 1, type, ids.device());
  shape[-1] = experts;
  return scatter_add(Tensor::zeros(shape, type, ids.device()), ids, ones, -1);
}

/// ids [N, ..., K] with -1 where an expert has no room. scores [N, ..., E].
Tensor within_capacity(const Tensor& ids_given, const Tensor& scores_given, double capacity) {
  const Tensor scores = gathered(scores_given.detach()), ids = gathered(ids_given);
  const Index samples = scores.dim(0), experts = scores.dim(-1), slots = ids.dim(-1);
  if (scores.numel() == 0) return ids_given;
  const Index tokens = scores.numel() / samples / experts;
  const double room = std::ceil(capacity * static_cast<double>(slots * tokens) / static_cast<double>(experts));
  if (room >= static_cast<double>(tokens)) return ids_given;
  const auto most = static_cast<Index>(room);
  const Tensor flat = ids.reshape({samples, tokens, slots}), chosen = chosen_of(flat, experts, scores.dtype());
  const Tensor first = topk(where(eq(chosen, 0), -1, scores.reshape(chosen.shape())), most, 1).index;
  const Tensor kept = scatter_add(Tensor::zeros(chosen.shape(), chosen.dtype(), chosen.device()), first,
                                  Tensor::full(first.shape(), 1, chosen.dtype(), chosen.device()), 1);
  return where(eq(gather(kept, flat, -1), 0).reshape(ids.shape()), Tensor::full({}, -1, DType::i64, ids.device()),
               ids_given);
}

/// Tokens of each expert, f64 [E]: of all ranks that divide the sequences or, in a Step, a micro-batch.
Tensor counts_of(const Tensor& ids, Index experts) {
  const NoGrad off;
  Tensor counts = Tensor::zeros({experts}, DType::f64);
  const Tensor host = plain(ids).to(cpu());
  for (Index i = 0; i < host.numel() && !is_dry_run(); ++i) counts.data<double>()[host.data<Index>()[i]] += 1;
  counts = counts.to(ids.device());
  if (const ShardSpec* spec = ids.shard_spec()) spec->mesh().sum(counts, spec->placements().axes());
  if (const auto& ranks = StepContext::current().norm) ranks->sum(counts)();
  return counts;
}

/// The tokens of a sample: of x [N, ..., C].
double tokens_of(const Tensor& x) {
  const Shape& shape = ops::global_shape(x);
  return static_cast<double>(std::max<Index>(1, shape.product(1, shape.rank() - 1)));
}
/// The mean over the tokens of each sample: x [N, ..., C] -> [N, C].
Tensor token_mean(const Tensor& x) {
  std::vector<int> axes;
  for (int i = 1; i + 1 < ops::global_shape(x).rank(); ++i) axes.push_back(i);
  return scale(sum(x, axes), 1 / tokens_of(x));
}

/// The mean over the samples of the global batch of the sum over e of f_e P_e. scores [N, ..., E]; shares: E / K times
/// the shares of tokens, [N, E] or [E].
Tensor imbalance(const Tensor& scores, const Tensor& shares) {
  return batch_mean(sum(shares * token_mean(scores), {-1}));
}
/// f of the sequence-wise loss.
Tensor shares_of_samples(const Tensor& scores, const Tensor& ids) {
  const Index experts = ops::global_shape(scores)[-1], slots = ops::global_shape(ids)[-1];
  return scale(token_mean(chosen_of(ids, experts, scores.dtype())),
               static_cast<double>(experts) / static_cast<double>(slots));
}
/// f of the Switch loss. Throws Error unless counts are those of the global batch.
Tensor shares_of_batch(const Tensor& scores, const Tensor& counts, Index slots) {
  const BatchContext& batch = batch_of(scores);
  const double counted = is_dry_run() ? 1 : sum(counts).item();
  if (batch.global_batch > 0 && scores.dim(0) > 0 && !is_dry_run()) {
    const Index named = batch.samples ? batch.samples.numel() : scores.dim(0);  // samples of these rows
    const double rows = static_cast<double>(batch.global_batch * (scores.dim(0) / std::max<Index>(1, named))),
                 all = rows * tokens_of(scores) * static_cast<double>(slots);
    check(counted == all, "experts",
          "the Switch loss needs the experts' counts of the whole batch before backward, but forward has {:.0f} of "
          "{:.0f}: leave out micro-batches and parallel.norm_scope, or use MixtureOptions::balance",
          counted, all);
  }
  return scale(counts, static_cast<double>(counts.numel()) / std::max(1.0, counted)).to(scores.dtype());
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(Index width, Index hidden, const MixtureOptions& o)
    : options(o), gate(width, o.experts, {.bias = false, .init = o.init}) {
  check(hidden > 0 && o.shared >= 0, "experts", "{} hidden elements, and {} of the shared expert, expected at least 1",
        hidden, o.shared);
  check(o.top_k >= 1 && o.top_k <= o.experts, "experts", "top_k is {}, expected 1 to {}, the number of experts",
        o.top_k, o.experts);
  check(o.capacity >= 0 && o.balance >= 0 && o.switch_balance >= 0 && o.bias_rate >= 0, "experts",
        "capacity is {}, balance {}, switch_balance {} and bias_rate {}, expected at least 0", o.capacity, o.balance,
        o.switch_balance, o.bias_rate);
  weights = {.w1 = o.init.make({o.experts, hidden, width}, 1),
             .w2 = o.init_w2.make({o.experts, width, hidden}, 2),
             .w3 = o.gated ? o.init.make({o.experts, hidden, width}, 3) : Tensor(),
             .activation = o.activation};
  if (o.shared > 0) {
    shared = {Linear(width, o.shared, {.bias = false, .init = o.init}),
              Linear(o.shared, width, {.bias = false, .init = o.init_w2})};
    if (o.gated) shared.push_back(Linear(width, o.shared, {.bias = false, .init = o.init}));
  }
  if (o.bias_rate > 0) {
    bias = Tensor::zeros({o.experts});
    load = Tensor::zeros({o.experts + 1});
  }
}

Tensor MixtureOfExperts::operator()(const Tensor& x) const {
  const Tensor scores = softmax(linear(x.to(ops::accumulator(x.dtype())), gate.weight));
  const bool trains = is_training(x), moves = bias && trains && !StepContext::current().recomputing;
  if (moves) move_bias(x);
  const Tensor ids = topk(bias ? scores.detach() + bias.to(scores.dtype()) : scores.detach(), options.top_k).index;
  const Tensor counts = moves || (trains && options.switch_balance > 0) ? counts_of(ids, options.experts) : Tensor();
  if (moves) keep(counts, x);
  const Tensor best = gather(scores, ids, -1);
  const Tensor taken = options.capacity > 0 ? within_capacity(ids, scores, options.capacity) : ids;
  // A single weight that is divided by itself would be 1, and give the router no gradient.
  const Tensor shares = options.top_k == 1 ? best : best / (sum(best, {-1}, true) + 1e-20);
  Tensor y = mixture_of_experts(x, taken, shares, weights);
  if (!shared.empty()) {
    const Tensor hidden = options.activation(shared[0](x));
    y = y + shared[1](shared.size() > 2 ? hidden * shared[2](x) : hidden);
  }
  if (!trains) return y;
  if (options.balance > 0)
    y = with_loss(y, trireme::scale(imbalance(scores, shares_of_samples(scores, ids)), options.balance));
  if (options.switch_balance > 0)
    y = with_loss(
        y, trireme::scale(imbalance(scores, shares_of_batch(scores, counts, options.top_k)), options.switch_balance));
  return y;
}

void MixtureOfExperts::move_bias(const Tensor& x) const {
  if (is_dry_run()) return;
  const NoGrad off;
  const std::vector<double> was = load.to_vector();
  if (was.back() == 0 || was.back() == step_of(x)) return;
  double all = 0;
  for (Index e = 0; e < options.experts; ++e) all += was[static_cast<std::size_t>(e)];
  std::vector<double> now = bias.to_vector();
  for (std::size_t e = 0; e < now.size(); ++e) {
    // Whole numbers, unless a batch does not say how many ranks share it: then means of such, which are rounded.
    const double excess = was[e] * static_cast<double>(now.size()) - all;
    if (std::abs(excess) > 1e-6 * all) now[e] -= options.bias_rate * (excess > 0 ? 1 : -1);
  }
  bias.copy_from(Tensor::of(now, bias.shape(), bias.dtype()));
  load.copy_from(Tensor::zeros(load.shape(), load.dtype()));
}

void MixtureOfExperts::keep(const Tensor& counts, const Tensor& x) const {
  if (is_dry_run()) return;
  const NoGrad off;
  // Times the ranks that are not summed yet: their mean, which the plan takes, is then the sum.
  const auto& share = batch_of(x).share;
  const auto& ranks = StepContext::current().norm;
  const int means = std::max(1, (share ? share->size : 1) / (ranks ? ranks->size() : 1));
  std::vector<double> now = load.to_vector();
  const std::vector<double> more = counts.to_vector();
  for (std::size_t e = 0; e < more.size(); ++e) now[e] += more[e] * means;
  now.back() = step_of(x);
  load.copy_from(Tensor::of(now, load.shape(), load.dtype()));
}

void MixtureOfExperts::visit(const StateVisitor& v) {
  v("gate", gate);
  v("gate.e_score_correction_bias", bias, StateKind::buffer, Init::zeros());
  v("gate.load", load, StateKind::buffer, Init::zeros());
  const auto see = [&](const char* name, Tensor& w, const Init& init) {
    v(name, w, StateKind::weight, init, FileLayout::listed);
  };
  see("experts.*.w1.weight", weights.w1, options.init);
  see("experts.*.w2.weight", weights.w2, options.init_w2);
  see("experts.*.w3.weight", weights.w3, options.init);
  for (std::size_t i = 0; i < shared.size(); ++i) v(fmt::format("shared_experts.w{}", i + 1), shared[i]);
}

}  // namespace trireme

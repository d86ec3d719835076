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

/// i64 [E]: 0, 1, ... on a device.
Tensor numbers(Index experts, Device device) {
  const Tensor t = Tensor::empty({experts}, DType::i64);
  for (Index e = 0; e < experts; ++e) t.data<Index>()[e] = e;
  return t.to(device);
}
/// [..., E]: 1 where an expert is among ids [..., K], else 0.
Tensor chosen_of(const Tensor& ids, Index experts, DType type) {
  return sum(eq(unsqueeze(ids, -1), numbers(experts, ids.device())).to(type), {-2});
}

/// ids [N, ..., K] with -1 where an expert has no room. scores [N, ..., E].
Tensor within_capacity(const Tensor& ids_given, const Tensor& scores_given, double capacity) {
  const Tensor scores = gathered(scores_given.detach()), ids = gathered(ids_given);
  const Index samples = scores.dim(0), experts = scores.dim(-1), slots = ids.dim(-1);
  if (scores.numel() == 0) return ids_given;
  const Index tokens = scores.numel() / samples / experts;
  const auto most =
      static_cast<Index>(std::ceil(capacity * static_cast<double>(slots * tokens) / static_cast<double>(experts)));
  if (most >= tokens) return ids_given;
  const Tensor flat = ids.reshape({samples, tokens, slots}), chosen = chosen_of(flat, experts, scores.dtype());
  const Tensor first = topk(where(eq(chosen, 0), -1, scores.reshape(chosen.shape())), most, 1).index;
  const Tensor kept = scatter_add(Tensor::zeros(chosen.shape(), chosen.dtype(), chosen.device()), first,
                                  Tensor::full(first.shape(), 1, chosen.dtype(), chosen.device()), 1);
  return where(eq(gather(kept, flat, -1), 0).reshape(ids.shape()), Tensor::full({}, -1, DType::i64, ids.device()),
               ids_given);
}

/// The sequence-wise balance loss without its weight. scores [N, ..., E], ids [N, ..., K].
Tensor imbalance(const Tensor& scores, const Tensor& ids) {
  const Shape& shape = ops::global_shape(scores);
  const Index experts = shape[-1], tokens = std::max<Index>(1, shape.product(1, shape.rank() - 1));
  std::vector<int> axes;
  for (int i = 1; i + 1 < shape.rank(); ++i) axes.push_back(i);
  const Tensor chosen = chosen_of(ids, experts, scores.dtype());
  const double n = static_cast<double>(tokens), slots = static_cast<double>(ops::global_shape(ids)[-1]);
  const Tensor f = scale(sum(chosen, axes), static_cast<double>(experts) / (slots * n)),
               p = scale(sum(scores, axes), 1 / n);
  return batch_mean(sum(f * p, {-1}));
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(Index width, Index hidden, const MixtureOptions& o)
    : options(o), gate(width, o.experts, {.bias = false, .init = o.init}) {
  check(hidden > 0 && o.shared >= 0, "experts", "{} hidden elements, and {} of the shared expert, expected at least 1",
        hidden, o.shared);
  check(o.top_k >= 1 && o.top_k <= o.experts, "experts", "top_k is {}, expected 1 to {}, the number of experts",
        o.top_k, o.experts);
  check(o.capacity >= 0 && o.balance >= 0 && o.bias_rate >= 0, "experts",
        "capacity is {}, balance {} and bias_rate {}, expected at least 0", o.capacity, o.balance, o.bias_rate);
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
  const bool counts = bias && is_training(x) && !StepContext::current().recomputing;
  if (counts) move_bias(x);
  const Tensor ids = topk(bias ? scores.detach() + bias.to(scores.dtype()) : scores.detach(), options.top_k).index;
  if (counts) count(x, ids);
  const Tensor best = gather(scores, ids, -1);
  const Tensor taken = options.capacity > 0 ? within_capacity(ids, scores, options.capacity) : ids;
  Tensor y = mixture_of_experts(x, taken, best / sum(best, {-1}, true), weights);
  if (!shared.empty()) {
    const Tensor hidden = options.activation(shared[0](x));
    y = y + shared[1](shared.size() > 2 ? hidden * shared[2](x) : hidden);
  }
  if (options.balance == 0 || !is_training(x)) return y;
  return with_loss(y, trireme::scale(imbalance(scores, ids), options.balance));
}

void MixtureOfExperts::move_bias(const Tensor& x) const {
  if (is_dry_run()) return;
  const NoGrad off;
  const std::vector<double> was = load.to_vector();
  if (was.back() == 0 || was.back() == step_of(x)) return;
  // The mean over ranks of what count() added. Counts are whole numbers of which the sum is known.
  double all = 0;
  for (Index e = 0; e < options.experts; ++e) all += was[static_cast<std::size_t>(e)];
  const Shape& shape = ops::global_shape(x);
  const Index samples = shape[0], whole = batch_of(x).global_batch;
  const double sum =
      static_cast<double>((whole > 0 ? whole : samples) * options.top_k * shape.product(1, shape.rank() - 1));
  std::vector<double> now = bias.to_vector();
  for (std::size_t e = 0; e < now.size() && all > 0; ++e) {
    const double excess = std::round(was[e] * sum / all) * static_cast<double>(now.size()) - sum;
    now[e] -= options.bias_rate * static_cast<double>((excess > 0) - (excess < 0));
  }
  bias.copy_from(Tensor::of(now, bias.shape(), bias.dtype()));
  load.copy_from(Tensor::zeros(load.shape(), load.dtype()));
}

void MixtureOfExperts::count(const Tensor& x, const Tensor& ids) const {
  const NoGrad off;
  Tensor added = Tensor::zeros({options.experts}, DType::f64);
  const Tensor host = plain(ids).to(cpu());
  for (Index i = 0; i < host.numel() && !is_dry_run(); ++i) added.data<double>()[host.data<Index>()[i]] += 1;
  added = added.to(ids.device());
  if (const ShardSpec* spec = ids.shard_spec()) spec->mesh().sum(added, spec->placements().axes());
  const auto& ranks = StepContext::current().norm;
  if (ranks) ranks->sum(added)();
  if (is_dry_run()) return;
  // Times the ranks that are not summed yet: their mean, which the plan takes, is then the sum.
  const auto& share = batch_of(x).share;
  const int means = std::max(1, (share ? share->size : 1) / (ranks ? ranks->size() : 1));
  std::vector<double> now = load.to_vector();
  const std::vector<double> more = added.to_vector();
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

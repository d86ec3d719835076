// Three published algorithms as custom strategies, about ten lines each, and a codec. A program or a plugin includes
// this file. tests/parallel/test_custom.cpp compares each with its paper's equations.
#pragma once
#include <trireme/trireme.h>

namespace custom_strategies {

using namespace trireme;

/// Combines g1 and g2: their sum if they are orthogonal, their mean if they are parallel.
inline Tensor combined(const Tensor& g1, const Tensor& g2) {
  const double dot = sum(g1 * g2).item(), n1 = sum(g1 * g1).item(), n2 = sum(g2 * g2).item();
  return g1 * (n1 > 0 ? 1 - dot / (2 * n1) : 1) + g2 * (n2 > 0 ? 1 - dot / (2 * n2) : 1);
}

/// Adasum (Maleki et al., arXiv 2006.02924): combines the ranks' whole gradients in pairs, then the results in pairs,
/// and so on. The number of ranks must be a power of two.
inline Strategy adasum() {
  return on_gradients({.name = "adasum", .sends = {CallKind::all_gather}, .run = [](ActionContext& now) {
                         const Tensor all = now.all_gather(now.gradients());
                         std::vector<Tensor> g;
                         for (Index rank = 0; rank < all.dim(0); ++rank) g.push_back(all.rows(rank, rank + 1));
                         check((g.size() & (g.size() - 1)) == 0, "adasum",
                               "{} ranks are no power of two: use 2, 4, 8, ... ranks", g.size());
                         for (; g.size() > 1; g.resize(g.size() / 2))
                           for (std::size_t i = 0; i < g.size() / 2; ++i) g[i] = combined(g[2 * i], g[2 * i + 1]);
                         now.gradients().copy_from(g[0].reshape({all.dim(1)}));
                       }});
}

/// DiLoCo (Douillard et al., arXiv 2311.08105): every `every` steps, one step of SGD with Nesterov momentum on the mean
/// change of the workers' weights.
inline Strategy diloco(int every = 500, double lr = 0.7, double momentum = 0.9) {
  return periodically({.name = "diloco",
                       .every = every,
                       .sends = {CallKind::all_reduce},
                       .keeps = {{.name = "diloco.momentum", .replicated = true}},
                       .remembers = {{.name = "diloco.weights", .replicated = true}},
                       .arguments = {{"lr", lr}, {"momentum", momentum}},
                       .run = [=](ActionContext& now) {
                         const Tensor start = now.state("diloco.weights"), v = now.state("diloco.momentum");
                         const Tensor move = start - now.values();
                         now.all_reduce(move, ReduceOp::average);
                         v.copy_from(momentum * v + move);
                         start.copy_from(start - lr * (move + momentum * v));
                         now.values().copy_from(start);
                       }});
}

/// CHOCO-SGD (Koloskova et al., arXiv 1902.00340) on a ring, with rounding to bf16 as the compression Q. A worker sends
/// q = Q(x - own estimate of x), adds q to the estimates, and moves x towards the mean of its neighbours' estimates.
inline Strategy choco(double gamma = 0.5) {
  return periodically({.name = "choco",
                       .sends = {{CallKind::send, DType::bf16}},
                       .keeps = {{.name = "choco.own"}, {.name = "choco.mean"}},
                       .arguments = {{"gamma", gamma}},
                       .alike = false,
                       .peer = {.pairs = "ring"},
                       .run = [=](ActionContext& now) {
                         const Tensor x = now.values(), own = now.state("choco.own"), mean = now.state("choco.mean");
                         const Tensor q = (x - own).to(DType::bf16);
                         std::vector<Tensor> all{q};
                         now.exchange(q, all).wait();
                         add_into(own, q.to(x.dtype()));
                         const double share = 1.0 / static_cast<double>(all.size());
                         for (const Tensor& message : all) add_into(mean, share * message.to(x.dtype()));
                         x.copy_from(x + gamma * (mean - own));
                       }});
}

/// Sends gradients as bf16. The rounding error is added to the next step's gradients (error feedback).
inline const Codec rounded{.name = "rounded",
                           .wire = DType::bf16,
                           .length = [](const CodecContext& now) { return now.size; },
                           .encode =
                               [](const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
                                 const Tensor& residual = now.states[0];
                                 add_into(residual, numbers);
                                 wire.copy_from(residual.to(DType::bf16));
                                 add_into(residual, scale(wire.to(residual.dtype()), -1));
                               },
                           .decode = [](const CodecContext&, const Tensor& wire,
                                        const Tensor& numbers) { add_into(numbers, wire.to(numbers.dtype())); },
                           .states = {{"rounding_residual"}}};

}  // namespace custom_strategies

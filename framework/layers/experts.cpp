#include "framework/layers/experts.h"

#include "framework/ops/help.h"
#include "framework/ops/select.h"

namespace trireme {

MixtureOfExperts::MixtureOfExperts(Index width, Index hidden, const MixtureOptions& o)
    : options(o), gate(width, o.experts, {.bias = false, .init = o.init}) {
  check(hidden > 0, "experts", "{} hidden elements, expected at least 1", hidden);
  check(o.top_k >= 1 && o.top_k <= o.experts, "experts", "top_k is {}, expected 1 to {}, the number of experts",
        o.top_k, o.experts);
  weights = {.w1 = o.init.make({o.experts, hidden, width}, 1),
             .w2 = o.init_w2.make({o.experts, width, hidden}, 2),
             .w3 = o.gated ? o.init.make({o.experts, hidden, width}, 3) : Tensor(),
             .activation = o.activation};
}

Tensor MixtureOfExperts::operator()(const Tensor& x) const {
  const Tensor scores = softmax(linear(x.to(ops::accumulator(x.dtype())), gate.weight));
  const Sorted best = topk(scores, options.top_k);
  return experts(x, best.index, best.values / sum(best.values, {-1}, true), weights);
}

void MixtureOfExperts::visit(const StateVisitor& v) {
  v("gate", gate);
  const auto see = [&](const char* name, Tensor& w, const Init& init) {
    v(name, w, StateKind::weight, init, FileLayout::listed);
  };
  see("experts.*.w1.weight", weights.w1, options.init);
  see("experts.*.w2.weight", weights.w2, options.init_w2);
  see("experts.*.w3.weight", weights.w3, options.init);
}

}  // namespace trireme

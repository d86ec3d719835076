// Attention in a ring of ranks: each has its queries, and all keys and values pass by.
#include <array>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/ops/attention_call.h"
#include "framework/ops/ops.h"
#include "kernels/core/named_range.h"

namespace trireme {
namespace {
/// The ring's hops. Sums and statistics are in the type of sums on all of them.
class Ring {
 public:
  Ring(const ops::Placed& p, const AttentionOptions& o, const AttentionPart& part)
      : mesh_(p.spec(1).shared_mesh()), call_("attention", p[0], o, p[3], p[4], p[5]), part_(part) {
    line_ = mesh_->line(p.spec(1).over(1));
    for (const auto& place : line_.at) {
      keys_.push_back(ops::tokens_of(p.spec(1), 1, place));
      counts_.push_back(p.spec(1).block(place)[1]);
    }
    part_.all_keys = p.spec(1).global_shape()[1];
  }

  /// The result, and its statistics.
  std::pair<Tensor, Tensor> forward(const Tensor& q_given, const Tensor& k, const Tensor& v) const {
    const DType type = ops::accumulator(q_given.dtype());
    const Tensor q = q_given.to(type);
    Tensor y, m, l;
    Hop at{line_.me, k, v};
    for (int hop = 0; hop < ranks(); ++hop) {
      const Travel next(*this, at, hop + 1 < ranks());
      Tensor part = Tensor::like(q);
      const Tensor stats = ops::attention_statistics(q, q.dim(2));
      launch<kernel::Attention>(part, stats, q, at.k.to(type), at.v.to(type), args(at.owner).with());
      const auto rows = unbind(stats, 3);  // each [N, H, T]
      if (!y) {
        std::tie(y, m, l) = std::tuple(part, rows[0], rows[1]);
      } else {  // without keys: m = -inf, l = 0
        const Tensor most = maximum(m, rows[0]), from = clamp(most, std::numeric_limits<float>::lowest(), infinity),
                     had = l * exp(m - from), more = rows[1] * exp(rows[0] - from), all = had + more;
        const Tensor some = where(eq(all, 0), 1, all);
        y = y * per_token(had / some) + part * per_token(more / some);
        std::tie(m, l) = std::pair(most, all);
      }
      at = next.arrived();
    }
    return {y.to(q_given.dtype()), stack({m, l}, 3)};
  }

  /// The gradients of q, k and v, in the type of sums.
  std::array<Tensor, 3> backward(const Tensor& dy, const Tensor& y, const Tensor& stats, const Tensor& q_given,
                                 const Tensor& k, const Tensor& v) const {
    const DType type = ops::accumulator(q_given.dtype());
    const Tensor q = q_given.to(type), seed = dy.to(type), out = y.to(type);
    Tensor dq;
    Hop at{line_.me, k, v}, sums;
    for (int hop = 0; hop < ranks(); ++hop) {
      const Travel next(*this, at, hop + 1 < ranks());
      const Tensor keys = at.k.to(type), values = at.v.to(type);
      const Tensor dq_part = Tensor::like(q);
      Hop part{at.owner, Tensor::like(keys), Tensor::like(values)};
      launch<kernel::AttentionBackward>(dq_part, part.k, part.v, seed, out, stats, q, keys, values,
                                        args(at.owner).with());
      dq = dq ? dq + dq_part : dq_part;
      if (sums.k) part = {at.owner, sums.k + part.k, sums.v + part.v};
      sums = Travel(*this, part, ranks() > 1).arrived();
      at = next.arrived();
    }
    return {dq, sums.k, sums.v};
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  /// Keys and values of a rank of the line, or the sums of their gradients.
  struct Hop {
    int owner = 0;
    Tensor k, v;
  };
  /// Sends to the next rank, and receives from the last.
  class Travel {
   public:
    Travel(const Ring& ring, const Hop& sent, bool travels) : sent_(sent), next_(sent) {
      if (!travels) return;
      const NamedRange range(move_exchange);
      next_.owner = ring.peer(sent.owner, -1);
      const Shape shape = ring.shape_of(sent.k, next_.owner);
      next_.k = Tensor::empty(shape, sent.k.dtype(), sent.k.device());
      next_.v = Tensor::empty(shape, sent.v.dtype(), sent.v.device());
      const auto number = [&](int by) {
        return ring.line_.ranks[static_cast<std::size_t>(ring.peer(ring.line_.me, by))];
      };
      for (const Tensor* t : {&next_.k, &next_.v}) waits_.push_back(ring.mesh_->recv(*t, number(-1)));
      for (const Tensor* t : {&sent_.k, &sent_.v}) waits_.push_back(ring.mesh_->send(*t, number(1)));
    }
    const Hop& arrived() const {
      for (const auto& wait : waits_) wait();
      return next_;
    }

   private:
    Hop sent_, next_;
    std::vector<RankMesh::Wait> waits_;
  };

  int ranks() const { return static_cast<int>(line_.ranks.size()); }
  int peer(int of, int by) const { return (of + by + ranks()) % ranks(); }
  Shape shape_of(const Tensor& like, int owner) const {
    Shape shape = like.shape();
    shape[1] = counts_[static_cast<std::size_t>(owner)];
    return shape;
  }
  /// Of this rank's queries with an owner's keys.
  ops::AttentionCall args(int owner) const {
    ops::AttentionCall call = call_;
    AttentionPart part = part_;
    part.keys = keys_[static_cast<std::size_t>(owner)];
    call.add(part);
    return call;
  }
  /// [N, T, H, 1] of [N, H, T].
  static Tensor per_token(const Tensor& x) { return unsqueeze(transpose(x, 1, 2), 3); }

  std::shared_ptr<const RankMesh> mesh_;
  RankMesh::Line line_;
  std::vector<TokenMap> keys_;  // by rank of the line
  std::vector<Index> counts_;   // of keys, by rank of the line
  ops::AttentionCall call_;
  AttentionPart part_;
};

}  // namespace

Tensor ops::ring_attention(const Placed& p, const AttentionOptions& o, const AttentionPart& part, const Tensor& k,
                           const Tensor& v) {
  const char* op = "ring_attention";
  ops::check_heads(op, p[0], k, v);
  const Ring ring(p, o, part);
  const Tensor q = p[0];
  Tensor y, stats;
  {
    const NoGrad constant;
    std::tie(y, stats) = ring.forward(q.detach(), k.detach(), v.detach());
  }
  if (!needs_record(op, y, {&q, &k, &v})) return y;
  const Tensor kept = y.detach();
  return record(op, std::move(y), {q, k, v}, o,
                [ring, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), y = SavedTensor(kept), stats](
                    const Tensor& dy, Gradients& g) {
                  const NoGrad constant;
                  const auto gradients = ring.backward(dy, y, stats, q, k, v);
                  for (int i = 0; i < 3; ++i)
                    if (g.needs_grad(i)) g.set_grad(i, gradients[static_cast<std::size_t>(i)].to(dy.dtype()));
                });
}

}  // namespace trireme

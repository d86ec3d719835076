// Scaled dot-product attention, of separate and of packed operands, and rotary position embeddings.
#include "framework/ops/attention.h"

#include <cmath>
#include <numbers>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "framework/ops/random.h"
#include "kernels/contracts/attention.h"

namespace trireme {
namespace {

/// i64 [N] on x's device, or undefined.
Tensor per_sample(const char* op, const char* what, const Tensor& t, const Tensor& x) {
  if (!t) return t;
  check(t.dtype() == DType::i64 && t.rank() == 1 && t.dim(0) == x.dim(0), op, "{} are {} {}, expected i64 [{}]", what,
        t.dtype(), t.shape(), x.dim(0));
  return t.device() == x.device() ? t : t.detach().to(x.device());
}

/// Which of all query heads, queries and keys the operands have.
struct AttentionPart {
  Index head_at = 0,    ///< index of the first head
      all_heads = 0;    ///< of the whole model; 0: those of the operands
  Index query_at = 0,   ///< index of the first query
      all_queries = 0;  ///< of a sample; 0: those of the operands
  Index key_at = 0,     ///< index of the first key
      all_keys = 0;     ///< of a sample; 0: those of the operands
};
/// The arguments of one call for the kernels of forward and backward, with the tensors that they refer to.
struct Call {
  SavedTensor lengths, q_starts, samples;  ///< i64 [N], or undefined
  AttentionArgs args;                      ///< without views: with() adds them

  /// x: [N, ..., D], whose batch draws the masks.
  Call(const char* op, const Tensor& x, const AttentionOptions& o, const Tensor& lengths_given,
       const Tensor& starts_given)
      : lengths(per_sample(op, "lengths", lengths_given, x)), q_starts(per_sample(op, "q_starts", starts_given, x)) {
    check(o.dropout >= 0 && o.dropout < 1, op, "a dropout of {} lies outside [0, 1)", o.dropout);
    args.causal = o.causal;
    args.scale = o.scale == 0 ? 1 / std::sqrt(static_cast<double>(x.dim(-1))) : o.scale;
    args.alibi = o.alibi;
    args.q_at = o.q_at;
    if (o.dropout == 0 || !is_training(x)) return;
    args.dropout = o.dropout;
    args.key = ops::mask_key(x, o.layer);
    samples = ops::sample_ids(op, x);
  }
  void add(const AttentionPart& part) {
    args.head_at = part.head_at;
    args.all_heads = part.all_heads;
    args.q_at += part.query_at - part.key_at;
    args.query_at = part.query_at;
    args.all_queries = part.all_queries;
    args.key_at = part.key_at;
    args.all_keys = part.all_keys;
  }
  AttentionArgs with() const {
    AttentionArgs all = args;
    all.lengths = lengths;
    all.q_starts = q_starts;
    all.samples = samples;
    return all;
  }
};

/// [N, H, T, 2] of x [N, T, heads, D].
Tensor attention_statistics(const Tensor& x, Index heads) {
  return Tensor::empty({x.dim(0), heads, x.dim(1), 2}, ops::accumulator(x.dtype()), x.device());
}

void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  ops::check_float(op, q);
  ops::check_same_type(op, q, k);
  ops::check_same_type(op, q, v);
  const bool fits = q.rank() == 4 && k.rank() == 4 && v.shape() == k.shape() && k.dim(0) == q.dim(0) &&
                    k.dim(3) == q.dim(3) && q.dim(3) > 0;
  check(fits, op, "q is {}, k {} and v {}, expected [N, Tq, H, D] and twice [N, Tk, G, D]", q.shape(), k.shape(),
        v.shape());
  check(k.dim(2) > 0 && q.dim(2) > 0 && q.dim(2) % k.dim(2) == 0, op,
        "{} heads of keys and values do not divide the {} of queries: choose a divisor", k.dim(2), q.dim(2));
}

}  // namespace

namespace {
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& lengths,
                    const Tensor& q_starts, const AttentionPart& part);
Tensor packed_attention_of(const Tensor& qkv, Index heads, Index kv_heads, const AttentionOptions& o,
                           const Tensor& lengths, const AttentionPart& part);

Tensor ring_attention(const ops::Placed& p, const AttentionOptions& o, AttentionPart part, const Tensor& k,
                      const Tensor& v);

/// Heads are divided by groups of queries (Megatron-LM, arXiv 1909.08053, section 3). Where there are fewer groups than
/// ranks, each rank gives its query heads copies of their keys and values. If ranks have different queries, each
/// gathers the keys and values, or these travel in a ring.
Tensor divided_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                         const Tensor& lengths, const Tensor& q_starts) {
  const char* op = "attention";
  const Shape &sq = ops::global_shape(q), &sk = ops::global_shape(k);
  check(sq.rank() == 4 && sk.rank() == 4 && sk[2] > 0 && sq[2] % sk[2] == 0, op,
        "q is {} and k {}, expected [N, Tq, H, D] and [N, Tk, G, D] with G a divisor of H", sq, sk);
  AxisMask over = 0;
  for (const Tensor* t : {&q, &k, &v})
    if (t->shard_spec()) over |= t->shard_spec()->over(2);
  const ShardSpec& divided = *(q.shard_spec() ? q : k.shard_spec() ? k : v).shard_spec();
  const bool by_group = divided.mesh().ranks(over) <= sk[2],
             ring = divided.mesh().context_mode() == ContextMode::ring && divided.over(1) != 0 && sq[1] == sk[1];
  const ops::OpRule rule{.op = op,
                         .dims = ring       ? by_group ? "n t (g r) d, n t g d, n t g d, n, n -> n t (g r) d"
                                                       : "n t h d, n t g d, n t g d, n, n -> n t h d"
                                 : by_group ? "n t (g r) d, n u g d, n u g d, n, n -> n t (g r) d"
                                            : "n t h d, n u g d, n u g d, n, n -> n t h d",
                         .whole = by_group ? "ud" : "udg"};
  const std::vector<Tensor> operands{q, k, v, lengths, q_starts};
  const ops::Placed p = by_group ? ops::place(rule, operands, {}, {{'g', sk[2]}}) : ops::place(rule, operands);
  const Shape at = p.spec(0).box().at;
  const AttentionPart here{.head_at = at[2], .all_heads = sq[2], .query_at = at[1], .all_queries = sq[1]};
  const auto attend = [&](const Tensor& keys, const Tensor& values) {
    return p.put(ring ? ring_attention(p, o, here, keys, values)
                      : attention_of(p[0], keys, values, o, p[3], p[4], here));
  };
  if (by_group || p[0].dim(2) == sq[2]) return attend(p[1], p[2]);
  const Tensor ids = Tensor::empty({p[0].dim(2)}, DType::i64);  // of the group of each head
  for (Index h = 0; h < ids.numel(); ++h) ids.data<Index>()[h] = (at[2] + h) / (sq[2] / sk[2]);
  const Tensor groups = ids.to(q.device());
  return attend(take(p[1], groups, 2), take(p[2], groups, 2));
}

/// Ranks along RankMesh::context() exchange their tokens for heads, and the result's heads for tokens. With fewer
/// groups than ranks, keys and values are gathered.
Tensor exchanged_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                           const Tensor& lengths, const Tensor& q_starts) {
  const ShardSpec& has = *q.shard_spec();
  const AxisMask context = has.over(1) & has.mesh().context(), heads = has.over(2) | context;
  const Index groups = ops::global_shape(k)[2], all = ops::global_shape(q)[2];
  const int ranks = has.mesh().ranks(heads);
  check(ranks <= all, "context",
        "mode=ulysses gives each of {} ranks heads of its own, but there are {}: use at most {} ranks, or mode=gather "
        "or ring",
        ranks, all, all);
  const auto by_heads = [&](const Tensor& x, Index unit) {
    const ShardSpec& spec = *x.shard_spec();
    Shares shares;
    if (unit > 1) shares.ranges = {{spec.global_shape()[2], unit}};
    return relayout(x, *spec.with(spec.global_shape(), spec.placements().with(2, spec.over(2) | context), shares, 2));
  };
  const bool by_group = ranks <= groups;
  const auto moved = [&](const Tensor& x) {
    return by_group && x.shard_spec() && (x.shard_spec()->over(1) & context) != 0 ? by_heads(x, 1) : x;
  };
  const Tensor y =
      divided_attention(by_heads(q, by_group ? all / groups : 1), moved(k), moved(v), o, lengths, q_starts);
  return relayout(y, *has.shared_from_this());
}
}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& lengths,
                 const Tensor& q_starts) {
  if (const ShardSpec* has = q.shard_spec();
      has && has->mesh().context_mode() == ContextMode::ulysses && (has->over(1) & has->mesh().context()) != 0)
    return exchanged_attention(q, k, v, o, lengths, q_starts);
  if (ops::is_divided({&q, &k, &v})) return divided_attention(q, k, v, o, lengths, q_starts);
  return attention_of(q, k, v, o, lengths, q_starts, {});
}

namespace {
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& lengths,
                    const Tensor& q_starts, const AttentionPart& part) {
  const char* op = "attention";
  check_heads(op, q, k, v);
  Call call(op, q, o, lengths, q_starts);
  call.add(part);
  Tensor y = Tensor::empty(q.shape(), q.dtype(), q.device());
  const Tensor stats = attention_statistics(q, q.dim(2));
  launch<kernel::Attention>(y, stats, q, k, v, call.with());
  if (!needs_record(op, y, {&q, &k, &v})) return y;
  const Tensor kept = y.detach();
  return record(op, std::move(y), {q, k, v, lengths, q_starts}, o,
                [call, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), y = SavedTensor(kept), stats](
                    const Tensor& dy, Gradients& g) {
                  if (!g.needs_grad(0) && !g.needs_grad(1) && !g.needs_grad(2)) return;
                  const auto room = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), t.device()); };
                  Tensor dq = room(q), dk = room(k), dv = room(v);
                  if (dy.numel() > 0) {
                    launch<kernel::AttentionBackward>(dq, dk, dv, dy, y, stats, q, k, v, call.with());
                  } else {
                    launch<kernel::Fill>(dk, 0.0);
                    launch<kernel::Fill>(dv, 0.0);
                  }
                  g.set_grad(0, std::move(dq));
                  g.set_grad(1, std::move(dk));
                  g.set_grad(2, std::move(dv));
                });
}

}  // namespace

namespace {
/// Attention whose keys and values travel from rank to rank (Ring Attention, Liu et al., arXiv 2310.01889). Sums and
/// statistics are in the type of sums on all hops. The queries, and the keys and values, stay divided alike.
class Ring {
 public:
  Ring(const ops::Placed& p, const AttentionOptions& o, const AttentionPart& part)
      : mesh_(p.spec(1).shared_mesh()), call_("attention", p[0], o, p[3], p[4]), part_(part) {
    line_ = mesh_->line(p.spec(1).over(1));
    for (const auto& place : line_.at) boxes_.push_back(p.spec(1).box(place));
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
      const Tensor stats = attention_statistics(q, q.dim(2));
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
    shape[1] = boxes_[static_cast<std::size_t>(owner)].size[1];
    return shape;
  }
  /// Of this rank's queries with an owner's keys.
  Call args(int owner) const {
    Call call = call_;
    AttentionPart part = part_;
    part.key_at = boxes_[static_cast<std::size_t>(owner)].at[1];
    call.add(part);
    if (call.lengths) call.lengths = SavedTensor(call.lengths.get() - static_cast<double>(part.key_at));
    return call;
  }
  /// [N, T, H, 1] of [N, H, T].
  static Tensor per_token(const Tensor& x) { return unsqueeze(transpose(x, 1, 2), 3); }

  std::shared_ptr<const RankMesh> mesh_;
  RankMesh::Line line_;
  std::vector<Box> boxes_;  // of keys, by rank of the line
  Call call_;
  AttentionPart part_;
};

Tensor ring_attention(const ops::Placed& p, const AttentionOptions& o, AttentionPart part, const Tensor& k,
                      const Tensor& v) {
  const char* op = "ring_attention";
  check_heads(op, p[0], k, v);
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
}  // namespace

namespace {
/// q, k and v, or their gradients, within [N, T, H + 2 G, D].
struct Packed {
  View q, k, v;
  Packed(const Tensor& t, Index heads, Index kv_heads) : q(t.view()), k(q), v(q) {
    const Index head = t.dim(3) * size_of(t.dtype());
    q.shape[2] = heads;
    k.shape[2] = v.shape[2] = kv_heads;
    if (t.numel() == 0) return;
    const auto from = [&](Index at) { return static_cast<std::byte*>(q.data) + at * head; };
    k.data = from(heads);
    v.data = from(heads + kv_heads);
  }
};
}  // namespace

Tensor attention_packed(const Tensor& qkv, Index heads, Index kv_heads, const AttentionOptions& o,
                        const Tensor& lengths) {
  const char* op = "attention_packed";
  ops::check_float(op, qkv);
  if (kv_heads == 0) kv_heads = heads;
  if (!qkv.shard_spec()) return packed_attention_of(qkv, heads, kv_heads, o, lengths, {});
  check(heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && qkv.rank() == 4 &&
            ops::global_shape(qkv)[2] == heads + 2 * kv_heads,
        op, "qkv is {}, expected [N, T, {}, D]", ops::global_shape(qkv), heads + 2 * kv_heads);
  const AxisMask over = qkv.shard_spec()->over(2);
  if (qkv.shard_spec()->mesh().ranks(over) > kv_heads || qkv.shard_spec()->over(1) != 0) {
    const auto parts = split(qkv, {heads, kv_heads, kv_heads}, 2);
    return attention(parts[0], parts[1], parts[2], o, lengths);
  }
  // A rank has its groups' queries, keys and values.
  ops::Factors f = ops::same_dims({qkv, lengths}, {1, 3});
  f.in[1] = {ops::Factors::Dim{0}};
  if (!lengths) f.in[1].clear();
  f.shares.resize(f.factors.size());
  f.shares[0] = qkv.shard_spec()->shares(0);  // rows stay where their sample ids are
  f.shares[2].ranges = {{heads, heads / kv_heads}, {kv_heads}, {kv_heads}};
  // A ShardSpec has uneven shares of one dimension only.
  f.factors[2].whole = qkv.shard_spec()->shared_dim() == 0;
  const ops::Placed p = ops::place(op, f, {qkv, lengths});
  const std::vector<Box> boxes = p.out().boxes();
  const bool parts = p.out().over(2) != 0;
  const Index mine = parts ? boxes[0].size[2] : heads;
  const AttentionPart here{.head_at = parts ? boxes[0].at[2] : 0, .all_heads = heads};
  const Tensor y = packed_attention_of(p[0], mine, mine * kv_heads / heads, o, p[1], here);
  Shape whole = ops::global_shape(qkv);
  whole[2] = heads;
  if (!p.out().divides()) return y;
  if (!parts) return y.with_shard_spec(p.out().with(whole, p.out().placements(), p.out().shares(0), 0));
  Shares shares;
  if (heads != kv_heads) shares.ranges = {{heads, heads / kv_heads}};
  return y.with_shard_spec(p.out().with(whole, p.out().placements(), shares, 2));
}

namespace {
Tensor packed_attention_of(const Tensor& qkv, Index heads, Index kv_heads, const AttentionOptions& o,
                           const Tensor& lengths, const AttentionPart& part) {
  const char* op = "attention_packed";
  check(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, op,
        "{} heads of keys and values do not divide the {} of queries: choose a divisor", kv_heads, heads);
  check(qkv.rank() == 4 && qkv.dim(2) == heads + 2 * kv_heads && qkv.dim(3) > 0, op,
        "qkv is {}, expected [N, T, {}, D]", qkv.shape(), heads + 2 * kv_heads);
  if (ops::is_traced()) {  // three operands to a reader of the trace
    const auto parts = split(qkv, {heads, kv_heads, kv_heads}, 2);
    return attention(parts[0], parts[1], parts[2], o, lengths);
  }
  Call call(op, qkv, o, lengths, {});
  call.add(part);
  call.args.q = call.args.k = call.args.v = {.token = qkv.dim(2) * qkv.dim(3)};
  Tensor y = Tensor::empty({qkv.dim(0), qkv.dim(1), heads, qkv.dim(3)}, qkv.dtype(), qkv.device());
  const Tensor stats = attention_statistics(qkv, heads);
  {
    const Packed x(qkv, heads, kv_heads);
    launch<kernel::Attention>(y, stats, x.q, x.k, x.v, call.with());
  }
  if (!needs_record(op, y, {&qkv})) return y;
  const Tensor kept = y.detach();
  return record(op, std::move(y), {qkv, lengths}, o,
                [=, qkv = SavedTensor(qkv), y = SavedTensor(kept)](const Tensor& dy, Gradients& g) {
                  write_grad(g, 0, [&](const Tensor& dqkv) {
                    const Packed x(qkv.get(), heads, kv_heads), dx(dqkv, heads, kv_heads);
                    launch<kernel::AttentionBackward>(dx.q, dx.k, dx.v, dy, y, stats, x.q, x.k, x.v, call.with());
                  });
                });
}
}  // namespace

namespace {
/// Factor for the frequency of an angle that turns by `frequency` radians per token. llama3: 1 for wavelengths that are
/// short compared with the context, 1 / factor for long ones, and in between linear in tokens^-1 (Grattafiori et al.,
/// arXiv 2407.21783; constants as in Hugging Face's rope_parameters).
double stretched(double frequency, const RopeScaling& s) {
  if (s.kind == RopeScaling::Kind::none) return frequency;
  if (s.kind == RopeScaling::Kind::linear) return frequency / s.factor;
  const double wavelength = 2 * std::numbers::pi / frequency, context = static_cast<double>(s.original_context);
  if (wavelength > context / s.low_frequency) return frequency / s.factor;
  if (wavelength < context / s.high_frequency) return frequency;
  const double smooth = (context / wavelength - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}
}  // namespace

Tensor rope_table(Index positions, Index width, const RopeOptions& o) {
  const char* op = "rope_table";
  check(positions >= 0 && width > 0 && width % 2 == 0, op,
        "got {} positions of {} elements, expected an even number of elements", positions, width);
  check(o.base > 0, op, "base is {}, expected a positive number", o.base);
  const RopeScaling& s = o.scaling;
  check(s.factor >= 1, op, "the scaling's factor is {}, expected at least 1", s.factor);
  const bool fits = s.kind != RopeScaling::Kind::llama3 ||
                    (0 < s.low_frequency && s.low_frequency < s.high_frequency && s.original_context > 0);
  check(fits, op,
        "llama3 scaling has low_frequency {} and high_frequency {} for a context of {}, expected 0 < low_frequency < "
        "high_frequency",
        s.low_frequency, s.high_frequency, s.original_context);
  Tensor table = Tensor::empty({positions, width}, DType::f64);
  const Index pairs = width / 2;
  for (Index i = 0; i < pairs; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(width);
    const double frequency = stretched(std::pow(o.base, -exponent), s);
    for (Index t = 0; t < positions; ++t) {
      double* row = table.data<double>() + t * width;
      const double angle = static_cast<double>(t) * frequency;
      row[i] = std::cos(angle);
      row[pairs + i] = std::sin(angle);
    }
  }
  return ops::constant(table);
}

Tensor rope(const Tensor& x, const Tensor& table_given, bool interleaved) {
  const char* op = "rope";
  ops::check_float(op, x);
  ops::check_float(op, table_given);
  check(x.rank() == 4, op, "x is {}, expected [N, T, H, D]", x.shape());
  if (ops::is_divided({&x, &table_given})) {
    const ops::OpRule rule{.op = op,
                           .dims = table_given.rank() == 3 ? "n t h d, n t r -> n t h d" : "n t h d, t r -> n t h d",
                           .whole = "dr"};
    const ops::Placed p = ops::place(rule, {x, table_given});
    return p.put(rope(p[0], p[1], interleaved));
  }
  const Shape& t = table_given.shape();
  const bool rows = (t.rank() == 2 && t[0] == x.dim(1)) || (t.rank() == 3 && t[0] == x.dim(0) && t[1] == x.dim(1));
  check(rows && t[-1] % 2 == 0 && t[-1] <= x.dim(3), op,
        "the table is {} for x {}, expected [T, R] or [N, T, R] with an even R of at most D", t, x.shape());
  const Tensor table = table_given.to(ops::accumulator(x.dtype()));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  launch<kernel::Rope>(y, x, table, interleaved, false);
  if (!needs_record(op, y, {&x})) return y;
  return record(op, std::move(y), {x, table}, interleaved,
                [table = SavedTensor(table.detach()), interleaved](const Tensor& dy, Gradients& g) {
                  write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Rope>(dx, dy, table, interleaved, true); });
                });
}

}  // namespace trireme

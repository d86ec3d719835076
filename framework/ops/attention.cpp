// Scaled dot-product attention, of separate and of packed operands.
#include "framework/ops/attention_call.h"
#include "framework/ops/ops.h"

namespace trireme {
namespace {
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& lengths,
                    const Tensor& q_starts, const Tensor& first_keys, const AttentionPart& part);
Tensor packed_attention_of(const Tensor& qkv, Index heads, Index kv_heads, const AttentionOptions& o,
                           const Tensor& lengths, const Tensor& first_keys, const AttentionPart& part);

/// Heads are divided by groups of queries (Megatron-LM, arXiv 1909.08053, section 3). Where there are fewer groups than
/// ranks, each rank gives its query heads copies of their keys and values. If ranks have different queries, each
/// gathers the keys and values, or these travel in a ring.
Tensor divided_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                         const Tensor& lengths, const Tensor& q_starts, const Tensor& first_keys) {
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
                         .dims = ring       ? by_group ? "n t (g r) d, n t g d, n t g d, n, n, n t -> n t (g r) d"
                                                       : "n t h d, n t g d, n t g d, n, n, n t -> n t h d"
                                 : by_group ? "n t (g r) d, n u g d, n u g d, n, n, n t -> n t (g r) d"
                                            : "n t h d, n u g d, n u g d, n, n, n t -> n t h d",
                         .whole = by_group ? "ud" : "udg"};
  const std::vector<Tensor> operands{q, k, v, lengths, q_starts, first_keys};
  const ops::Placed p = by_group ? ops::place(rule, operands, {}, {{'g', sk[2]}}) : ops::place(rule, operands);
  const Index head = p.spec(0).runs(2)[0].first;
  const AttentionPart here{.head_at = head,
                           .all_heads = sq[2],
                           .queries = ops::tokens_of(p.spec(0), 1, p.spec(0).mesh().place()),
                           .all_queries = sq[1]};
  const auto attend = [&](const Tensor& keys, const Tensor& values) {
    return p.put(ring ? ops::ring_attention(p, o, here, keys, values)
                      : attention_of(p[0], keys, values, o, p[3], p[4], p[5], here));
  };
  if (by_group || p[0].dim(2) == sq[2]) return attend(p[1], p[2]);
  const Tensor ids = Tensor::empty({p[0].dim(2)}, DType::i64);  // of the group of each head
  for (Index h = 0; h < ids.numel(); ++h) ids.data<Index>()[h] = (head + h) / (sq[2] / sk[2]);
  const Tensor groups = ids.to(q.device());
  return attend(take(p[1], groups, 2), take(p[2], groups, 2));
}

/// Ranks along RankMesh::context() exchange their tokens for heads, and the result's heads for tokens. With fewer
/// groups than ranks, keys and values are gathered.
Tensor exchanged_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                           const Tensor& lengths, const Tensor& q_starts, const Tensor& first_keys) {
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
    Shares shares{.tokens = false};
    if (unit > 1) shares.ranges = {{spec.global_shape()[2], unit}};
    return relayout(x, *spec.with(spec.global_shape(), spec.placements().with(2, spec.over(2) | context), shares, 2));
  };
  const bool by_group = ranks <= groups;
  const auto moved = [&](const Tensor& x) {
    return by_group && x.shard_spec() && (x.shard_spec()->over(1) & context) != 0 ? by_heads(x, 1) : x;
  };
  const Tensor y =
      divided_attention(by_heads(q, by_group ? all / groups : 1), moved(k), moved(v), o, lengths, q_starts, first_keys);
  return relayout(y, *has.shared_from_this());
}
}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& lengths,
                 const Tensor& q_starts, const Tensor& first_keys) {
  if (const ShardSpec* has = q.shard_spec();
      has && has->mesh().context_mode() == ContextMode::ulysses && (has->over(1) & has->mesh().context()) != 0)
    return exchanged_attention(q, k, v, o, lengths, q_starts, first_keys);
  if (ops::is_divided({&q, &k, &v})) return divided_attention(q, k, v, o, lengths, q_starts, first_keys);
  return attention_of(q, k, v, o, lengths, q_starts, first_keys, {});
}

namespace {
/// Whether attention_by_ops() computes this call.
bool has_form_by_ops(const ops::AttentionCall& call, const Tensor& x) {
  return call.args.dropout == 0 && !call.args.alibi && call.args.part == AttentionPart{} && !is_half(x.dtype());
}
/// attention() of q, k and v by other ops, with the whole matrix of weights.
Tensor attention_by_ops(const ops::AttentionCall& call, const std::vector<Tensor>& qkv) {
  const Shape &sq = qkv[0].shape(), &sk = qkv[1].shape();
  const Index n = sq[0], heads = sq[2], groups = sk[2], d = sq[3];
  const auto by_head = [&](const Tensor& t) {  // [N, T, G, D] -> [N, H, T, D]
    const Index tokens = t.dim(1);
    const Tensor all = expand(t.reshape({n, tokens, groups, 1, d}), {n, tokens, groups, heads / groups, d});
    return permute(all.reshape({n, tokens, heads, d}), {0, 2, 1, 3});
  };
  const auto counted = [&](Index count, const Shape& shape) {
    return arange(count).to(qkv[0].device()).reshape(shape);
  };
  const Tensor key = counted(sk[1], {1, 1, 1, sk[1]});
  Tensor query = counted(sq[1], {1, 1, sq[1], 1}) + static_cast<double>(call.args.q_at);
  if (call.q_starts) query = query + call.q_starts.get().reshape({n, 1, 1, 1});
  Mask counts = key >= 0;
  if (call.args.causal) counts = logical_and(counts, key <= query);
  if (call.args.window > 0) counts = logical_and(counts, query - key < static_cast<double>(call.args.window));
  if (call.lengths) counts = logical_and(counts, key < call.lengths.get().reshape({n, 1, 1, 1}));
  if (call.first_keys) counts = logical_and(counts, key >= call.first_keys.get().reshape({n, 1, sq[1], 1}));
  const Tensor products =
      matmul(permute(qkv[0], {0, 2, 1, 3}), by_head(qkv[1]), {.transpose_b = true}) * call.args.scale;
  // A query without keys gets zeros.
  const Tensor weights = where(counts, softmax(where(counts, products, -1e30)), 0);
  return permute(matmul(weights, by_head(qkv[2])), {0, 2, 1, 3});
}

Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, const Tensor& lengths,
                    const Tensor& q_starts, const Tensor& first_keys, const AttentionPart& part) {
  const char* op = "attention";
  ops::check_heads(op, q, k, v);
  ops::AttentionCall call(op, q, o, lengths, q_starts, first_keys);
  call.add(part);
  Tensor y = Tensor::empty(q.shape(), q.dtype(), q.device());
  const Tensor stats = ops::attention_statistics(q, q.dim(2));
  launch<kernel::Attention>(y, stats, q, k, v, call.with());
  if (!needs_record(op, y, {&q, &k, &v})) return y;
  const Tensor kept = y.detach();
  return record(op, std::move(y), {q, k, v, lengths, q_starts, first_keys}, o,
                Backward{.inputs =
                             [call, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), y = SavedTensor(kept),
                              stats](const Tensor& dy, Gradients& g) {
                               if (!g.needs_grad(0) && !g.needs_grad(1) && !g.needs_grad(2)) return;
                               if (g.records())
                                 return detail::give_by_ops(g, dy, {q, k, v}, std::bind_front(attention_by_ops, call));
                               const auto room = [](const Tensor& t) {
                                 return Tensor::empty(t.shape(), t.dtype(), t.device());
                               };
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
                             },
                         .twice = has_form_by_ops(call, q)});
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
                        const Tensor& lengths, const Tensor& first_keys) {
  const char* op = "attention_packed";
  ops::check_float(op, qkv);
  if (kv_heads == 0) kv_heads = heads;
  if (!qkv.shard_spec()) return packed_attention_of(qkv, heads, kv_heads, o, lengths, first_keys, {});
  check(heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && qkv.rank() == 4 &&
            ops::global_shape(qkv)[2] == heads + 2 * kv_heads,
        op, "qkv is {}, expected [N, T, {}, D]", ops::global_shape(qkv), heads + 2 * kv_heads);
  const AxisMask over = qkv.shard_spec()->over(2);
  if (qkv.shard_spec()->mesh().ranks(over) > kv_heads || qkv.shard_spec()->over(1) != 0) {
    const auto parts = split(qkv, {heads, kv_heads, kv_heads}, 2);
    return attention(parts[0], parts[1], parts[2], o, lengths, {}, first_keys);
  }
  // A rank has its groups' queries, keys and values.
  ops::Factors f = ops::same_dims({qkv, lengths, first_keys}, {1, 3});
  f.in[1].resize(lengths ? 1 : 0);
  f.in[2].resize(first_keys ? 2 : 0);
  f.shares.resize(f.factors.size());
  f.shares[0] = qkv.shard_spec()->shares(0);  // rows stay where their sample ids are
  f.shares[2].ranges = {{heads, heads / kv_heads}, {kv_heads}, {kv_heads}};
  // A ShardSpec has uneven shares of one dimension only.
  f.factors[2].whole = qkv.shard_spec()->shared_dim() == 0;
  const ops::Placed p = ops::place(op, f, {qkv, lengths, first_keys});
  const bool parts = p.out().over(2) != 0;
  const auto [begin, end] = p.out().runs(2)[0];
  const Index mine = parts ? end - begin : heads;
  const AttentionPart here{.head_at = parts ? begin : 0, .all_heads = heads};
  const Tensor y = packed_attention_of(p[0], mine, mine * kv_heads / heads, o, p[1], p[2], here);
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
                           const Tensor& lengths, const Tensor& first_keys, const AttentionPart& part) {
  const char* op = "attention_packed";
  check(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, op,
        "{} heads of keys and values do not divide the {} of queries: choose a divisor", kv_heads, heads);
  check(qkv.rank() == 4 && qkv.dim(2) == heads + 2 * kv_heads && qkv.dim(3) > 0, op,
        "qkv is {}, expected [N, T, {}, D]", qkv.shape(), heads + 2 * kv_heads);
  if (ops::is_traced()) {  // three operands to a reader of the trace
    const auto parts = split(qkv, {heads, kv_heads, kv_heads}, 2);
    return attention(parts[0], parts[1], parts[2], o, lengths, {}, first_keys);
  }
  ops::AttentionCall call(op, qkv, o, lengths, {}, first_keys);
  call.add(part);
  call.args.q = call.args.k = call.args.v = {.token = qkv.dim(2) * qkv.dim(3)};
  Tensor y = Tensor::empty({qkv.dim(0), qkv.dim(1), heads, qkv.dim(3)}, qkv.dtype(), qkv.device());
  const Tensor stats = ops::attention_statistics(qkv, heads);
  {
    const Packed x(qkv, heads, kv_heads);
    launch<kernel::Attention>(y, stats, x.q, x.k, x.v, call.with());
  }
  if (!needs_record(op, y, {&qkv})) return y;
  const Tensor kept = y.detach();
  return record(op, std::move(y), {qkv, lengths, first_keys}, o,
                Backward{.inputs =
                             [=, qkv = SavedTensor(qkv), y = SavedTensor(kept)](const Tensor& dy, Gradients& g) {
                               if (g.records())
                                 return detail::give_by_ops(g, dy, {qkv}, [&](const std::vector<Tensor>& in) {
                                   return attention_by_ops(call, split(in[0], {heads, kv_heads, kv_heads}, 2));
                                 });
                               write_grad(g, 0, [&](const Tensor& dqkv) {
                                 const Packed x(qkv.get(), heads, kv_heads), dx(dqkv, heads, kv_heads);
                                 launch<kernel::AttentionBackward>(dx.q, dx.k, dx.v, dy, y, stats, x.q, x.k, x.v,
                                                                   call.with());
                               });
                             },
                         .twice = has_form_by_ops(call, qkv)});
}
}  // namespace

Tensor document_starts(const Tensor& ids, Index separator) {
  check(ids.defined() && ids.rank() == 2 && ids.dtype() == DType::i64, "document_starts",
        "ids are {}, expected i64 [N, T]", ids.defined() ? ids.global_shape() : Shape{});
  const Tensor ends = eq(ids, static_cast<double>(separator)).to(DType::i64), document = cumsum(ends, 1) - ends;
  const Tensor none = document - document, counts = scatter_add(none, document, none + 1, 1);  // of tokens
  return gather(cumsum(counts, 1) - counts, document, 1);
}

}  // namespace trireme

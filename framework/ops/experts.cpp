#include "framework/ops/experts.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "framework/ops/help.h"
#include "framework/ops/moves.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/contracts/matmul.h"

namespace trireme {
namespace {

/// y = x w^T for rows in groups, each with a matrix of its own: x [R, K], w [E, O, K] -> [R, O]. rows: of each group.
Tensor grouped_linear(const Tensor& x, const Tensor& w_given, const std::vector<Index>& rows) {
  const auto [w, none, leaf_w, no_leaf] = ops::Weights(w_given, {}, x.dtype());
  Tensor y = Tensor::empty({x.dim(0), w.dim(1)}, x.dtype(), x.device());
  const auto each = [rows, shape = Shape{w.dim(1), w.dim(2)}](const Tensor& a, const Tensor& b, const Tensor& all,
                                                              const auto& f) {
    Index at = 0;
    for (std::size_t e = 0; e < rows.size(); at += rows[e++]) {
      const Index expert = static_cast<Index>(e);
      f(a.view_rows(at, at + rows[e]), b.view_rows(at, at + rows[e]),
        ops::shaped(all.view_rows(expert, expert + 1), shape), rows[e]);
    }
  };
  each(y, x, w, [](const Tensor& to, const Tensor& from, const View& matrix, Index n) {
    if (n > 0) launch<kernel::Linear>(to, from, matrix, Tensor(), false);
  });
  if (!needs_record("grouped_linear", y, {&x, &leaf_w})) return y;
  return record(
      "grouped_linear", std::move(y), {x, leaf_w},
      Backward{[each, w = SavedTensor(w)](const Tensor& dy, Gradients& g) {
                 write_grad(g, 0, [&](const Tensor& dx) {
                   each(dx, dy, w.get(), [](const Tensor& to, const Tensor& from, const View& matrix, Index n) {
                     if (n > 0) launch<kernel::LinearBackwardInput>(to, from, matrix);
                   });
                 });
               },
               [each, x = SavedTensor(x)](const Tensor& dy, Gradients& g) {
                 if (!g.needs_grad(1)) return;
                 const Gradients::Target to = g.grad_buffer(1);
                 each(dy, x.get(), to.tensor, [&](const Tensor& of, const Tensor& in, const View& dw, Index n) {
                   if (n > 0) return launch<kernel::LinearBackwardWeight>(dw, Tensor(), in, of, to.accumulate);
                   if (!to.accumulate) launch<kernel::Fill>(dw, 0.0);
                 });
               }});
}

/// Which rows ranks send each other: a rank has rows for each of E experts, sorted by expert.
struct Trip {
  ShardSpec::Mesh mesh;                      ///< null: no row leaves this rank
  RankMesh::Line line = {};                  ///< the ranks that send and receive
  std::vector<std::vector<Index>> rows;      ///< by rank of the line and expert
  std::vector<std::pair<Index, Index>> own;  ///< by rank of the line: its experts [begin, end)
  bool silent = false;                       ///< other ranks send nothing: rows of zeros take the place of theirs

  std::size_t me() const { return static_cast<std::size_t>(line.me); }
  /// Rows of a rank for the experts [begin, end).
  Index count(std::size_t rank, Index begin, Index end) const {
    return std::accumulate(rows[rank].begin() + begin, rows[rank].begin() + end, Index{0});
  }
  /// Rows of all ranks for this rank's experts, by expert.
  std::vector<Index> arriving() const {
    std::vector<Index> all;
    for (Index e = own[me()].first; e < own[me()].second; ++e) {
      all.push_back(0);
      for (const auto& of : rows) all.back() += of[static_cast<std::size_t>(e)];
    }
    return all;
  }
};

/// Calls f(rank, row, of, count): `count` rows from `row` on, in the order of (expert, rank), are rows of a rank's
/// message to this one, from `of` on.
template <class F>
void each_piece(const Trip& t, F&& f) {
  std::vector<Index> used(t.rows.size(), 0);
  Index row = 0;
  for (Index e = t.own[t.me()].first; e < t.own[t.me()].second; ++e)
    for (std::size_t rank = 0; rank < t.rows.size(); ++rank) {
      const Index n = t.rows[rank][static_cast<std::size_t>(e)];
      if (n > 0) f(rank, row, used[rank], n);
      row += n;
      used[rank] += n;
    }
}

/// Rows by expert become rows of this rank's experts, by expert and rank; or, back, the reverse: then rows of experts
/// that no rank of the line has are 0.
Tensor carried(const Tensor& x, const Trip& t, bool back) {
  const std::size_t me = t.me();
  const Index width = x.dim(1);
  const auto rows_of = [&](const Tensor& all, Index begin, Index n) { return all.view_rows(begin, begin + n); };
  struct Message {
    Index begin, n;  // rows by expert
  };
  std::vector<Message> out;  // by rank of the line: this rank's rows for its experts
  std::vector<Index> in;     // by rank of the line: the number of its rows for this rank's experts
  for (std::size_t rank = 0; rank < t.rows.size(); ++rank) {
    const auto [first, last] = t.own[rank];
    out.push_back({t.count(me, 0, first), t.count(me, first, last)});
    in.push_back(t.count(rank, t.own[me].first, t.own[me].second));
  }
  const Index here = t.count(me, 0, std::ssize(t.rows[me])), there = std::accumulate(in.begin(), in.end(), Index{0});
  const Tensor y = Tensor::empty({back ? here : there, width}, x.dtype(), x.device());
  std::vector<Tensor> packed(t.rows.size());  // by rank: rows that arrive at this rank's experts, or leave them
  const Tensor& by_expert = back ? y : x;
  for (std::size_t rank = 0; rank < t.rows.size(); ++rank)
    packed[rank] = rank == me ? rows_of(by_expert, out[me].begin, out[me].n)
                              : Tensor::empty({in[rank], width}, x.dtype(), x.device());
  const auto sort = [&] {
    each_piece(t, [&](std::size_t rank, Index row, Index of, Index n) {
      const Tensor sorted = rows_of(back ? x : y, row, n), message = rows_of(packed[rank], of, n);
      copy_block(back ? message : sorted, back ? sorted : message);
    });
  };
  if (back) {
    launch<kernel::Fill>(y, 0.0);
    sort();
  }
  const NamedRange range(move_exchange);
  std::vector<RankMesh::Wait> waits;
  for (std::size_t rank = 0; rank < t.rows.size(); ++rank) {  // receives first
    if (rank == me) continue;
    const Tensor into = back ? rows_of(y, out[rank].begin, out[rank].n) : packed[rank];
    if (into.numel() == 0) continue;
    if (t.silent) launch<kernel::Fill>(into, 0.0);
    waits.push_back(t.mesh->recv(into, t.line.ranks[rank]));
  }
  for (std::size_t rank = 0; rank < t.rows.size(); ++rank) {
    if (rank == me) continue;
    const Tensor from = back ? packed[rank] : rows_of(x, out[rank].begin, out[rank].n);
    if (from.numel() > 0) waits.push_back(t.mesh->send(from, t.line.ranks[rank]));
  }
  for (const RankMesh::Wait& wait : waits) wait();
  if (!back) sort();
  return y;
}

Tensor travelled(const Tensor& x, const std::shared_ptr<const Trip>& t, bool back) {
  if (!t->mesh) return x;
  Tensor y = carried(x, *t, back);
  if (!needs_record("travelled", y, {&x})) return y;
  return record("travelled", std::move(y), {x}, [t, back](const Tensor& dy, Gradients& g) {
    if (g.needs_grad(0)) g.set_grad(0, carried(dy, *t, !back));
  });
}

/// The pairs of a token and one of its experts, sorted by expert, those of an expert by token.
struct SortedPairs {
  Tensor token,  ///< i64: the row of x of each pair in this order; pairs without an expert are left out
      place;     ///< i64 [pairs]: where each pair of x is in this order; the end for a pair without an expert
  std::vector<Index> rows;  ///< of each expert
  bool fits = true;         ///< whether all ids are in [-1, E)
};
SortedPairs sorted_pairs(const Tensor& ids, Index experts) {
  const Index pairs = ids.numel(), slots = ids.dim(-1);
  const Tensor host = ids.detach().to(cpu());
  const auto expert_of = [&](Index pair) {  // a dry run reads no ids: all experts get as many tokens
    if (is_dry_run()) return pair * experts / pairs;
    const Index e = host.data<Index>()[pair];
    return e >= -1 && e < experts ? e : -1;
  };
  bool fits = true;
  for (Index i = 0; i < pairs && !is_dry_run(); ++i)
    fits = fits && host.data<Index>()[i] >= -1 && host.data<Index>()[i] < experts;
  std::vector<Index> rows(static_cast<std::size_t>(experts), 0), next = rows;
  Index all = 0;
  for (Index i = 0; i < pairs; ++i)
    if (const Index e = expert_of(i); e >= 0) {
      ++rows[static_cast<std::size_t>(e)];
      ++all;
    }
  std::partial_sum(rows.begin(), rows.end() - 1, next.begin() + 1);
  const Tensor token = Tensor::empty({all}, DType::i64), place = Tensor::empty({pairs}, DType::i64);
  for (Index i = 0; i < pairs; ++i) {
    const Index e = expert_of(i), at = e < 0 ? all : next[static_cast<std::size_t>(e)]++;
    if (e >= 0) token.data<Index>()[at] = i / slots;
    place.data<Index>()[i] = at;
  }
  return {token.to(ids.device()), place.to(ids.device()), std::move(rows), fits};
}

void check_ids(bool fit, Index experts) { check(fit, "experts", "an id is outside of [-1, {})", experts); }

/// The trip of this rank's rows, over the ranks along `axes`, of which each has some experts. Throws Error on all of
/// these ranks if an id of one does not fit.
std::shared_ptr<const Trip> trip_of(const std::vector<Index>& rows, bool fit, const ShardSpec& weight, AxisMask axes,
                                    const Tensor& like) {
  const auto trip = std::make_shared<Trip>();
  trip->mesh = weight.shared_mesh();
  trip->line = weight.mesh().line(axes);
  const Index ranks = std::ssize(trip->line.at), experts = std::ssize(rows);
  const Index columns = experts + 2;  // the last two: whether an id does not fit, and 1 of every rank
  Tensor table = Tensor::zeros({ranks, columns}, DType::f64);
  table.data<double>()[trip->line.me * columns + experts] = fit ? 0 : 1;
  table.data<double>()[trip->line.me * columns + experts + 1] = 1;
  for (Index e = 0; e < experts; ++e)
    table.data<double>()[trip->line.me * columns + e] = static_cast<double>(rows[static_cast<std::size_t>(e)]);
  table = table.to(like.device());
  weight.mesh().sum(table, axes);
  const Tensor all = table.to(cpu());
  for (Index rank = 0; rank < ranks; ++rank) {
    const double* const told = all.data<double>() + rank * columns;
    const bool silent = is_dry_run() || told[experts + 1] == 0;  // nothing is sent: its rows are taken to be as many
    trip->silent = trip->silent || silent;
    trip->rows.emplace_back();
    for (Index e = 0; e < experts; ++e)
      trip->rows.back().push_back(silent ? rows[static_cast<std::size_t>(e)] : static_cast<Index>(told[e]));
    check_ids(silent || told[experts] == 0, experts);
    const Box box = weight.box(trip->line.at[static_cast<std::size_t>(rank)]);
    trip->own.emplace_back(box.at[0], box.at[0] + box.size[0]);
  }
  return trip;
}

/// As mixture_of_experts(), for tensors and weights of this rank. trip_for: the trip of rows by expert.
template <class F>
Tensor through_experts(const Tensor& x, const Tensor& ids, const Tensor& weights, const ExpertWeights& w,
                       Index all_experts, F&& trip_for) {
  const Index width = x.dim(-1), slots = ids.dim(-1), tokens = ids.numel() / std::max<Index>(1, slots);
  const auto separate = [](Tensor t) {  // its rows are no rows of the batch
    t.impl()->batch = {};
    return t;
  };
  const SortedPairs pairs = sorted_pairs(ids, all_experts);
  const std::shared_ptr<const Trip> trip = trip_for(pairs.rows, pairs.fits);
  const std::vector<Index> rows = trip->arriving();
  const Tensor sent = take(separate(x.reshape({tokens, width})), pairs.token);
  const Tensor in = travelled(separate(sent), trip, false);
  Tensor hidden = w.activation(grouped_linear(in, w.w1, rows));
  if (w.w3) hidden = hidden * grouped_linear(in, w.w3, rows);
  Tensor out = travelled(grouped_linear(hidden, w.w2, rows), trip, true);
  if (pairs.token.numel() < ids.numel()) out = concat({out, Tensor::zeros({1, width}, out.dtype(), out.device())}, 0);
  const DType exact = ops::accumulator(x.dtype());
  const Tensor each = take(out, pairs.place).reshape({tokens, slots, width}).to(exact);
  const Tensor y = sum(each * separate(weights.to(exact).reshape({tokens, slots, 1})), {1});
  Tensor whole = y.to(x.dtype()).reshape(x.shape());
  whole.impl()->batch = x.impl()->batch;
  return whole;
}

/// If ranks divide x or the weights: experts along axis 0, hidden elements along another.
Tensor divided_experts(const Tensor& x, const Tensor& ids, const Tensor& weights, const ExpertWeights& w) {
  // Factors: tokens n.., C, K, E, F. Ranks that divide E exchange tokens; what is divided over F is added.
  ops::Factors f{.result = ops::global_shape(x)};
  std::vector<ops::Factors::Dim> tokens;
  for (int d = 0; d + 1 < f.result.rank(); ++d) {
    f.factors.push_back({.extent = f.result[d]});
    tokens.push_back({d});
  }
  const int c = f.result.rank() - 1, k = c + 1, e = c + 2, h = c + 3;
  const Shape& size = ops::global_shape(w.w1);
  f.factors.push_back({.extent = f.result[-1], .whole = true});
  f.factors.push_back({.extent = ops::global_shape(ids)[-1], .whole = true});
  f.factors.push_back({.extent = size[0], .whole = true});
  f.factors.push_back({.extent = size[1], .sums = true});
  const auto with = [&](int n) {
    auto dims = tokens;
    dims.push_back({n});
    return dims;
  };
  f.in = {with(c), with(k), with(k), {{e}, {h}, {c}}, {{e}, {c}, {h}}, {{e}, {h}, {c}}};
  f.out = with(c);
  ops::decides(f, {x, ids, weights, w.w1, w.w2, w.w3});

  ShardSpec::Mesh mesh;
  for (const Tensor* t : {&x, &ids, &weights, &w.w1, &w.w2, &w.w3})
    if (!mesh && *t && t->shard_spec()) mesh = t->shard_spec()->shared_mesh();
  const auto over = [](const Tensor& t, int dim) {
    return t && t.shard_spec() ? t.shard_spec()->over(dim) : AxisMask{0};
  };
  check(over(w.w2, 0) == over(w.w1, 0) && over(w.w2, 2) == over(w.w1, 1) &&
            (!w.w3 || (over(w.w3, 0) == over(w.w1, 0) && over(w.w3, 1) == over(w.w1, 1))),
        "experts",
        "ranks divide w1, w2 and w3 in different ways: divide the experts of all of them, and their hidden "
        "elements, over the same mesh axes");
  const ShardSpec* of_w1 = w.w1.shard_spec();
  const AxisMask by_expert = of_w1 ? of_w1->over(0) : 0, by_hidden = of_w1 ? of_w1->over(1) : 0;
  Placements lies = x.shard_spec() ? x.shard_spec()->placements() : Placements{};
  lies = lies.without(lies.over(c) | by_hidden);
  const AxisMask differ = lies.axes() | mesh->apart(), travel = by_expert & differ,
                 added = by_hidden | (by_expert & ~differ);
  const auto placed = [&](const Tensor& t) {
    const int shared = x.shard_spec() ? x.shard_spec()->shared_dim() : -1;
    const bool same = shared >= 0 && lies.over(shared) == x.shard_spec()->over(shared);
    const ShardSpec::Ptr to = ShardSpec::make(mesh, ops::global_shape(t), lies,
                                              same ? x.shard_spec()->shares(shared) : Shares{}, std::max(0, shared));
    return std::pair(collected(t, *to, added), to);
  };
  const auto weight = [&](const Tensor& t) {
    if (!t || !t.shard_spec()) return t;
    return ops::placed_weight(t, *t.shard_spec(), lies.axes() | by_expert | by_hidden);
  };
  const auto [in, out] = placed(x);
  const Tensor y = through_experts(in, placed(ids).first, placed(weights).first,
                                   {weight(w.w1), weight(w.w2), weight(w.w3), w.activation}, size[0],
                                   [&](const std::vector<Index>& rows, bool fit) {
                                     if (by_expert != 0) return trip_of(rows, fit, *of_w1, travel, in);
                                     check_ids(fit, size[0]);
                                     return std::make_shared<const Trip>(Trip{{}, {}, {rows}, {{0, std::ssize(rows)}}});
                                   });
  return ops::Placed({}, {}, out, added).put(y);
}

}  // namespace

Tensor mixture_of_experts(const Tensor& x, const Tensor& ids, const Tensor& weights, const ExpertWeights& w) {
  const char* op = "experts";
  ops::check_float(op, x);
  check(ids && weights && w.w1 && w.w2 && w.activation, op, "an input is undefined");
  const Shape &sx = ops::global_shape(x), &si = ops::global_shape(ids), &w1 = ops::global_shape(w.w1);
  check(sx.rank() >= 1 && w1.rank() == 3 && w1[0] > 0 && w1[2] == sx[-1], op,
        "x is {} and w1 {}, expected [..., C] and [E, F, C]", sx, w1);
  Shape tokens = sx;
  tokens[-1] = si.rank() == sx.rank() ? si[-1] : 0;
  check(ids.dtype() == DType::i64 && si == tokens && ops::global_shape(weights) == tokens, op,
        "ids are {} {} and weights {} for x {}, expected i64 [..., K] and [..., K]", ids.dtype(), si,
        ops::global_shape(weights), sx);
  check(ops::global_shape(w.w2) == Shape({w1[0], w1[2], w1[1]}) && (!w.w3 || ops::global_shape(w.w3) == w1), op,
        "w1 is {}, w2 {} and w3 {}, expected [E, F, C], [E, C, F] and [E, F, C] or none", w1, ops::global_shape(w.w2),
        w.w3 ? ops::global_shape(w.w3) : Shape{});
  return ops::as_one_op(op, {&x, &ids, &weights, &w.w1, &w.w2, &w.w3}, {}, [&] {
    if (ops::is_divided({&x, &ids, &weights, &w.w1, &w.w2, &w.w3})) return divided_experts(x, ids, weights, w);
    return through_experts(x, ids, weights, w, w1[0], [](const std::vector<Index>& rows, bool fit) {
      check_ids(fit, std::ssize(rows));
      return std::make_shared<const Trip>(Trip{{}, {}, {rows}, {{0, std::ssize(rows)}}});
    });
  });
}

}  // namespace trireme

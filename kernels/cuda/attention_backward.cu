// Gradients of attention (kernels/contracts/attention.h; FlashAttention-2, arXiv 2307.08691, algorithm 2): a block of
// threads owns a tile of queries for dq, a tile of keys for dk and dv, and computes the probabilities again.
#include "kernels/core/kernel.h"
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/team.cuh"

namespace trireme::gpu {
namespace {

/// The numbers from which a query's row of gradients is computed: p = exp(score - m) by, dS = p (dP - d).
template <class A>
struct alignas(16) QueryRow {
  A m, by, d, none;  ///< by: 1 / l
};

/// rows [N, H, Tq], of stats of that order, and of dout and o [N, Tq, H, D]: d is the product of theirs.
template <class T>
struct MakeRows {
  using A = Accumulator<T>;
  QueryRow<A>* rows;
  const A* stats;
  const T *dout, *o;
  Index width, heads, queries;

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    const Row<T, n> a(team, dout + r * width, width), b(team, o + r * width, width);
    A sum = 0;
    a.each_with(b, [&](Index, const Pack<T, n>& p, const Pack<T, n>& q) {
#pragma unroll
      for (int e = 0; e < n; ++e) sum += wide(p.v[e]) * wide(q.v[e]);
    });
    sum = team.sum(sum);
    if (team.rank() != 0) return;
    const Index token = r / heads, at = (token / queries * heads + r % heads) * queries + token % queries;
    const A m = stats[2 * at], l = stats[2 * at + 1];
    rows[at] = l == A(0) ? QueryRow<A>{0, 0, sum, 0} : QueryRow<A>{m, A(1) / l, sum, 0};
  }
};

/// Products of queries and keys become probabilities; 0 for masked keys, and after the last query. rows: of this sample
/// and head.
template <class Tile, bool keys_are_rows, class A>
__device__ void probabilities(A (&s)[Tile::thread_rows][Tile::thread_columns], const AttentionHead<A>& head,
                              const QueryRow<A>* rows, int queries, int i0, int j0) {
#pragma unroll
  for (int r = 0; r < Tile::thread_rows; ++r)
#pragma unroll
    for (int c = 0; c < Tile::thread_columns; ++c) {
      const int i = i0 + (keys_are_rows ? Tile::column(c) : Tile::row(r)),
                j = j0 + (keys_are_rows ? Tile::row(r) : Tile::column(c));
      if (i < queries && head.sees(i, j)) {
        const QueryRow<A> row = rows[i];
        s[r][c] = Tile::exponential(head.score(s[r][c], i, j) - row.m) * row.by;
      } else {
        s[r][c] = 0;
      }
    }
}
/// p becomes dS = p (dP - d), dP being products of dout and v that dropout kept.
template <class Tile, bool keys_are_rows, class A>
__device__ void score_gradients(A (&p)[Tile::thread_rows][Tile::thread_columns],
                                const A (&dp)[Tile::thread_rows][Tile::thread_columns], const QueryRow<A>* rows,
                                int queries, unsigned kept, A kept_scale, int i0) {
#pragma unroll
  for (int r = 0; r < Tile::thread_rows; ++r)
#pragma unroll
    for (int c = 0; c < Tile::thread_columns; ++c) {
      const int i = i0 + (keys_are_rows ? Tile::column(c) : Tile::row(r));
      const A d = i < queries ? rows[i].d : A(0);
      const A through = kept >> (r * Tile::thread_columns + c) & 1u ? dp[r][c] * kept_scale : A(0);
      p[r][c] = p[r][c] == A(0) ? A(0) : p[r][c] * (through - d);
    }
}

template <class A, int rows, int columns>
__device__ void clear(A (&values)[rows][columns]) {
#pragma unroll
  for (auto& line : values)
#pragma unroll
    for (A& v : line) v = 0;
}
template <class A, int rows, int columns>
__device__ void multiply(A (&values)[rows][columns], A by) {
#pragma unroll
  for (auto& line : values)
#pragma unroll
    for (A& v : line) v *= by;
}

/// The operands of both kernels.
template <class T>
struct Gradients {
  using A = Accumulator<T>;
  T *dq, *dk, *dv;
  const T *dout, *q, *k, *v;
  const QueryRow<A>* rows;

  __device__ const QueryRow<A>* rows_of(const AttentionJob<A>& job, Index n, Index h) const {
    return rows + (n * job.heads + h) * job.queries;
  }
  __device__ HeadRows<T> queries(const AttentionJob<A>& job, Index n, Index h) const {
    return {q + n * job.q.sample + h * job.width, job.q.token, job.queries};
  }
  __device__ HeadRows<T> seeds(const AttentionJob<A>& job, Index n, Index h) const {
    return {dout + (n * job.queries * job.heads + h) * job.width, job.heads * job.width, job.queries};
  }
  __device__ HeadRows<T> keys(const AttentionJob<A>& job, Index n, Index g, int count) const {
    return {k + n * job.k.sample + g * job.width, job.k.token, count};
  }
  __device__ HeadRows<T> values(const AttentionJob<A>& job, Index n, Index g, int count) const {
    return {v + n * job.v.sample + g * job.width, job.v.token, count};
  }
};

/// dq = scale dS k.
template <class Tile>
__global__ void __launch_bounds__(Tile::threads)
    query_gradient(AttentionJob<typename Tile::A> job, int tiles, Gradients<typename Tile::T> to) {
  using T = typename Tile::T;
  using A = typename Tile::A;
  __shared__ typename Tile::Shared shared;
  const AttentionBlock own(tiles, job.heads, job.samples, job.causal);
  const AttentionHead<A> head(job, own.sample, own.head);
  const int i0 = own.tile * Tile::rows, column = own.slab * Tile::slab;
  const int end = head.end(min(i0 + Tile::rows, job.queries));
  const Index group = own.head / (job.heads / job.kv_heads);
  const HeadRows<T> queries = to.queries(job, own.sample, own.head), seeds = to.seeds(job, own.sample, own.head),
                    keys = to.keys(job, own.sample, group, end), values = to.values(job, own.sample, group, end);
  const QueryRow<A>* rows = to.rows_of(job, own.sample, own.head);
  A out[Tile::thread_rows][Tile::outputs];
  clear(out);
  Tile::template keep<0>(shared, queries, i0, job.width, job.vector);
  Tile::template keep<1>(shared, seeds, i0, job.width, job.vector);
  for (int j0 = head.begin(i0) / Tile::columns * Tile::columns; j0 < end; j0 += Tile::columns) {
    Tile::enter(shared, keys, values, j0, job.width, job.vector);
    A s[Tile::thread_rows][Tile::thread_columns], dp[Tile::thread_rows][Tile::thread_columns];
    Tile::template product<0>(s, shared, queries, i0, keys, j0, job.width, job.vector);
    probabilities<Tile, false>(s, head, rows, job.queries, i0, j0);
    Tile::template product<1>(dp, shared, seeds, i0, values, j0, job.width, job.vector);
    const unsigned kept = job.drops ? kept_bits<Tile, false>(head, job.threshold, i0, j0) : ~0u;
    score_gradients<Tile, false>(s, dp, rows, job.queries, kept, job.kept_scale, i0);
    Tile::template accumulate<0>(out, shared, s, keys, j0, column, job.width, job.vector);
  }
  multiply(out, job.scale);
  store_rows<Tile>(to.dq + own.sample * job.q.sample + own.head * job.width, job.q.token, job.queries, i0, column,
                   job.width, out);
}

/// dk = scale dS^T q (of_key) and dv = (P o Z)^T dout (of_value), over the query heads of a group.
template <class Tile, bool of_key, bool of_value>
__global__ void __launch_bounds__(Tile::threads)
    key_gradient(AttentionJob<typename Tile::A> job, int tiles, Gradients<typename Tile::T> to) {
  using T = typename Tile::T;
  using A = typename Tile::A;
  __shared__ typename Tile::Shared shared;
  const AttentionBlock own(tiles, job.kv_heads, job.samples, false);
  const int j0 = own.tile * Tile::rows, column = own.slab * Tile::slab;
  A dk[Tile::thread_rows][Tile::outputs], dv[Tile::thread_rows][Tile::outputs];
  clear(dk);
  clear(dv);
  const int seen = AttentionHead<A>(job, own.sample, 0).keys;
  const HeadRows<T> keys = to.keys(job, own.sample, own.head, seen),
                    values = to.values(job, own.sample, own.head, seen);
  Tile::template keep<0>(shared, keys, j0, job.width, job.vector);
  Tile::template keep<1>(shared, values, j0, job.width, job.vector);
  const Index group = job.heads / job.kv_heads;
  for (Index h = own.head * group; h < (own.head + 1) * group; ++h) {
    const AttentionHead<A> head(job, own.sample, h);
    if (j0 >= seen) break;  // no query sees these keys
    const HeadRows<T> queries = to.queries(job, own.sample, h), seeds = to.seeds(job, own.sample, h);
    const QueryRow<A>* rows = to.rows_of(job, own.sample, h);
    const int first = head.first_query(j0, job.queries) / Tile::columns * Tile::columns;
    for (int i0 = first; i0 < job.queries && head.begin(i0) < j0 + Tile::rows; i0 += Tile::columns) {
      Tile::enter(shared, queries, seeds, i0, job.width, job.vector);
      A p[Tile::thread_rows][Tile::thread_columns], next[Tile::thread_rows][Tile::thread_columns];
      Tile::template product<0>(p, shared, keys, j0, queries, i0, job.width, job.vector);
      probabilities<Tile, true>(p, head, rows, job.queries, i0, j0);
      const unsigned kept = job.drops ? kept_bits<Tile, true>(head, job.threshold, i0, j0) : ~0u;
      if constexpr (of_value) {
#pragma unroll
        for (int r = 0; r < Tile::thread_rows; ++r)
#pragma unroll
          for (int c = 0; c < Tile::thread_columns; ++c)
            next[r][c] = kept >> (r * Tile::thread_columns + c) & 1u ? p[r][c] * job.kept_scale : A(0);
        Tile::template accumulate<1>(dv, shared, next, seeds, i0, column, job.width, job.vector);
      }
      if constexpr (of_key) {
        Tile::template product<1>(next, shared, values, j0, seeds, i0, job.width, job.vector);
        score_gradients<Tile, true>(p, next, rows, job.queries, kept, job.kept_scale, i0);
        Tile::template accumulate<0>(dk, shared, p, queries, i0, column, job.width, job.vector);
      }
    }
  }
  if constexpr (of_value)
    store_rows<Tile>(to.dv + own.sample * job.v.sample + own.head * job.width, job.v.token, job.keys, j0, column,
                     job.width, dv);
  if constexpr (of_key) {
    multiply(dk, job.scale);
    store_rows<Tile>(to.dk + own.sample * job.k.sample + own.head * job.width, job.k.token, job.keys, j0, column,
                     job.width, dk);
  }
}

template <class Tile>
void start_gradients(const On& on, const AttentionShape& shape, const AttentionJob<typename Tile::A>& job,
                     const Gradients<typename Tile::T>& to) {
  const auto tiles_of = [](Index tokens) { return static_cast<int>(ceil_div(tokens, Tile::rows)); };
  const auto grid = [&](Index tiles, Index heads) {
    return attention_grid(on, tiles * shape.samples * heads, shape.width, Tile::slab);
  };
  if (const int tiles = tiles_of(shape.queries); tiles > 0)
    run(on, grid(tiles, shape.heads), Tile::threads, query_gradient<Tile>, job, tiles, to);
  const int tiles = tiles_of(shape.keys);
  if (tiles == 0) return;
  const dim3 blocks = grid(tiles, shape.kv_heads);
  if constexpr (Tile::both_gradients) {
    run(on, blocks, Tile::threads, key_gradient<Tile, true, true>, job, tiles, to);
  } else {  // one thread's registers hold one of them
    run(on, blocks, Tile::threads, key_gradient<Tile, true, false>, job, tiles, to);
    run(on, blocks, Tile::threads, key_gradient<Tile, false, true>, job, tiles, to);
  }
}

/// What backward reads and writes; vector: rows of operands may be read 16 bytes at a time.
void start(const On& on, const AttentionShape& shape, View dq, View dk, View dv, View dout, View o, View stats, View q,
           View k, View v, const AttentionArgs& args, bool vector) {
  each_attention_tile(q.dtype, on.op(), shape.width, [&](auto tile) {
    using Tile = decltype(tile);
    using T = typename Tile::T;
    using A = typename Tile::A;
    const Index rows = shape.samples * shape.queries * shape.heads;
    const Scratch about(on, static_cast<std::size_t>(rows) * sizeof(QueryRow<A>));
    each_row<T>(on, rows, shape.width, vector,
                MakeRows<T>{about.as<QueryRow<A>>(), stats.as<const A>(), dout.as<const T>(), o.as<const T>(),
                            shape.width, shape.heads, shape.queries});
    start_gradients<Tile>(on, shape, attention_job<A>(on, shape, args, vector),
                          Gradients<T>{dq.as<T>(), dk.as<T>(), dv.as<T>(), dout.as<const T>(), q.as<const T>(),
                                       k.as<const T>(), v.as<const T>(), about.as<const QueryRow<A>>()});
  });
}

void backward(View dq, View dk, View dv, View dout, View o, View stats, View q, View k, View v,
              const AttentionArgs& args) {
  constexpr auto op = kernel::AttentionBackward::name;
  AttentionShape shape = check_attention_backward(dq, dk, dv, dout, o, stats, q, k, v, args, op);
  if (shape.samples == 0 || shape.width == 0) return;
  const On on(q.device, op);
  const bool vector = aligned_rows(shape, {&q, &k, &v, &dout, &o});
  if (vector || !is_half(q.dtype)) return start(on, shape, dq, dk, dv, dout, o, stats, q, k, v, args, vector);
  const WideTokens queries(on, q, shape.q), keys(on, k, shape.k), values(on, v, shape.v);
  const WideTokens seeds(on, dout, queries.strides()), outputs(on, o, queries.strides());
  const WideTokens of_queries(on, dq, shape.q, WideTokens::written), of_keys(on, dk, shape.k, WideTokens::written),
      of_values(on, dv, shape.v, WideTokens::written);
  shape.q = queries.strides();
  shape.k = keys.strides();
  shape.v = values.strides();
  start(on, shape, of_queries.view(), of_keys.view(), of_values.view(), seeds.view(), outputs.view(), stats,
        queries.view(), keys.view(), values.view(), args, false);
  for (const WideTokens* gradient : {&of_queries, &of_keys, &of_values}) gradient->store();
}

const Kernel<kernel::AttentionBackward> backward_cuda{DeviceKind::cuda, backward};

}  // namespace
}  // namespace trireme::gpu

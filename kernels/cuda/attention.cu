// Scaled dot-product attention, forward (kernels/contracts/attention.h): a block of threads owns a tile of queries and
// processes the keys in order with a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", arXiv 1805.02867; FlashAttention-2, arXiv 2307.08691).
#include "kernels/core/kernel.h"
#include "kernels/cuda/attention_launch.cuh"

namespace trireme::gpu {
namespace {

template <class A>
constexpr A nothing = -std::numeric_limits<A>::infinity();

/// A tile's products become exp(score - m), and m the maximum until now. Returns by what earlier sums are multiplied.
template <class Tile, class A>
__device__ A normalise(A (&s)[Tile::thread_columns], A& m, A& sum, const AttentionHead<A>& head, int i, int j0) {
  A largest = m;
#pragma unroll
  for (int c = 0; c < Tile::thread_columns; ++c) {
    const int j = j0 + Tile::column(c);
    s[c] = head.sees(i, j) ? head.score(s[c], i, j) : nothing<A>;
    largest = s[c] > largest ? s[c] : largest;
  }
  largest = Tile::combine(largest, [](A a, A b) { return b > a ? b : a; });
  const A shift = largest == nothing<A> ? A(0) : largest, by = Tile::exponential(m - shift);
  m = largest;
  sum *= by;
#pragma unroll
  for (A& v : s) {
    v = Tile::exponential(v - shift);
    sum += v;
  }
  return by;
}

template <class Tile>
__global__ void __launch_bounds__(Tile::threads)
    attention_kernel(AttentionJob<typename Tile::A> job, int tiles, typename Tile::T* o, typename Tile::A* stats,
                     const typename Tile::T* q, const typename Tile::T* k, const typename Tile::T* v) {
  using T = typename Tile::T;
  using A = typename Tile::A;
  __shared__ typename Tile::Shared shared;
  const AttentionBlock own(tiles, job.heads, job.samples, job.causal);
  const AttentionHead<A> head(job, own.sample, own.head);
  const int i0 = own.tile * Tile::rows, column = own.slab * Tile::slab;
  const int end = head.end(min(i0 + Tile::rows, job.queries));
  const Index group = own.head / (job.heads / job.kv_heads);
  const HeadRows<T> queries{q + own.sample * job.q.sample + own.head * job.width, job.q.token, job.queries},
      keys{k + own.sample * job.k.sample + group * job.width, job.k.token, end},
      values{v + own.sample * job.v.sample + group * job.width, job.v.token, end};
  A out[Tile::thread_rows][Tile::outputs], m[Tile::thread_rows], sum[Tile::thread_rows];
#pragma unroll
  for (int r = 0; r < Tile::thread_rows; ++r) {
    m[r] = nothing<A>;
    sum[r] = 0;
#pragma unroll
    for (A& x : out[r]) x = 0;
  }
  Tile::template keep<0>(shared, queries, i0, job.width, job.vector);
  for (int j0 = head.begin(i0) / Tile::columns * Tile::columns; j0 < end; j0 += Tile::columns) {
    Tile::enter(shared, keys, values, j0, job.width, job.vector);
    A s[Tile::thread_rows][Tile::thread_columns];
    Tile::template product<0>(s, shared, queries, i0, keys, j0, job.width, job.vector);
#pragma unroll
    for (int r = 0; r < Tile::thread_rows; ++r) {
      const A by = normalise<Tile>(s[r], m[r], sum[r], head, i0 + Tile::row(r), j0);
#pragma unroll
      for (A& x : out[r]) x *= by;
    }
    if (job.drops) {
      const unsigned kept = kept_bits<Tile, false>(head, job.threshold, i0, j0);
#pragma unroll
      for (int r = 0; r < Tile::thread_rows; ++r)
#pragma unroll
        for (int c = 0; c < Tile::thread_columns; ++c)
          if ((kept >> (r * Tile::thread_columns + c) & 1u) == 0) s[r][c] = 0;
    }
    Tile::template accumulate<1>(out, shared, s, values, j0, column, job.width, job.vector);
  }
#pragma unroll
  for (int r = 0; r < Tile::thread_rows; ++r) {
    const A l = Tile::combine(sum[r], Plus{});
    const int i = i0 + Tile::row(r);
    if (own.slab == 0 && Tile::leads() && i < job.queries) {
      A* about = stats + ((own.sample * job.heads + own.head) * job.queries + i) * 2;
      about[0] = m[r];
      about[1] = l;
    }
#pragma unroll
    for (A& x : out[r]) x = l == A(0) ? A(0) : x * job.kept_scale / l;
  }
  const Index stride = job.heads * job.width;
  store_rows<Tile>(o + own.sample * job.queries * stride + own.head * job.width, stride, job.queries, i0, column,
                   job.width, out);
}

/// vector: rows of operands may be read 16 bytes at a time.
void start(const On& on, const AttentionShape& shape, View o, View stats, View q, View k, View v,
           const AttentionArgs& args, bool vector) {
  each_attention_tile(q.dtype, on.op(), shape.width, [&](auto tile) {
    using Tile = decltype(tile);
    using T = typename Tile::T;
    using A = typename Tile::A;
    const AttentionJob<A> job = attention_job<A>(on, shape, args, vector);
    const int tiles = static_cast<int>(ceil_div(shape.queries, Tile::rows));
    run(on, attention_grid(on, tiles * shape.samples * shape.heads, shape.width, Tile::slab), Tile::threads,
        attention_kernel<Tile>, job, tiles, o.as<T>(), stats.as<A>(), q.as<const T>(), k.as<const T>(),
        v.as<const T>());
  });
}

void attention(View o, View stats, View q, View k, View v, const AttentionArgs& args) {
  constexpr auto op = kernel::Attention::name;
  AttentionShape shape = check_attention(o, stats, q, k, v, args, op);
  if (o.numel() == 0) return;
  const On on(q.device, op);
  const bool vector = aligned_rows(shape, {&q, &k, &v});
  if (vector || !is_half(q.dtype)) return start(on, shape, o, stats, q, k, v, args, vector);
  const WideTokens queries(on, q, shape.q), keys(on, k, shape.k), values(on, v, shape.v);
  shape.q = queries.strides();
  shape.k = keys.strides();
  shape.v = values.strides();
  const WideTokens out(on, o, shape.q, WideTokens::written);
  start(on, shape, out.view(), stats, queries.view(), keys.view(), values.view(), args, false);
  out.store();
}

const Kernel<kernel::Attention> attention_cuda{DeviceKind::cuda, attention};

}  // namespace
}  // namespace trireme::gpu

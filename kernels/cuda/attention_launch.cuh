// The host's part of attention: the numbers of a call as kernels take them, and which tile serves it.
#pragma once
#include "kernels/cuda/attention_fma.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/plans/dispatch.h"

namespace trireme::gpu {

/// Throws Error for more tokens than kernels can count.
template <class A>
AttentionJob<A> attention_job(const On& on, const AttentionShape& s, const AttentionArgs& args, bool vector) {
  constexpr Index most = Index{1} << 30;
  check(s.queries < most && s.keys < most, on.op(), "got {} queries and {} keys: wants fewer than {} of each",
        s.queries, s.keys, most);
  const Index all = args.all_heads ? args.all_heads : s.heads;
  return {static_cast<int>(s.queries),
          static_cast<int>(s.keys),
          s.samples,
          s.heads,
          s.kv_heads,
          s.width,
          static_cast<A>(args.scale),
          static_cast<A>(1 / (1 - args.dropout)),
          drop_threshold(args.dropout),
          args.causal,
          args.dropout > 0,
          vector,
          args.head_at,
          args.alibi ? all : 0,
          static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(all))),
          args.q_at,
          args.q_starts.as<const Index>(),
          args.lengths.as<const Index>(),
          args.samples.as<const Index>(),
          args.key,
          s.q,
          s.k,
          s.v};
}

/// Whether rows of all operands may be read 16 bytes at a time.
inline bool aligned_rows(const AttentionShape& s, std::initializer_list<const View*> operands) {
  const Index n = 16 / size_of((*operands.begin())->dtype);
  bool fits = s.width % n == 0;
  for (const TokenStrides& by : {s.q, s.k, s.v}) fits = fits && by.sample % n == 0 && by.token % n == 0;
  for (auto* v : operands) fits = fits && aligned(static_cast<const char*>(v->data));
  return fits;
}

/// Blocks for so many tiles of rows, each of them for every slab of D.
inline dim3 attention_grid(const On& on, Index tiles, Index width, int slab) {
  const Index blocks = tiles * ceil_div(width, slab);
  check(blocks < Index{1} << 31, on.op(), "got {} tiles of tokens and heads, more than a grid of 2^31 blocks", blocks);
  return dim3(static_cast<unsigned>(blocks));
}

/// f(Tile{}): the tile for operands of this type and so many elements of D. Wider heads are computed slab by slab, the
/// scores again for each.
template <class F>
void each_attention_tile(DType type, std::string_view op, bool vector, Index width, F&& f) {
  constexpr int narrow = 64, wide = 128;
  dispatch_bool(width <= narrow, [&](auto fits) {
    constexpr int slab = fits ? narrow : wide;
    if (type == DType::bf16 && vector) return f(MmaTile<bf16, slab>{});
    if (type == DType::f16 && vector) return f(MmaTile<f16, slab>{});
    dispatch_device_float(type, op, [&](auto t) { f(FmaTile<decltype(t), slab>{}); });
  });
}

}  // namespace trireme::gpu

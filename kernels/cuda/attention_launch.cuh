// The host side of attention: arguments for kernels, and the choice of the tile.
#pragma once
#include "kernels/cuda/attention_fma.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/plans/dispatch.h"

namespace trireme::gpu {

/// Throws Error for more tokens than kernels can count.
template <class A>
AttentionJob<A> attention_job(const On& on, const AttentionShape& s, const AttentionArgs& args, bool vector) {
  constexpr Index most = Index{1} << 30;
  const auto end = [](const TokenMap& map, Index count) { return count > 0 ? map.at(count - 1) + 1 : 0; };
  check(end(args.part.queries, s.queries) < most && end(args.part.keys, s.keys) < most, on.op(),
        "got {} queries and {} keys, expected fewer than {} of each", s.queries, s.keys, most);
  const Index all = args.part.all_heads ? args.part.all_heads : s.heads;
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
          args.part.head_at,
          args.alibi ? all : 0,
          static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(all))),
          args.q_at,
          args.window,
          args.part.all_queries ? args.part.all_queries : s.queries,
          args.part.all_keys ? args.part.all_keys : s.keys,
          args.part.queries,
          args.part.keys,
          args.q_starts.as<const Index>(),
          args.lengths.as<const Index>(),
          args.samples.as<const Index>(),
          args.first_keys.as<const Index>(),
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

/// Number of blocks for this number of tiles of rows, each for every slab of D.
inline dim3 attention_grid(const On& on, Index tiles, Index width, int slab) {
  const Index blocks = tiles * ceil_div(width, slab);
  check(blocks < Index{1} << 31, on.op(), "got {} tiles of tokens and heads, more than a grid of 2^31 blocks", blocks);
  return dim3(static_cast<unsigned>(blocks));
}

/// f(Tile{}): the tile for operands of this type with this many elements of D. Wider heads are computed slab by slab,
/// with the scores recomputed for each. bf16 and f16 need rows that can be read 16 bytes at a time.
template <class F>
void each_attention_tile(DType type, std::string_view op, Index width, F&& f) {
  constexpr int narrow = 64, wide = 128;
  dispatch_device_float(type, op, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, double>)
      return f(FmaTile<T, narrow>{});
    else
      dispatch_bool(width <= narrow, [&](auto fits) {
        constexpr int slab = fits ? narrow : wide;
        f(std::conditional_t<is_narrow_type<T>, MmaTile<T, slab>, FmaTile<T, slab>>{});
      });
  });
}

/// Moves elements between tokens of bf16 or f16 and their copy.
struct CopyTokens {
  float* copy;
  void* tokens;
  bool f16, back;
  TokenStrides by;
  Index count, row;  ///< tokens of a sample, elements of a token

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index token = i / row, at = token / count * by.sample + token % count * by.token + i % row;
    f16 ? move(copy[i], static_cast<trireme::f16*>(tokens)[at]) : move(copy[i], static_cast<bf16*>(tokens)[at]);
  }
  template <class T>
  __device__ void move(float& wider, T& narrow) const {
    if (back)
      narrow = rounded<T>(wider);
    else
      wider = wide(narrow);
  }
};
/// Tokens [N, T, heads, D] of bf16 or f16 as a dense copy in f32: for rows that cannot be read 16 bytes at a time.
class WideTokens {
 public:
  enum Use { read, written };
  WideTokens(const On& on, const View& tokens, TokenStrides by, Use use = read)
      : on_(on), tokens_(tokens), by_(by), copy_(on, static_cast<std::size_t>(tokens.numel()) * sizeof(float)) {
    if (use == read) move(false);
  }
  View view() const { return {copy_.data(), tokens_.shape, DType::f32, tokens_.device}; }
  TokenStrides strides() const { return {tokens_.shape[1] * row(), row()}; }
  /// After a kernel has written view().
  void store() const { move(true); }

 private:
  Index row() const { return tokens_.shape[2] * tokens_.shape[3]; }
  void move(bool back) const {
    each<1>(
        on_, tokens_.numel(), false,
        CopyTokens{copy_.as<float>(), tokens_.data, tokens_.dtype == DType::f16, back, by_, tokens_.shape[1], row()});
  }

  const On& on_;
  View tokens_;
  TokenStrides by_;
  Scratch copy_;
};

}  // namespace trireme::gpu

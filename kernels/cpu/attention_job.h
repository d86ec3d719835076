// Parts that attention forward and backward share on the CPU: blocks of a call, the keys that a query attends to, and
// operands in the layout of tiles.
#pragma once
#include <cstring>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/philox.h"
#include "kernels/plans/attention_checks.h"

namespace trireme::tiles {

constexpr Index query_block = 48, key_block = 96;  ///< tokens of a tile of scores [keys, queries]

constexpr Index round_up(Index n, Index step) { return (n + step - 1) / step * step; }

/// A call of attention: the arguments that a tile needs.
struct AttentionJob {
  AttentionShape s;
  AttentionArgs args;
  std::uint64_t key;  ///< of the masks
  AttentionJob(const AttentionShape& shape, const AttentionArgs& a)
      : s(shape), args(a), key(a.dropout > 0 ? a.key() : 0) {
    if (args.part.all_queries == 0) args.part.all_queries = s.queries;
    if (args.part.all_keys == 0) args.part.all_keys = s.keys;
    const auto* const first = args.first_keys.as<const Index>();
    for (Index i = 1; first && i < s.samples * s.queries; ++i)
      check(i % s.queries == 0 || first[i] >= first[i - 1], kernel::Attention::name,
            "first_keys descend from {} to {} at query {} of sample {}: give them in ascending order", first[i - 1],
            first[i], i % s.queries, i / s.queries);
  }

  Index blocks() const { return (s.queries + query_block - 1) / query_block; }
  Index queries_at(Index first) const { return std::min(query_block, s.queries - first); }
  /// Position of query i of sample n.
  Index position(Index n, Index i) const {
    return args.q_at + (args.q_starts ? args.q_starts.as<const Index>()[n] : 0) + args.part.queries.at(i);
  }
  /// Number of keys before this position.
  Index keys_before(Index position) const { return args.part.keys.before(position, s.keys); }
  /// End of the keys that at least one of the queries [first, first + count) of sample n attends to.
  Index end(Index n, Index first, Index count) const {
    const Index all = args.lengths ? keys_before(args.lengths.as<const Index>()[n]) : s.keys;
    return args.causal && count > 0 ? std::min(keys_before(position(n, first + count - 1) + 1), all) : all;
  }
  /// Query i of sample n, and later ones, attend to no key before this position.
  Index lower(Index n, Index i) const {
    const Index near = args.window > 0 ? position(n, i) - args.window + 1 : 0;
    return args.first_keys ? std::max(near, args.first_keys.as<const Index>()[n * s.queries + i]) : near;
  }
  /// First key that query `first` of sample n, or a later one, attends to.
  Index begin(Index n, Index first) const {
    return args.window > 0 || args.first_keys ? keys_before(lower(n, first)) : 0;
  }
  /// The tile of keys in which begin() is.
  Index first_tile(Index n, Index first) const { return begin(n, first) / key_block * key_block; }
  /// An order of `count` blocks in which contiguous shares have equal work in a causal call: 0, count - 1, 1, ...
  static Index block_at(Index place, Index count) { return place % 2 ? count - 1 - place / 2 : place / 2; }
  double slope(Index h) const {
    return args.alibi ? alibi_slope(args.part.head_at + h, args.part.all_heads ? args.part.all_heads : s.heads) : 0;
  }
};

/// Position of a tile of scores: keys [from, from + keys) by queries [first, first + queries) of a sample and a head.
struct Place {
  Index n, h, first, queries, from, keys;
};

/// Extents of operands in the layout of tiles: `words` per row [D], and `columns` for D, both rounded up to whole
/// vectors.
template <class P>
struct Extents {
  Index depth, words, columns;  ///< depth: words of a row that hold elements
  explicit Extents(Index width)
      : depth((width + P::per_word - 1) / P::per_word),
        words(round_up(depth, P::lanes)),
        columns(round_up(width, P::lanes)) {}
};

/// Uninitialised memory for `count` Ts, for the length of a scope.
template <class T>
class Buffer {
 public:
  explicit Buffer(Index count) : memory_(static_cast<std::size_t>(count) * sizeof(T)) {}
  operator T*() const { return memory_.as<T>(); }  // NOLINT: implicit

 private:
  onednn::Scratch memory_;
};

/// Copies tokens x [count, width], `token` elements apart, to `to` [rows, words]. Zeros fill the rest of rows and the
/// remaining rows.
template <class P, class T>
void load_rows(typename P::Word* to, const Extents<P>& e, const T* x, Index token, Index count, Index width,
               Index rows) {
  P::run([=] {
    for (Index r = 0; r < count; ++r) {
      const T* const from = x + r * token;
      if constexpr (P::per_word == 2) {
        auto* const row = reinterpret_cast<T*>(to + r * e.words);
        std::memcpy(row, from, static_cast<std::size_t>(width) * sizeof(T));
        for (Index d = width; d < 2 * e.words; ++d) row[d] = T(0.f);
      } else {
        auto* const row = to + r * e.words;
#pragma omp simd
        for (Index d = 0; d < width; ++d) row[d] = static_cast<typename P::Word>(from[d]);
        for (Index d = width; d < e.words; ++d) row[d] = 0;
      }
    }
    std::fill(to + count * e.words, to + rows * e.words, typename P::Word{});
  });
}
/// Rows [count, words] of pairs along D as right operands [ceil(count / 2), columns] of pairs along the rows. count is
/// even, or a row of zeros follows.
inline void pair_rows(std::uint32_t* to, const Extents<Pairs>& e, const std::uint32_t* rows, Index count) {
  Pairs::run([=] {
    for (Index r = 0; r < count; r += 2) {
      const auto *a = reinterpret_cast<const std::uint16_t*>(rows + r * e.words), *b = a + 2 * e.words;
      auto* const out = to + r / 2 * e.columns;
#pragma omp simd
      for (Index d = 0; d < e.columns; ++d) out[d] = a[d] | static_cast<std::uint32_t>(b[d]) << 16;
    }
  });
}

/// Applies positions (ALiBi) and masks to the scores of a tile [keys, query_block], which are scaled already.
template <class P>
void finish_scores(typename P::Acc* scores, const AttentionJob& job, const Place& at) {
  using A = typename P::Acc;
  const Index origin = job.position(at.n, at.first);
  const auto slope = static_cast<A>(job.slope(at.h));
  const bool causal = job.args.causal && job.args.part.keys.at(at.from + at.keys - 1) > origin,
             bounded = job.begin(at.n, at.first + at.queries - 1) > at.from;
  if (slope == 0 && !causal && !bounded) return;
  // Positions relative to the first query's.
  alignas(64) A query[query_block], lowest[query_block];
  A key[key_block];
  Index later[query_block];  // of the first query of a vector: the first key after it
  for (Index i = 0; i < query_block; ++i) {
    const Index mine = at.first + std::min(i, at.queries - 1), position = job.position(at.n, mine);
    query[i] = static_cast<A>(position - origin);
    lowest[i] = static_cast<A>(job.lower(at.n, mine) - origin);
    if (i % P::lanes == 0)
      later[i] = causal ? std::clamp<Index>(job.keys_before(position + 1) - at.from, 0, at.keys) : at.keys;
  }
  for (Index j = 0; j < at.keys; ++j) key[j] = static_cast<A>(job.args.part.keys.at(at.from + j) - origin);
  P::run([=, &query, &lowest, &key, &later, queries = at.queries, keys = at.keys] {
    const auto hidden = typename P::Vector{} - std::numeric_limits<A>::infinity();
    for (Index c = 0; c < queries; c += P::lanes) {
      const typename P::Vector mine = vector_at<P>(query + c);
      for (Index j = 0; slope != 0 && j < keys; ++j)
        vector_at<P>(scores + j * query_block + c) += slope * (key[j] - mine);
      for (Index j = later[c]; j < keys; ++j) {
        auto& s = vector_at<P>(scores + j * query_block + c);
        s = mine < key[j] ? hidden : s;
      }
      const typename P::Vector lower = vector_at<P>(lowest + c);
      for (Index j = 0; bounded && j < keys; ++j) {
        auto& s = vector_at<P>(scores + j * query_block + c);
        s = key[j] < lower ? hidden : s;
      }
    }
  });
}

/// factors [keys, query_block]: 0 where dropout drops a probability, else 1 / (1 - dropout).
template <class A>
void dropout_factors(A* factors, const AttentionJob& job, const Place& at) {
  const auto id = static_cast<std::uint64_t>(job.args.samples ? job.args.samples.as<const Index>()[at.n] : at.n);
  const std::uint32_t threshold = drop_threshold(job.args.dropout);
  const auto kept = static_cast<A>(1 / (1 - job.args.dropout));
  std::uint32_t bits[key_block + 8];
  for (Index i = 0; i < at.queries; ++i) {
    const AttentionPart& part = job.args.part;
    const Index row = (part.head_at + at.h) * part.all_queries + part.queries.at(at.first + i);
    for (Index from = 0, end; from < at.keys; from = end) {  // keys whose elements are adjacent
      const Index turn = part.keys.turn - at.from, first = row * part.all_keys + part.keys.at(at.from + from);
      end = part.keys.step > 1 ? from + 1 : turn > from ? std::min(at.keys, turn) : at.keys;
      philox_fill(bits, job.key, id, static_cast<std::uint64_t>(first / 4), (first % 4 + end - from + 3) / 4);
      for (Index j = from; j < end; ++j)
        factors[j * query_block + i] = bits[first % 4 + j - from] >> 8 >= threshold ? kept : A{0};
    }
  }
}
/// x [keys, query_block] *= factors.
template <class P>
void multiply_by(typename P::Acc* x, const typename P::Acc* factors, const Place& at) {
  P::run([=, queries = at.queries, keys = at.keys] {
    for (Index j = 0; j < keys; ++j)
      for (Index c = 0; c < queries; c += P::lanes)
        vector_at<P>(x + j * query_block + c) *= vector_at<P>(factors + j * query_block + c);
  });
}

/// A number of f32 as bf16, rounded to nearest even, in the upper half of the word.
inline std::uint32_t upper_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bits + 0x7fffu + (bits >> 16 & 1u);
}
/// A tile [keys, query_block] of f32 as a left operand by columns: pairs along the keys [ceil(keys / 2), query_block].
inline void pair_keys(std::uint32_t* to, const float* x, Index keys) {
  Pairs::run([=] {
    for (Index j = 0; j < keys; j += 2) {
      const float *const a = x + j * query_block, *const b = a + query_block;
      const bool both = j + 1 < keys;
      auto* const out = to + j / 2 * query_block;
#pragma omp simd
      for (Index i = 0; i < query_block; ++i)
        out[i] = upper_half(a[i]) >> 16 | (both ? upper_half(b[i]) & 0xffff0000u : 0u);
    }
  });
}
/// As above, as a left operand by rows: pairs along the queries [keys, query_block / 2].
inline void pair_queries(std::uint32_t* to, const float* x, Index keys) {
  Pairs::run([=] {
    auto* const out = reinterpret_cast<std::uint16_t*>(to);
#pragma omp simd
    for (Index i = 0; i < keys * query_block; ++i) out[i] = static_cast<std::uint16_t>(upper_half(x[i]) >> 16);
  });
}

/// Whether the CPU multiplies bf16 and oneDNN's limit ONEDNN_MAX_CPU_ISA allows it.
inline bool has_bf16_products() {
  const unsigned wanted = dnnl_cpu_isa_avx512_core_bf16;
  return vector_level() == VectorLevel::v4 && instructions::has_products_of_bf16() &&
         (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}
/// Calls f(P{}, T{}) with the code for elements of T on this machine.
template <class F>
void with_code(DType type, std::string_view op, F&& f) {
  const auto plain = [&]<class A>(A, auto t) {
    switch (vector_level()) {
      case VectorLevel::v4: return f(Plain<A, 64>{}, t);
      case VectorLevel::v3: return f(Plain<A, 32>{}, t);
      case VectorLevel::base: return f(Plain<A, 16>{}, t);
    }
  };
  if (type == DType::f64) return plain(double{}, double{});
  if (type == DType::f32) return plain(float{}, float{});
  check(type == DType::bf16, op, "got {}, expected a floating type (f32, f64, bf16)", type);
  if constexpr (instructions::products_of_bf16)
    if (has_bf16_products()) return f(Pairs{}, bf16{});
  plain(float{}, bf16{});
}

}  // namespace trireme::tiles

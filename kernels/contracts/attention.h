// Contracts of attention and rotary position embeddings (Su et al., arXiv 2104.09864). Attention is scaled dot-product
// attention (Vaswani et al., arXiv 1706.03762) without a matrix of all queries by all keys (FlashAttention, Dao et al.,
// arXiv 2205.14135). All operands have the same floating type; sums and row statistics are f32, or f64 for f64. Kernels
// throw Error for operands that do not fit.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/random.h"
#include "kernels/core/view.h"

namespace trireme {

/// Strides of a tensor [N, T, heads, D]. The heads of a token are adjacent, and so are the D elements of a head.
struct TokenStrides {
  Index sample = 0,  ///< elements from one sample to the next; 0: T * token
      token = 0;  ///< elements from one token to the next; 0: heads * D; larger if q, k and v are packed as [N, T, H +
                  ///< 2 G, D]
  bool operator==(const TokenStrides&) const = default;  ///< all members are equal
};

/// Which tokens of a text consecutive tokens of an operand are: ascending, in one or two runs with the same step.
struct TokenMap {
  Index first = 0,                                 ///< index of token 0 in the text
      step = 1;                                    ///< from one token to the next, at least 1
  Index turn = std::numeric_limits<Index>::max(),  ///< the tokens from this one on are the second run
      jump = 0;                                    ///< added to the indices of the second run
  /// Index of token i in the text.
  constexpr Index at(Index i) const { return first + i * step + (i < turn ? 0 : jump); }
  /// How many of `count` tokens come before token `index` of the text.
  constexpr Index before(Index index, Index count) const {
    const auto in_run = [&](Index from, Index begin, Index end) {
      return index <= from ? begin : std::clamp((index - from + step - 1) / step, begin, end);
    };
    const Index run = std::min(turn, count), some = in_run(first, 0, run);
    return some < run ? some : in_run(first + jump, run, count);
  }
  bool operator==(const TokenMap&) const = default;  ///< member by member
};

/// Which of all heads, queries and keys the operands have, where ranks divide them. An extent of 0 is the operands'.
struct AttentionPart {
  Index head_at = 0,      ///< index of the first head, for ALiBi and dropout masks
      all_heads = 0;      ///< query heads of the whole model
  TokenMap queries = {},  ///< indices of the queries
      keys = {};          ///< indices of the keys
  Index all_queries = 0,  ///< of a sample, for dropout masks alone
      all_keys = 0;       ///< of a sample, for dropout masks alone
  bool operator==(const AttentionPart&) const = default;  ///< member by member
};

/// Arguments of attention other than the operands. Query i of sample n has position q_at + part.queries.at(i) +
/// q_starts[n]; key j has position part.keys.at(j).
struct AttentionArgs {
  bool causal = false;  ///< a query attends to keys at its own and earlier positions only
  Index window = 0;     ///< a causal query attends to its own and the window - 1 positions before; 0: to all before
  double scale = 1;     ///< factor of the scores q k^T; usually 1 / sqrt(D)
  /// Adds alibi_slope() * (j - position of the query) to the score of key j (ALiBi, arXiv 2108.12409).
  bool alibi = false;
  Index q_at = 0;      ///< position of the first query
  View q_starts = {};  ///< i64 [N]: added to the positions of the queries of each sample. View{}: 0
  View lengths = {};   ///< i64 [N]: keys of sample n at positions from lengths[n] on are masked. View{}: none
  /// i64 [N, Tq], causal: query i of sample n attends to no key before position first_keys[n, i], which is the
  /// beginning of its document in a packed text. It must not descend along the queries, which only the CPU
  /// checks: pad with the last. View{}: none
  View first_keys = {};
  double dropout = 0;       ///< probability of dropout of the attention probabilities, in [0, 1)
  View samples = {};        ///< i64 [N]: ids of the samples, from which dropout masks are drawn. View{}: 0, 1, ...
  MaskKey key{0};           ///< key of the dropout masks
  AttentionPart part = {};  ///< of all heads, queries and keys, the operands'
  TokenStrides q = {},      ///< of q and dq
      k = {},               ///< of k and dk
      v = {};               ///< of v and dv
};

/// Slope of a head for ALiBi (Press et al., arXiv 2108.12409). If `heads` is a power of two: 2^(-8 (head + 1) / heads).
/// Otherwise the slopes for the next smaller power of two, followed by every other slope for the next larger one.
inline double alibi_slope(Index head, Index heads) {
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  if (head < power) return std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(power));
  return std::exp2(-4.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(power));
}

/// Pairs of a query and a key that it attends to, of a sample and a head with that many queries and keys. Reads no
/// values on devices: q_starts, lengths and first_keys do not count.
inline Index attention_pairs(const AttentionArgs& args, Index queries, Index keys) {
  if (!args.causal) return queries * keys;
  Index pairs = 0;
  for (Index i = 0; i < queries; ++i) {
    const Index position = args.q_at + args.part.queries.at(i);
    pairs += args.part.keys.before(position + 1, keys);
    if (args.window > 0) pairs -= args.part.keys.before(position - args.window + 1, keys);
  }
  return pairs;
}

namespace detail {
/// Operations of that many products of all pairs along D. q: [N, Tq, H, D], k: [N, Tk, G, D].
inline double attention_operations(int products, const View& q, const View& k, const AttentionArgs& args) {
  const Shape& s = q.shape;
  return 2.0 * products * static_cast<double>(s[0] * s[2] * s[3]) *
         static_cast<double>(attention_pairs(args, s[1], k.shape[1]));
}
}  // namespace detail

namespace kernel {

/// o = (softmax(scale q k^T + bias) o Z) v for each sample and head: q [N, Tq, H, D], k and v [N, Tk, G, D], o dense
/// [N, Tq, H, D]. Query head h uses key head h / (H / G). stats [N, H, Tq, 2] (f32, or f64 for f64) holds for each row
/// the maximum m of the scores and l = sum of exp(score - m). A row without keys has o = 0, m = -inf, l = 0. Z is the
/// dropout mask, 0 or 1 / (1 - dropout): element (h, i, j) of sample s is kept if uniform_float(Philox{key()}(s, e /
/// 4)[e % 4]) >= dropout, where e = (h * Tq + i) * Tk + j; here h, i, j, Tq and Tk are indices and numbers of all
/// heads, queries and keys (AttentionPart). Keys are processed in ascending blocks whose size depends on shapes only,
/// so results do not depend on the number of threads.
struct Attention {
  static constexpr char name[] = "attention";  ///< in errors, profiles and census()
  /// o and stats are outputs; args has the strides of q, k and v.
  using Fn = void(View o, View stats, View q, View k, View v, const AttentionArgs&);
  /// Multiplications and additions of the products, for LaunchWatch::Call.
  static double operations(const View&, const View&, const View& q, const View& k, const View&,
                           const AttentionArgs& args) {
    return trireme::detail::attention_operations(2, q, k, args);
  }
};
/// With P the probabilities, recomputed from stats, and d_i = <do_i, o_i>: dv = (P o Z)^T do, dP = (do v^T) o Z, dS = P
/// o (dP - d), dq = scale dS k, dk = scale dS^T q. dk and dv are summed over the query heads of a group.
struct AttentionBackward {
  static constexpr char name[] = "attention_backward";  ///< in errors, profiles and census()
  /// dq, dk and dv are outputs with the strides of q, k and v; dout and o are dense; args as in forward.
  using Fn = void(View dq, View dk, View dv, View dout, View o, View stats, View q, View k, View v,
                  const AttentionArgs&);
  /// As in forward; one product computes the scores again.
  static double operations(const View&, const View&, const View&, const View&, const View&, const View&, const View& q,
                           const View& k, const View&, const AttentionArgs& args) {
    return trireme::detail::attention_operations(5, q, k, args);
  }
};
/// Rotates pairs of elements of each head by the angle of its token: y, x [N, T, H, D]; table [T, R] or [N, T, R], f32
/// (f64 for f64), R even and at most D: R / 2 cosines, then R / 2 sines. Pair i is elements (i, i + R / 2), or (2 i, 2
/// i + 1) if interleaved. Elements from R on are copied. inverse rotates by the negative angle: the gradient.
struct Rope {
  static constexpr char name[] = "rope";  ///< in errors, profiles and census()
  /// y is the output; it may be the same block as x.
  using Fn = void(View y, View x, View table, bool interleaved, bool inverse);
};

}  // namespace kernel
}  // namespace trireme

// Scaled dot-product attention (Vaswani et al., arXiv 1706.03762) without a matrix of all queries by all keys (Dao et
// al., FlashAttention, arXiv 2205.14135), and rotary position embeddings (Su et al., arXiv 2104.09864). Operands have
// one floating type; sums and row statistics are f32, f64 for f64. Throw Error for operands that do not fit.
#pragma once
#include <cmath>

#include "kernels/core/random.h"
#include "kernels/core/view.h"

namespace trireme {

/// Where the tokens of a tensor [N, T, heads, D] lie: heads follow one another, and so do the D elements of a head.
struct TokenStrides {
  Index sample = 0,  ///< elements from one sample to the next; 0: T token
      token = 0;     ///< elements from one token to the next; 0: heads D. Larger in a packed [N, T, H + 2 G, D]
  bool operator==(const TokenStrides&) const = default;  ///< member by member
};

/// What attention does beside its operands. Query i of sample n stands at position q_at + i, or q_starts[n] + i; key j
/// at position j.
struct AttentionArgs {
  bool causal = false;  ///< a query sees the keys at its own position and before
  double scale = 1;     ///< of the products of queries and keys
  bool alibi = false;   ///< adds slope_h (j - position of the query), slopes as alibi_slope() has them (2108.12409)
  Index q_at = 0;       ///< position of the first query
  View q_starts = {};   ///< i64 [N]: the same for each sample; q_at is added. View{}: 0
  View lengths = {};    ///< i64 [N]: of sample n only the first lengths[n] keys count. View{}: all
  double dropout = 0;   ///< share of the probabilities that become 0, in [0, 1)
  View samples = {};    ///< i64 [N]: ids of the samples, by which masks are drawn; View{}: 0, 1, ...
  MaskKey key{0};       ///< of the masks
  Index head_at = 0,    ///< number of the first head at hand among all heads
      all_heads = 0;    ///< heads of the whole model; 0: those at hand
  TokenStrides q = {},  ///< of q and dq
      k = {},           ///< of k and dk
      v = {};           ///< of v and dv
};

/// Slope of a head, of `heads`, for ALiBi (Press et al., arXiv 2108.12409): 2^(-8 (head + 1) / heads) where heads is a
/// power of two; else those of the next smaller power of two, and behind them every other one of the next larger.
inline double alibi_slope(Index head, Index heads) {
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  if (head < power) return std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(power));
  return std::exp2(-4.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(power));
}

namespace kernel {

/// o = (softmax(scale q k^T + bias) o Z) v for each sample and head: q [N, Tq, H, D], k and v [N, Tk, G, D], o dense
/// [N, Tq, H, D]; query head h reads key head h / (H / G). stats [N, H, Tq, 2] (f32, f64 for f64): each row's maximum m
/// of the scores and l = sum of exp(score - m). A row that sees no key: o = 0, m = -inf, l = 0. Z: 0 or
/// 1 / (1 - dropout); element (h, i, j) of sample s is kept when uniform_float(Philox{key()}(s, e / 4)[e % 4]) >=
/// dropout with e = (h * Tq + i) * Tk + j, h counted among all heads. Key blocks are visited in ascending order, of a
/// size that depends on shapes alone: results do not depend on the number of threads.
struct Attention {
  static constexpr char name[] = "attention";  ///< in errors, profiles and census()
  /// o and stats are outputs; q, k and v lie as the strides of args say.
  using Fn = void(View o, View stats, View q, View k, View v, const AttentionArgs&);
};
/// With P the probabilities, recomputed from stats, and d_i = <do_i, o_i>: dv = (P o Z)^T do, dP = (do v^T) o Z,
/// dS = P o (dP - d), dq = scale dS k, dk = scale dS^T q; dk and dv summed over the query heads of a group.
struct AttentionBackward {
  static constexpr char name[] = "attention_backward";  ///< in errors, profiles and census()
  /// dq, dk and dv are outputs, which lie as q, k and v do; dout and o are dense; args as in forward.
  using Fn = void(View dq, View dk, View dv, View dout, View o, View stats, View q, View k, View v,
                  const AttentionArgs&);
};
/// Rotates pairs of elements of each head by an angle of its token: y, x [N, T, H, D]; table [T, R] or [N, T, R], R
/// even and at most D, f32 (f64 for f64): R / 2 cosines, then R / 2 sines. Pair i is elements (i, i + R / 2), or (2 i,
/// 2 i + 1) where interleaved; elements from R on stay as they are. inverse: by the negative angle, which is the
/// gradient.
struct Rope {
  static constexpr char name[] = "rope";  ///< in errors, profiles and census()
  /// y is the output; it may be x's block.
  using Fn = void(View y, View x, View table, bool interleaved, bool inverse);
};

}  // namespace kernel
}  // namespace trireme

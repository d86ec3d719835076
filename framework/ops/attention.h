// Ops of transformers: attention, rotary positions, the linear layer and cross-entropy of a large vocabulary in one.
#pragma once
#include "framework/ops/loss.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// What attention() does beside its operands.
struct AttentionOptions {
  bool causal = false;      ///< a query sees the keys at its own position and before: k_pos <= q_pos
  double scale = 0;         ///< of the products q k^T; 0: 1 / sqrt(D)
  double dropout = 0;       ///< in training: share of the probabilities that become 0, in [0, 1)
  std::uint64_t layer = 0;  ///< the layer's key, of which masks are drawn (StateVisitor::random)
  bool alibi = false;       ///< a bias falls linearly with the distance (Press et al., arXiv 2108.12409)
  Index q_at = 0;           ///< position of the first query; the first key stands at 0
  bool operator==(const AttentionOptions&) const = default;  ///< member by member
};
/// F.scaled_dot_product_attention: softmax(scale q k^T) v of each sample and head (Vaswani et al., arXiv 1706.03762).
/// q [N, Tq, H, D], k and v [N, Tk, G, D], G a divisor of H (grouped queries, Ainslie et al., arXiv 2305.13245) -> [N,
/// Tq, H, D]. No matrix of Tq x Tk is kept, nor made for more than a block of queries and keys (FlashAttention, Dao et
/// al., arXiv 2205.14135). lengths i64 [N]: of sample n the first lengths[n] keys count. q_starts i64 [N]: query i of
/// sample n stands at position q_starts[n] + q_at + i. A query that sees no key gets zeros. Masks of dropout depend on
/// seed, step, sample id, head, query and key alone. Throws Error for operands that do not fit.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& = {},
                 const Tensor& lengths = {}, const Tensor& q_starts = {});
/// The same of q, k and v that lie side by side, read and differentiated in place: qkv [N, T, H + 2 G, D] -> [N, T, H,
/// D]. kv_heads: G; 0: H.
Tensor attention_packed(const Tensor& qkv, Index heads, Index kv_heads = 0, const AttentionOptions& = {},
                        const Tensor& lengths = {});

/// How the wavelengths of rotary embeddings are stretched for longer texts than a model was trained on.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3 };
  Kind kind = Kind::none;         ///< linear: angles divided by factor; llama3: of long wavelengths only
  double factor = 1;              ///< >= 1
  double low_frequency = 1,       ///< llama3's low_freq_factor
      high_frequency = 4;         ///< llama3's high_freq_factor
  Index original_context = 8192;  ///< llama3's original_max_position_embeddings
  bool operator==(const RopeScaling&) const = default;  ///< member by member
};
/// Of rope_table().
struct RopeOptions {
  double base = 10000;  ///< angle of pair i: position base^(-2 i / width)
  RopeScaling scaling = {};
  bool operator==(const RopeOptions&) const = default;  ///< member by member
};
/// cos and sin of the angles of positions 0, 1, ... (Su et al., arXiv 2104.09864): f64 [positions, width] on the CPU,
/// width / 2 cosines, then width / 2 sines. width: even, the elements of a head that are rotated.
Tensor rope_table(Index positions, Index width, const RopeOptions& = {});
/// Rotates pairs of each head's elements: x [N, T, H, D] -> the same shape. table [T, R] or [N, T, R], R <= D: rows of
/// a rope_table(), those of the tokens' positions, converted to f32 (f64 for f64). Pairs are (i, i + R / 2), as Hugging
/// Face's weights have them, or (2 i, 2 i + 1) where interleaved (GPT-J's, Meta's); elements from R on stay.
Tensor rope(const Tensor& x, const Tensor& table, bool interleaved = false);

/// cross_entropy of linear(x, w, bias) without ever holding all logits: x [..., C], w [V, C], bias [V] or undefined,
/// labels i64 [...] -> a scalar (Reduction::mean, sum). Chunks of rows compute their logits, their loss and, where a
/// gradient is wanted, at once their part of the gradients of x, w and bias, which backward only scales (Hsu et al.,
/// Liger Kernel, arXiv 2410.10989). Peak memory: one chunk of logits and a gradient of w's size. Throws Error as
/// cross_entropy_with(), and for Reduction::none and class weights.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& labels, const LabelLossOptions& = {},
                            const Tensor& bias = {});

}  // namespace trireme

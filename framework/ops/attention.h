// Ops of transformers: attention, rotary positions, and the fused linear layer and cross-entropy of a large vocabulary.
#pragma once
#include "framework/ops/loss.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Options of attention().
struct AttentionOptions {
  bool causal = false;      ///< a query attends to keys at its own and earlier positions: k_pos <= q_pos
  Index window = 0;         ///< with causal: q_pos - window < k_pos, too (Beltagy et al., arXiv 2004.05150); 0: not
  double scale = 0;         ///< factor of the products q k^T; 0: 1 / sqrt(D)
  double dropout = 0;       ///< probability in training that an attention probability becomes 0, in [0, 1)
  std::uint64_t layer = 0;  ///< key of the layer, from which masks are drawn (StateVisitor::random)
  /// Adds a bias that decreases linearly with the distance (ALiBi: Press et al., arXiv 2108.12409).
  bool alibi = false;
  Index q_at = 0;  ///< position of the first query; the first key is at position 0
  bool operator==(const AttentionOptions&) const = default;  ///< all members are equal
};
/// F.scaled_dot_product_attention: softmax(scale q k^T) v of each sample and head (Vaswani et al., arXiv 1706.03762). q
/// [N, Tq, H, D], k and v [N, Tk, G, D] -> [N, Tq, H, D], where G divides H (grouped queries, Ainslie et al., arXiv
/// 2305.13245). Memory is needed for blocks of Tq x Tk only, not for the whole matrix (FlashAttention, Dao et al.,
/// arXiv 2205.14135). lengths i64 [N]: only the first lengths[n] keys of sample n count. q_starts i64 [N]: query i of
/// sample n has position q_starts[n] + q_at + i. first_keys i64 [N, Tq], for causal attention: query i of sample n
/// attends to keys at positions from first_keys[n, i] on, which must not descend along the queries (document_starts()).
/// A query without keys gets zeros. Dropout masks depend only on seed, step, sample id, head, query and key. Throws
/// Error for operands that do not fit.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& = {},
                 const Tensor& lengths = {}, const Tensor& q_starts = {}, const Tensor& first_keys = {});
/// As above, for q, k and v next to each other in one tensor, without copies in forward and backward: qkv [N, T, H + 2
/// G, D] -> [N, T, H, D]. kv_heads: G; 0: H.
Tensor attention_packed(const Tensor& qkv, Index heads, Index kv_heads = 0, const AttentionOptions& = {},
                        const Tensor& lengths = {}, const Tensor& first_keys = {});
/// The first_keys with which tokens of a text that packs several documents attend to their own document only: ids i64
/// [N, T] -> i64 [N, T], for each token the index of its document's first token. A document ends with the id
/// `separator`, such as GPT-2's 50256. If ranks divide the tokens, each gets the result of all tokens.
Tensor document_starts(const Tensor& ids, Index separator);

/// Scaling of the wavelengths of rotary embeddings, for longer texts than a model was trained on.
struct RopeScaling {
  /// linear divides all angles by the factor, llama3 the angles of long wavelengths only.
  enum class Kind : std::uint8_t { none, linear, llama3 };
  Kind kind = Kind::none;                               ///< which angles are divided by the factor
  double factor = 1;                                    ///< >= 1
  double low_frequency = 1,                             ///< llama3's low_freq_factor
      high_frequency = 4;                               ///< llama3's high_freq_factor
  Index original_context = 8192;                        ///< llama3's original_max_position_embeddings
  bool operator==(const RopeScaling&) const = default;  ///< all members are equal
};
/// Options of rope_table().
struct RopeOptions {
  double base = 10000;                                  ///< angle of pair i: position base^(-2 i / width)
  RopeScaling scaling = {};                             ///< for longer texts
  bool operator==(const RopeOptions&) const = default;  ///< all members are equal
};
/// cos and sin of the angles of positions 0, 1, ... (Su et al., arXiv 2104.09864): f64 [positions, width] on the CPU,
/// width / 2 cosines followed by width / 2 sines. width: even; number of a head's elements that are rotated.
Tensor rope_table(Index positions, Index width, const RopeOptions& = {});
/// Rotates pairs of each head's elements: x [N, T, H, D] -> the same shape. table [T, R] or [N, T, R], R <= D: the rows
/// of a rope_table() for the tokens' positions, in f32 (f64 for f64). Pairs are (i, i + R / 2) as in Hugging Face's
/// weights, or (2 i, 2 i + 1) if interleaved (GPT-J's, Meta's). Elements from R on are copied.
Tensor rope(const Tensor& x, const Tensor& table, bool interleaved = false);

/// cross_entropy of linear(x, w, bias), mostly without holding all logits: x [..., C], w [V, C], bias [V] or undefined,
/// labels i64 [...] -> a scalar (Reduction::mean or sum). Each chunk of rows computes its logits and its loss. If
/// needed, it also computes its part of the gradients, which backward only scales (Liger Kernel, Hsu et al., arXiv
/// 2410.10989). Peak memory: the logits of one chunk, and a gradient of w's size. With 2 rows <= C all logits are one
/// chunk, which is kept until backward. Throws Error as cross_entropy_with(), and for Reduction::none and class
/// weights.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& labels, const LabelLossOptions& = {},
                            const Tensor& bias = {});

}  // namespace trireme

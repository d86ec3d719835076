// SelfAttention, and AttentionHeads, of which other attention layers (GPT-2's, Llama's, BERT's) are composed.
#pragma once
#include "framework/layers/linear.h"
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Options of attention layers.
struct SelfAttentionOptions {
  Index kv_heads = 0;   ///< heads of keys and values, a divisor of heads (grouped queries, arXiv 2305.13245); 0: heads
  bool causal = false;  ///< a token attends to itself and earlier tokens only
  Index window = 0;     ///< with causal: a token attends to itself and the window - 1 before it; 0: to all before it
  double dropout = 0;   ///< dropout probability of the attention probabilities in training, in [0, 1)
  bool alibi = false;   ///< adds a bias that decreases linearly with the distance (ALiBi, arXiv 2108.12409)
  double scale = 0;     ///< factor of the products q k^T; 0: 1 / sqrt(D)
  bool bias = true;     ///< whether the projections have biases
  Init init = Init::xavier_uniform();  ///< of the projection to q, k and v
};

/// The keys of each sample that count; undefined: no limit.
struct KeyLimits {
  KeyLimits(Tensor count = {}, Tensor first = {})  // NOLINT: implicit
      : lengths(std::move(count)), first_keys(std::move(first)) {}
  Tensor lengths;  ///< i64 [N]: only the first lengths[n] keys of sample n
  /// i64 [N, T]: for each query the position of its first key (document_starts()). With a KvCache, positions count from
  /// the cache's first token. The layer must be causal.
  Tensor first_keys;
};

/// An attention layer without projections. It splits projections into heads, computes attention() and joins the heads.
/// It uses a KvCache if the StepContext has one.
class AttentionHeads {
 public:
  /// width: features of queries, H * D; heads: H. Throws Error unless heads divides width and kv_heads divides heads.
  AttentionHeads(Index width, Index heads, const SelfAttentionOptions& = {});
  /// Attention of packed projections: qkv [N, T, (H + 2 G) D], with queries, keys and values next to each other -> [N,
  /// T, H D]. With a KvCache, lengths are not read.
  Tensor operator()(const Tensor& qkv, const KeyLimits& = {}) const;
  /// Attention of separate projections: q [N, T, H, D], k and v [N, T, G, D] -> [N, T, H D].
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v, const KeyLimits& = {}) const;
  /// Splits features into heads: x [N, T, heads D] -> [N, T, heads, D].
  Tensor split(const Tensor& x) const;
  /// Visits no tensors. The visitor gives the layer the random key of its dropout masks.
  void visit(const StateVisitor& v) { v.random(options_.layer); }

  Index heads() const { return heads_; }                             ///< H: heads of queries
  Index kv_heads() const { return kv_heads_; }                       ///< G: heads of keys and values
  Index head_size() const { return size_; }                          ///< D: features per head
  Index packed() const { return (heads_ + 2 * kv_heads_) * size_; }  ///< features of q, k and v together
  /// How ranks share the features of queries and of the result: a rank has all queries of its keys and values.
  Shares query_shares() const { return {.ranges = {{heads_ * size_, heads_ / kv_heads_ * size_}}}; }
  Shares kv_shares() const { return {.ranges = {{kv_heads_ * size_, size_}}}; }  ///< of keys, and of values
  Shares packed_shares() const;                                                  ///< of q, k and v together

 private:
  Index heads_, kv_heads_, size_;
  AttentionOptions options_;
};

/// torch.nn.MultiheadAttention(width, heads, batch_first=True) as self-attention: x [N, T, width] -> the same shape.
struct SelfAttention {
  /// Initial values as PyTorch's. Throws Error as AttentionHeads.
  SelfAttention(Index width, Index heads, SelfAttentionOptions options = {});
  Tensor operator()(const Tensor& x, const KeyLimits& limits = {}) const {
    return out_proj(heads(linear(x, in_proj_weight, in_proj_bias), limits));
  }
  /// Visits "in_proj_weight", "in_proj_bias", "out_proj.weight" and "out_proj.bias".
  void visit(const StateVisitor& v);
  AttentionHeads heads;   ///< splits, attends and joins
  Tensor in_proj_weight,  ///< [(H + 2 G) D, width]: projection to queries, keys and values
      in_proj_bias;       ///< [(H + 2 G) D]; undefined if the layer has no biases
  Linear out_proj;        ///< projection of the joined heads, width -> width
  Init init;              ///< of in_proj_weight
};

}  // namespace trireme

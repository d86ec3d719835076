// SelfAttention, and what attention layers with other names for their weights are made of: GPT-2's, Llama's, BERT's.
#pragma once
#include "framework/layers/linear.h"
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Of attention layers.
struct SelfAttentionOptions {
  Index kv_heads = 0;                  ///< heads of keys and values, a divisor of heads (arXiv 2305.13245); 0: heads
  bool causal = false;                 ///< a token sees itself and those before
  double dropout = 0;                  ///< of the probabilities, in training, in [0, 1)
  bool alibi = false;                  ///< a bias that falls linearly with the distance (arXiv 2108.12409)
  double scale = 0;                    ///< of the products q k^T; 0: 1 / sqrt(D)
  bool bias = true;                    ///< whether the projections have biases
  Init init = Init::xavier_uniform();  ///< of the projection to q, k and v
};

/// An attention layer without its projections: it splits them into heads and joins these again, knows its masks' key,
/// and serves a KvCache, where StepContext has one.
class AttentionHeads {
 public:
  /// Throws Error unless heads divide width, and kv_heads heads.
  AttentionHeads(Index width, Index heads, const SelfAttentionOptions& = {});
  /// Of projections that lie side by side: qkv [N, T, (H + 2 G) D], queries, keys, values -> [N, T, H D]. lengths: of
  /// each sample's keys, i64 [N]; undefined: all count.
  Tensor operator()(const Tensor& qkv, const Tensor& lengths = {}) const;
  /// q [N, T, H, D], k and v [N, T, G, D] -> [N, T, H D].
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths = {}) const;
  /// x [N, T, heads D] -> [N, T, heads, D].
  Tensor split(const Tensor& x) const;
  void visit(const StateVisitor& v) { v.random(options_.layer); }  ///< takes its key; it has no tensors

  Index heads() const { return heads_; }                             ///< H, of queries
  Index kv_heads() const { return kv_heads_; }                       ///< G, of keys and values
  Index head_size() const { return size_; }                          ///< D
  Index packed() const { return (heads_ + 2 * kv_heads_) * size_; }  ///< features of q, k and v side by side

 private:
  Index heads_, kv_heads_, size_;
  AttentionOptions options_;
};

/// torch.nn.MultiheadAttention(width, heads, batch_first=True) of a text with itself: x [N, T, width] -> the same
/// shape.
struct SelfAttention {
  /// Throws Error as AttentionHeads. Starts as PyTorch's.
  SelfAttention(Index width, Index heads, SelfAttentionOptions options = {});
  /// lengths i64 [N]: of sample n the first lengths[n] tokens count; undefined: all.
  Tensor operator()(const Tensor& x, const Tensor& lengths = {}) const {
    return out_proj(heads(linear(x, in_proj_weight, in_proj_bias), lengths));
  }
  /// Names "in_proj_weight", "in_proj_bias", "out_proj.weight" and "out_proj.bias".
  void visit(const StateVisitor& v);
  Tensor in_proj_weight,  ///< [(H + 2 G) D, width]: of queries, keys, values
      in_proj_bias;       ///< [(H + 2 G) D]; undefined without one
  Linear out_proj;        ///< of the heads' results, width -> width
  AttentionHeads heads;
  Init init;  ///< of in_proj_weight
};

}  // namespace trireme

// Llama (Touvron et al., arXiv 2302.13971; Grattafiori et al., arXiv 2407.21783) with Hugging Face's names.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Sizes and choices; the defaults are a small model of 120 million parameters.
struct LlamaOptions {
  Index layers = 12,                      ///< blocks
      heads = 12,                         ///< of queries; divides width
      kv_heads = 0,                       ///< of keys and values, a divisor of heads (arXiv 2305.13245); 0: heads
      width = 768,                        ///< C: elements of a token
      hidden = 0,                         ///< of the MLP between; 0: 8/3 width, up to a multiple of 256
      positions = 2048,                   ///< most tokens of a sample
      vocabulary = 32000;                 ///< ids are [0, vocabulary)
  double eps = 1e-5;                      ///< of the norms
  RopeOptions rope = {};                  ///< base and scaling of the rotary embedding
  bool bias = false;                      ///< of linear layers
  bool tied = false;                      ///< the token embedding is the head's weight, too
  bool recompute = false;                 ///< blocks keep their input alone (framework/layers/recompute.h)
  std::optional<DType> dtype = {};        ///< of activations: bf16, f16 over f32 weights; none: the weights'
  std::vector<Index> bos = {}, eos = {};  ///< ids that begin and end a text, which config.json names; the model itself
                                          ///< does not look at them
  /// hidden, or what stands for 0.
  Index hidden_size() const { return hidden ? hidden : (width * 8 / 3 + 255) / 256 * 256; }
};
/// ids i64 [N, T] -> logits [N, T, vocabulary]: pre-norm blocks of grouped attention with rotary positions, and SwiGLU
/// (arXiv 2002.05202). Weights start normal, standard deviation 0.02. Throws Error for sizes below 1, heads that do not
/// divide the width, and kv_heads that do not divide heads.
Sequential llama(const LlamaOptions& = {});
/// The options with what `o` says otherwise: input {T}, classes and arch. Throws Error for what Llama does not have.
LlamaOptions llama_options(LlamaOptions, const ModelOptions& o);

}  // namespace trireme

// Llama (Touvron et al., arXiv 2302.13971; Grattafiori et al., arXiv 2407.21783) with Hugging Face's names. With a
// sliding window it is Mistral (Jiang et al., arXiv 2310.06825), with experts Mixtral (Jiang et al., arXiv 2401.04088).
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Options of llama(); the defaults are a small model with 120 million parameters.
struct LlamaOptions {
  Index layers = 12,     ///< number of blocks
      heads = 12,        ///< query heads; must divide width
      kv_heads = 0,      ///< key and value heads, a divisor of heads (grouped queries, arXiv 2305.13245); 0: heads
      width = 768,       ///< C: elements of a token
      hidden = 0,        ///< width of the MLP's hidden layer; 0: 8/3 * width, rounded up to a multiple of 256
      experts = 0,       ///< number of MLPs of a block, of which a token uses some (Mixtral, arXiv 2401.04088); 0: one
      expert_top_k = 2,  ///< experts of a token
      positions = 2048,  ///< maximum tokens per sample
      window = 0,        ///< a token attends to itself and the window - 1 before it (Mistral); 0: to all before it
      vocabulary = 32000;        ///< ids are [0, vocabulary)
  double expert_balance = 0.01,  ///< weight of the experts' balance loss (MixtureOptions::balance)
      eps = 1e-5;                ///< epsilon of the norms
  RopeOptions rope = {};         ///< base and scaling of the rotary embedding
  bool bias = false;             ///< whether linear layers have biases
  bool tied = false;             ///< whether the head shares the token embedding's weight
  bool recompute = false;  ///< activation checkpointing: blocks store only their input (framework/layers/recompute.h)
  std::optional<DType> dtype = {};  ///< type of activations: bf16 or f16 with f32 weights; none: type of the weights
  std::vector<Index> bos = {},      ///< ids that begin a text, for config.json; the model ignores them
      eos = {};                     ///< ids that end a text, likewise
  /// hidden, or its default if 0.
  Index hidden_size() const { return hidden ? hidden : (width * 8 / 3 + 255) / 256 * 256; }
};
/// ids i64 [N, T] -> logits [N, T, vocabulary]: pre-norm blocks of grouped-query attention with rotary positions, and
/// SwiGLU (arXiv 2002.05202). If the ids have a field "first_keys" (TokensOptions::separator), tokens attend to their
/// own document only. Weights start normal with standard deviation 0.02. Throws Error for sizes below 1, heads that do
/// not divide the width, and kv_heads that do not divide heads.
Sequential llama(const LlamaOptions& = {});
/// The options with the changes of `o`: input {T}, classes and arch. Throws Error for settings that Llama does not
/// have.
LlamaOptions llama_options(LlamaOptions, const ModelOptions& o);

}  // namespace trireme

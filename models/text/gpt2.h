// GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners, 2019), with Hugging Face's names. Options
// give nanoGPT's variant.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Options of gpt2(); the defaults are the smallest GPT-2 with 124 million parameters.
struct GptOptions {
  Index layers = 12,       ///< number of blocks
      heads = 12,          ///< attention heads; must divide width
      width = 768,         ///< C: elements of a token
      positions = 1024,    ///< maximum tokens per sample
      vocabulary = 50257,  ///< ids are [0, vocabulary)
      hidden = 0,          ///< width of the MLP's hidden layer; 0: 4 * width
      experts = 0,       ///< number of MLPs of a block, of which a token uses some (framework/layers/experts.h); 0: one
      expert_top_k = 2;  ///< experts of a token
  double expert_balance = 0.01,          ///< weight of the experts' balance loss (MixtureOptions::balance)
      dropout = 0.1;                     ///< probability on embeddings, attention and residual branches, in [0, 1)
  bool bias = true;                      ///< whether linear layers and norms have biases; nanoGPT: false
  bool tied = true;                      ///< whether the head shares the token embedding's weight
  std::string activation = "gelu_tanh";  ///< of the MLP; nanoGPT: gelu
  bool recompute = false;  ///< activation checkpointing: blocks store only their input (framework/layers/recompute.h)
  std::optional<DType> dtype = {};  ///< type of activations: bf16 or f16 with f32 weights; none: type of the weights
  std::vector<Index> bos = {},      ///< ids that begin a text, for config.json; the model ignores them
      eos = {};                     ///< ids that end a text, likewise
  /// hidden, or its default if 0.
  Index hidden_size() const { return hidden ? hidden : 4 * width; }
};
/// ids i64 [N, T] -> logits [N, T, vocabulary]: pre-norm blocks with learned positions. If the ids have a field
/// "first_keys" (TokensOptions::separator), tokens attend to their own document only. Initialised as GPT-2: normal
/// with standard deviation 0.02, output layers of residual branches 0.02 / sqrt(2 layers), biases 0. Throws Error for
/// sizes below 1 and heads that do not divide the width.
Sequential gpt2(const GptOptions& = {});
/// The options with the changes of `o`: input {T}, classes and arch. Throws Error for settings that GPT-2 does not
/// have.
GptOptions gpt_options(GptOptions, const ModelOptions& o);

}  // namespace trireme

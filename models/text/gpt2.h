// GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners, 2019), with Hugging Face's names;
// nanoGPT's by its options.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Sizes and choices; the defaults are the smallest GPT-2's, of 124 million parameters.
struct GptOptions {
  Index layers = 12,                      ///< blocks
      heads = 12,                         ///< of attention; divides width
      width = 768,                        ///< C: elements of a token
      positions = 1024,                   ///< most tokens of a sample
      vocabulary = 50257,                 ///< ids are [0, vocabulary)
      hidden = 0;                         ///< of the MLP between; 0: 4 width
  double dropout = 0.1;                   ///< of embeddings, attention and what blocks add, in [0, 1)
  bool bias = true;                       ///< of linear layers and norms; nanoGPT: false
  bool tied = true;                       ///< the token embedding is the head's weight, too
  std::string activation = "gelu_tanh";   ///< nanoGPT: gelu
  bool recompute = false;                 ///< blocks keep their input alone (framework/layers/recompute.h)
  std::optional<DType> dtype = {};        ///< of activations: bf16, f16 over f32 weights; none: the weights'
  std::vector<Index> bos = {}, eos = {};  ///< ids that begin and end a text, which config.json names; the model itself
                                          ///< does not look at them
  /// hidden, or what stands for 0.
  Index hidden_size() const { return hidden ? hidden : 4 * width; }
};
/// ids i64 [N, T] -> logits [N, T, vocabulary]: pre-norm blocks with learned positions. Starts as GPT-2 does: normal,
/// standard deviation 0.02, what blocks add 0.02 / sqrt(2 layers); biases 0. Throws Error for sizes below 1 and heads
/// that do not divide the width.
Sequential gpt2(const GptOptions& = {});
/// The options with what `o` says otherwise: input {T}, classes and arch. Throws Error for what GPT-2 does not have.
GptOptions gpt_options(GptOptions, const ModelOptions& o);

}  // namespace trireme

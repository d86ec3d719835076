// BERT (Devlin et al., arXiv 1810.04805) with Hugging Face's names: the model that fills in masked tokens.
#pragma once
#include <string>

#include "models/registry/models.h"

namespace trireme {

/// Sizes and choices; the defaults are BERT-base's, of 109,514,298 parameters.
struct BertOptions {
  Index layers = 12,                ///< blocks
      heads = 12,                   ///< of attention; divides width
      width = 768,                  ///< C: elements of a token
      positions = 512,              ///< most tokens of a sample
      vocabulary = 30522,           ///< ids are [0, vocabulary)
      types = 2,                    ///< kinds of tokens: of the first text, of the second
      hidden = 0;                   ///< of the MLP between; 0: 4 width
  double dropout = 0.1;             ///< of embeddings, attention and what blocks add, in [0, 1)
  bool bias = true;                 ///< it has biases
  bool tied = true;                 ///< the token embedding is the head's weight, too
  std::string activation = "gelu";  ///< of the MLP and before the head
  double eps = 1e-12;               ///< of the norms
  bool recompute = false;           ///< blocks keep their input alone (framework/layers/recompute.h)
  /// hidden, or what stands for 0.
  Index hidden_size() const { return hidden ? hidden : 4 * width; }
};
/// BertForMaskedLM: ids i64 [N, T] -> logits [N, T, vocabulary]. Beside the ids there may stand (Tensor::with())
/// "token_type_ids" i64 [N, T], else all are 0, and "length" i64 [N], as pad_to_longest() makes it: of sample n the
/// first length[n] tokens are attended to, the others pad it. Post-norm blocks with learned positions. Labels of tokens
/// that were not masked are -100: cross_entropy_with({.ignore_index = -100}). Weights start normal, standard deviation
/// 0.02, biases 0. Throws Error for sizes below 1, heads that do not divide the width, and a model without biases.
Sequential bert(const BertOptions& = {});
/// The options with what `o` says otherwise: input {T}, classes and arch. Throws Error for what BERT does not have.
BertOptions bert_options(BertOptions, const ModelOptions& o);
/// Hugging Face's config.json of it.
std::string bert_config(const BertOptions&);

}  // namespace trireme

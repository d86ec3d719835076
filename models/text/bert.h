// BERT (Devlin et al., arXiv 1810.04805) with Hugging Face's names: the masked language model.
#pragma once
#include <string>

#include "models/registry/models.h"

namespace trireme {

/// Options of bert(); the defaults are BERT-base with 109,514,298 parameters.
struct BertOptions {
  Index layers = 12,                ///< number of blocks
      heads = 12,                   ///< attention heads; must divide width
      width = 768,                  ///< C: elements of a token
      positions = 512,              ///< maximum tokens per sample
      vocabulary = 30522,           ///< ids are [0, vocabulary)
      types = 2,                    ///< number of token types (first text, second text)
      hidden = 0;                   ///< width of the MLP's hidden layer; 0: 4 * width
  double dropout = 0.1;             ///< probability on embeddings, attention and residual branches, in [0, 1)
  bool bias = true;                 ///< must be true
  bool tied = true;                 ///< whether the head shares the token embedding's weight
  std::string activation = "gelu";  ///< of the MLP and before the head
  double eps = 1e-12;               ///< epsilon of the norms
  bool recompute = false;  ///< activation checkpointing: blocks store only their input (framework/layers/recompute.h)
  /// hidden, or its default if 0.
  Index hidden_size() const { return hidden ? hidden : 4 * width; }
};
/// BertForMaskedLM: ids i64 [N, T] -> logits [N, T, vocabulary]. Optional fields of ids (Tensor::with()):
/// "token_type_ids" i64 [N, T], default 0; and "length" i64 [N], as from pad_to_longest(): the first length[n] tokens
/// of sample n are attended to, the others are padding. Post-norm blocks with learned positions. Labels of tokens that
/// are not masked are -100: use cross_entropy_with({.ignore_index = -100}). Weights start normal with standard
/// deviation 0.02, biases at 0. Throws Error for sizes below 1, heads that do not divide the width, and a model without
/// biases.
Sequential bert(const BertOptions& = {});
/// The options with the changes of `o`: input {T}, classes and arch. Throws Error for settings that BERT does not have.
BertOptions bert_options(BertOptions, const ModelOptions& o);
/// Hugging Face's config.json for this model.
std::string bert_config(const BertOptions&);

}  // namespace trireme

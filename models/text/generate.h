// generate(): text from a language model, token by token, with a KV cache (Hugging Face's generate()).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "framework/layers/module.h"

namespace trireme {

/// How generate() draws tokens.
struct GenerateOptions {
  Index tokens = 100;      ///< drawn for each prompt at most; at least 1
  double temperature = 1;  ///< logits are divided by it; 0: the likeliest token, the first of equals
  Index top_k = 0;         ///< only the k likeliest tokens; 0: all
  double top_p = 1;        ///< of those the fewest likeliest whose probabilities add up to p, in (0, 1] (1904.09751)
  std::uint64_t seed = 1;  ///< a draw is a function of seed, sample and position
  std::vector<Index> samples = {};  ///< number of each prompt in draws; empty: 0, 1, ...
  Index vocabulary = 0;  ///< only ids below it are drawn, of a model that has more rows than its tokenizer; 0: all
  Index context = 1024;  ///< most tokens that the model sees at a time. Behind it the older half is forgotten
  std::vector<Index> stop = {};  ///< tokens that end a text; they are drawn, and part of it
};
/// Is told each token as it is drawn: sample, id. False ends that sample's text.
using OnToken = std::function<bool(Index sample, Index id)>;

/// The token that options draw from logits [V] by a number u in [0, 1): tokens sorted by probability (equals by id),
/// filtered by top_k, then top_p, and the first whose cumulated probability is above u. Throws Error for logits that
/// are not finite.
Index draw_token(std::span<const double> logits, const GenerateOptions&, double u);
/// The number of sample and position: Philox, key mix(seed, sample), counter position; 53 bits.
double draw_uniform(std::uint64_t seed, Index sample, Index position);

/// Tokens behind each prompt, without it. model: ids i64 [N, T] -> logits [N, T, V], whose attention layers serve a
/// KvCache. Prompts may have different lengths; what comes of one does not depend on the others but for rounding.
/// Throws Error for an empty prompt or one longer than the context, and for options out of range.
std::vector<std::vector<Index>> generate(Module& model, const std::vector<std::vector<Index>>& prompts,
                                         const GenerateOptions& = {}, const OnToken& = {});

}  // namespace trireme

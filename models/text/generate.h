// generate(): text from a language model, token by token, with a KV cache (Hugging Face's generate()).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "framework/layers/module.h"

namespace trireme {

class Step;  // parallel/runtime/step.h

/// How generate() draws tokens.
struct GenerateOptions {
  Index tokens = 100;      ///< maximum number of new tokens per prompt, at least 1
  double temperature = 1;  ///< divides the logits; 0: greedy, the most likely token (the first of equals)
  Index top_k = 0;         ///< draw only from the k most likely tokens; 0: all
  double top_p = 1;        ///< nucleus sampling (arXiv 1904.09751): then only from the fewest most likely tokens whose
                           ///< probabilities sum to p, in (0, 1]
  std::uint64_t seed = 1;  ///< random seed; a draw is a function of seed, sample and position
  std::vector<Index> samples = {};  ///< sample number of each prompt for draws; empty: 0, 1, ...
  Index vocabulary = 0;  ///< draw only ids below it, for a model with more rows than its tokenizer has ids; 0: all
  Index context = 1024;  ///< maximum tokens in the model's context; when it is full, the older half is dropped
  std::vector<Index> stop = {};  ///< tokens that end a text; they are part of the output
};
/// Called for each drawn token with sample and id. Returning false ends that sample's text.
using OnToken = std::function<bool(Index sample, Index id)>;

/// Draws a token from logits [V] with a random number u in [0, 1). Tokens are sorted by probability (ties by id) and
/// filtered by top_k, then top_p; the first whose cumulative probability exceeds u is drawn. Throws Error for logits
/// that are not finite.
Index draw_token(std::span<const double> logits, const GenerateOptions&, double u);
/// The random number u for sample and position: Philox with key mix(seed, sample) and counter position, 53 bits.
double draw_uniform(std::uint64_t seed, Index sample, Index position);

/// The new tokens after each prompt. model: ids i64 [N, T] -> logits [N, T, V], with attention layers that support a
/// KvCache. Prompts may have different lengths; each result is independent of the other prompts except for rounding.
/// Throws Error for an empty prompt, one longer than the context, and options outside their ranges.
std::vector<std::vector<Index>> generate(Module& model, const std::vector<std::vector<Index>>& prompts,
                                         const GenerateOptions& = {}, const OnToken& = {});
/// As above, over the ranks of a Step, with the weights where the Step has them between steps. A collective call:
/// prompts and options are equal on all ranks, each rank calls on_token for every token, and it must return the same on
/// all ranks. All ranks return all texts.
/// - tensor: each rank keeps the keys and values of its heads, or of all groups if there are fewer groups than ranks
///   (AttentionHeads::kv_heads()). Only the last token's logits are gathered.
/// - pipeline: each stage keeps the keys and values of its layers. The last stage draws.
/// - zero(3): the weights are gathered part by part for each token.
/// - data_parallel, zero and the other strategies with whole weights: ranks with different rows divide the prompts.
///
/// Throws Error also for tensor(sequence=true), spatial and one_weird_trick, which divide the tokens or mix the rows.
std::vector<std::vector<Index>> generate(Step&, const std::vector<std::vector<Index>>& prompts,
                                         const GenerateOptions& = {}, const OnToken& = {});

}  // namespace trireme

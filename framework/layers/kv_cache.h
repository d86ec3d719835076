// KvCache: keys and values of the tokens that a causal transformer has seen, so that the next token costs one token's
// work (Shazeer, arXiv 1911.02150, section 2.3).
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "framework/autograd/step_context.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Of a batch of samples, each of its own length. While a KvScope lives, the model's layers take the tokens at hand,
/// [samples, T, ...], for those behind what each sample has: positions count on, and attention layers add their keys
/// and values. Where samples have different numbers of tokens at hand, they are padded at the end, and advance() says
/// how many count.
class KvCache {
 public:
  /// capacity: most tokens of a sample. Throws Error for numbers below 1.
  KvCache(Index samples, Index capacity);
  Index samples() const { return static_cast<Index>(lengths_.size()); }  ///< rows of the batch
  Index capacity() const { return capacity_; }                           ///< most tokens of a sample
  const std::vector<Index>& lengths() const { return lengths_; }         ///< tokens of each sample so far
  bool empty() const;                                                    ///< no sample has tokens
  /// lengths() as i64 [samples], on the device: positions of each sample's first token at hand.
  Tensor starts(Device = cpu()) const;
  /// Positions of T tokens at hand, i64 [samples, T], of padding no more than capacity - 1.
  Tensor positions(Index tokens, Device = cpu()) const;
  /// Writes k and v [samples, T, G, D] behind each sample's tokens in what `layer` has, and returns all of it,
  /// [samples, capacity, G, D], shared: behind a sample's own end there is anything, which causal queries at their
  /// positions (starts()) do not see. layer: a number for each layer of a model, as its key. Throws Error beyond the
  /// capacity.
  std::pair<Tensor, Tensor> append(std::uint64_t layer, const Tensor& k, const Tensor& v);
  /// After the model has run: counts[n] of the tokens at hand count from now on.
  void advance(const std::vector<Index>& counts);
  void advance(Index count);  ///< the same for each sample
  /// Forgets tokens: sample n keeps its first lengths[n].
  void truncate(const std::vector<Index>& lengths);

 private:
  std::vector<Index> lengths_;
  Index capacity_;
  std::map<std::uint64_t, std::pair<Tensor, Tensor>> layers_;  // k, v: [samples, capacity, G, D]
};

/// Makes a cache that of the layers called on this thread, while it lives.
class KvScope {
 public:
  explicit KvScope(KvCache& cache) : scope_(with(cache)) {}

 private:
  static StepContext with(KvCache& cache) {
    StepContext context = StepContext::current();
    context.kv_cache = &cache;
    return context;
  }
  StepScope scope_;
};

}  // namespace trireme

// KvCache: keys and values of the tokens that a causal transformer has processed, so that the next token costs one
// token's work (Shazeer, arXiv 1911.02150, section 2.3).
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "framework/autograd/step_context.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// The cache of a batch of samples with separate lengths. While a KvScope lives, the model's layers append the current
/// tokens [samples, T, ...] to each sample's earlier tokens: positions continue, and attention layers append keys and
/// values. If samples have different numbers of current tokens, pad them at the end; advance() says how many count.
class KvCache {
 public:
  /// capacity: maximum number of tokens per sample. Throws Error for numbers below 1.
  KvCache(Index samples, Index capacity);
  Index samples() const { return static_cast<Index>(lengths_.size()); }  ///< rows of the batch
  Index capacity() const { return capacity_; }                           ///< maximum number of tokens per sample
  const std::vector<Index>& lengths() const { return lengths_; }         ///< number of tokens of each sample so far
  bool empty() const;                                                    ///< whether no sample has tokens
  /// lengths() as i64 [samples] on the device: the position of each sample's first current token.
  Tensor starts(Device = cpu()) const;
  /// Positions of T current tokens, i64 [samples, T]; for padding at most capacity - 1.
  Tensor positions(Index tokens, Device = cpu()) const;
  /// Appends k and v [samples, T, G, D] to each sample's tokens of `layer`, and returns all of them, [samples,
  /// capacity, G, D], shared. Contents after a sample's end are undefined; causal queries at their positions (starts())
  /// do not attend to them. layer: a number for each layer of a model, such as its key. If ranks divide the heads, each
  /// rank keeps its own; keys and values that ranks divide otherwise are gathered, and each rank keeps all of them.
  /// Throws Error beyond the capacity.
  std::pair<Tensor, Tensor> append(std::uint64_t layer, const Tensor& k, const Tensor& v);
  /// Call it after the model has run: counts[n] of sample n's current tokens become part of the cache.
  void advance(const std::vector<Index>& counts);
  void advance(Index count);  ///< the same count for each sample
  /// Removes tokens: sample n keeps its first lengths[n].
  void truncate(const std::vector<Index>& lengths);

 private:
  std::vector<Index> lengths_;
  Index capacity_;
  std::map<std::uint64_t, std::pair<Tensor, Tensor>> layers_;  // k, v: [samples, capacity, G, D]
};

/// While it lives, layers that are called on this thread use the cache.
class KvScope {
 public:
  /// cache must outlive the scope.
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

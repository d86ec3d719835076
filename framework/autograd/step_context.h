// StepContext: the surroundings of a forward and backward: who sums with whom, what is cached, how batch norm is
// computed. Thread-local and scoped (StepScope): Step sets one around the model, Inference around an evaluation.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "framework/autograd/batch_norm_stats.h"
#include "framework/autograd/norm_ranks.h"
#include "framework/autograd/tape.h"
#include "framework/tensor/batch.h"

namespace trireme {

class InferenceCache;  // framework/layers/inference_cache.h
class KvCache;         // framework/layers/kv_cache.h

/// The k-th of m contiguous shares [begin, end) of n rows; the first n % m of them have one row more. So a global batch
/// is cut into micro-batches, and each of these into what the ranks take.
inline std::pair<Index, Index> share(Index n, int k, int m) {
  const Index each = n / m, extra = n % m, begin = k * each + std::min<Index>(k, extra);
  return {begin, begin + each + (k < extra ? 1 : 0)};
}

struct StepContext {
  BatchContext batch = {};   ///< of tensors that carry none; training = false here holds for all
  bool recomputing = false;  ///< this forward ran before: running statistics stay where they are
  Tensor step_at = {};       ///< i64 [1] on the model's device: read in step's place by kernels when they run; or none
  /// Labels of the global batch that count for nothing, which a Step's ranks have added up (Loss::ignored). None: a
  /// loss counts those at hand.
  std::optional<double> ignored = {};
  /// A loss is being computed, for its gradient or not: a mean over a part of the global batch's rows is refused.
  bool in_loss = false;
  /// Those over whose rows of a micro-batch batch norm takes its statistics. Null: the rows at hand.
  std::shared_ptr<const NormRanks> norm = {};
  /// Where batch norm leaves the statistics of a micro-batch. Null: it moves its running statistics at once.
  BatchNormStats* moments = nullptr;
  /// Where layers keep what they make of weights that do not change (see Inference). Null: nothing is kept.
  InferenceCache* frozen = nullptr;
  /// Keys and values of the tokens before, to which attention layers add those of the tokens at hand. Null: the tokens
  /// at hand are all there are.
  KvCache* kv_cache = nullptr;

  /// The innermost StepContext of this thread (a default one when none is set).
  static const StepContext& current();
};

/// Sets StepContext::current() for the thread that makes it, while it lives. Scopes of one thread may end in any order:
/// the youngest that lives is current. It must end on the thread that made it.
class StepScope {
 public:
  /// Without batch.calls, random layers count their calls anew within this scope.
  explicit StepScope(StepContext pass);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  friend struct StepContext;
  StepContext pass_;
  StepScope *before_, *after_ = nullptr;
};

}  // namespace trireme

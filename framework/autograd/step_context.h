// StepContext: the settings of a forward and backward: ranks for batch norm, caches, the batch of tensors without one.
// Thread-local and scoped by StepScope. A Step sets one for the model, an Inference for an evaluation.
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

/// The k-th of m contiguous shares [begin, end) of n rows; the first n % m shares have one row more. A global batch is
/// cut into micro-batches this way, and each micro-batch into the ranks' shares.
inline std::pair<Index, Index> share(Index n, int k, int m) {
  const Index each = n / m, extra = n % m, begin = k * each + std::min<Index>(k, extra);
  return {begin, begin + each + (k < extra ? 1 : 0)};
}

struct StepContext {
  BatchContext batch = {};   ///< context of tensors that have none; training = false here applies to all tensors
  bool recomputing = false;  ///< this forward is a recomputation: running statistics are not updated
  /// i64 [1] on the model's device: kernels read it instead of batch.step when they run; undefined: not used.
  Tensor step_at = {};
  /// Number of ignored labels in the global batch, summed over a Step's ranks (Loss::ignored). None: a loss counts the
  /// ignored labels of its own tensor.
  std::optional<double> ignored = {};
  /// A loss is being computed, with or without gradient: a mean over part of the global batch's rows throws Error.
  bool in_loss = false;
  /// The loss takes predictions whose classes ranks divide (Loss::cross_entropy()), so a model does not gather them.
  bool divided_outputs = false;
  /// Ranks over whose rows of a micro-batch batch norm computes statistics. Null: the rows of this rank.
  std::shared_ptr<const NormRanks> norm = {};
  /// Collects batch norm's statistics of a micro-batch. Null: running statistics are updated at once.
  BatchNormStats* norm_stats = nullptr;
  /// Cache for data derived from constant weights (see Inference). Null: nothing is cached.
  InferenceCache* inference_cache = nullptr;
  /// Keys and values of earlier tokens, to which attention layers append those of the current tokens. Null: there are
  /// no earlier tokens.
  KvCache* kv_cache = nullptr;

  /// The innermost StepContext of this thread (a default one if none is set).
  static const StepContext& current();
};

/// Sets StepContext::current() of the thread that creates it, while it lives. Scopes of a thread may end in any order:
/// the youngest living one is current. A scope must end on the thread that created it.
class StepScope {
 public:
  /// Without batch.calls, random layers count their calls from 0 in this scope.
  explicit StepScope(StepContext context);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  friend struct StepContext;
  StepContext context_;
  StepScope *before_, *after_ = nullptr;
};

}  // namespace trireme

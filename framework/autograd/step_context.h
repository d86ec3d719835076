// StepContext: the settings of a forward and backward: the batch, the ranks of batch norm's statistics, caches. Layers
// and ops read the current one of their thread. A Step sets it for a training step, an Inference for an evaluation.
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

/// The settings of a forward and backward.
struct StepContext {
  /// The batch of tensors that have no BatchContext of their own. training = false here applies to all tensors.
  BatchContext batch = {};
  double loss_scale = 1;     ///< backward starts from it, not from 1; with_loss() does so, too
  bool recomputing = false;  ///< this forward is a recomputation: running statistics are not updated
  /// i64 [1] on the model's device: the number of the step, for captured graphs. Kernels read it when they run, in
  /// place of batch.step. Undefined: not used.
  Tensor step_at = {};
  /// Number of ignored labels in the global batch, summed over a Step's ranks (Loss::ignored). None: a loss counts the
  /// ignored labels of its target only.
  std::optional<double> ignored = {};
  /// True while a loss is computed: ops then refuse a mean over a part of the global batch's rows.
  bool in_loss = false;
  /// True: the loss takes predictions that are divided over ranks (Loss::cross_entropy()), so the model does not gather
  /// them.
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

/// While a scope lives, its context is StepContext::current() of the thread that created it. Of several living scopes
/// the youngest counts; they may end in any order, on that thread.
class StepScope {
 public:
  /// If context.batch.calls is null, the scope gets new counters: random layers count their calls from 0.
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

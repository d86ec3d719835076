// BatchContext: the properties of a batch: sample ids of its rows, rows of the global batch, the step. The Loader
// attaches it to x and y, Step to the model's inputs, and ops pass it from inputs to results. Dropout and losses read
// it from their tensor, so that any number of batches can be in use at once.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// Counts the calls of each random layer per batch, so that a layer that is called twice draws two masks.
class RandomCalls {
 public:
  RandomCalls();
  /// A copy continues from other's counts, independently of it.
  RandomCalls(const RandomCalls& other);
  ~RandomCalls();
  /// Returns the number of earlier calls of this layer, and counts this call. Thread-safe.
  std::uint64_t next(std::uint64_t layer);

 private:
  using Calls = std::map<std::uint64_t, std::uint64_t>;
  Calls now() const;
  mutable std::mutex mutex_;
  Calls calls_;
};

/// The rows of each global batch that a rank takes. The batch is cut into `microbatches` micro-batches, and each of
/// these into `size` shares; the rank takes share `rank` of each. The Loader deals them, and a Step expects its own.
struct RankShare {
  RankShare() = default;
  /// Not checked here: a Step throws Error for a share other than its own.
  RankShare(int rank, int size, int microbatches = 1) : rank(rank), size(size), microbatches(microbatches) {}
  /// The share of a rank of a World: one share per rank.
  template <class W>
  requires requires(const W& w) {
    w.rank();
    w.size();
  }
  RankShare(const W& world) : rank(world.rank()), size(world.size()) {}  // NOLINT: implicit
  /// All three members are equal.
  bool operator==(const RankShare&) const = default;
  int rank = 0,          ///< index of the share, in [0, size)
      size = 1;          ///< number of shares of each micro-batch: data-parallel ranks
  int microbatches = 1;  ///< micro-batches of a global batch (gradient accumulation, pipelines), at least 1
};

struct BatchContext {
  bool training = true;    ///< mode of dropout and batch norm
  std::uint64_t seed = 0;  ///< seed of the run
  std::uint64_t step = 0;  ///< optimizer steps, or batches, before this batch
  Tensor samples = {};     ///< i64 [rows]: sample ids of the rows; undefined: 0, 1, 2, ...
  Index global_batch = 0;  ///< rows of the global batch, by which losses divide; 0: the rows of this tensor
  /// Rows of each of this rank's micro-batches, as the Loader cut the global batch; empty: not cut.
  std::vector<Index> microbatches = {};
  /// The share of the global batch that this tensor's rows are; none: unknown.
  std::optional<RankShare> share = {};
  /// True for a slice of a share: the number of rows that all ranks have in such slices is unknown.
  bool sliced = false;
  /// For batches joined along the first axis: the rows and the context of each. Slicing a part restores its context.
  std::vector<std::pair<Index, std::shared_ptr<const BatchContext>>> joined = {};
  /// Counts of random layers. Null: a new count for each scope or batch that gets this context.
  std::shared_ptr<RandomCalls> calls = {};

  /// Whether other ranks or other micro-batches have more rows of the global batch.
  bool is_share() const { return sliced || (samples && global_batch > 0 && samples.numel() != global_batch); }
  /// Whether samples has one id per row of x [rows, ...].
  bool names_rows_of(const Tensor& x) const { return samples && x.rank() > 0 && samples.numel() == x.dim(0); }
};
/// Shared and immutable; null: the tensor belongs to no batch.
using BatchPtr = std::shared_ptr<const BatchContext>;

/// The context of the first tensor that has one, else that of the enclosing StepContext
/// (framework/autograd/step_context.h).
const BatchContext& batch_of(const Tensor& x, const Tensor& other = {});
/// Whether layers with input x are in training mode: both its batch and the enclosing scope must be (see Inference).
bool is_training(const Tensor& x);

/// The context of rows [begin, end) of a tensor with context `batch`. Random layers continue from the whole's counts,
/// independently of it: slices that are used in turn draw the same masks as the whole. Null for null.
BatchPtr slice_batch(const BatchPtr& batch, Index rows, Index begin, Index end);
/// The context of rows ids[0], ids[1], ... (i64) of a tensor with context `batch`: the same batch if each row comes
/// once, else a slice of it. Null for null.
BatchPtr take_batch(const BatchPtr& batch, Index rows, const Tensor& ids);
/// The context of parts joined along the first axis, as one batch of all rows. A sample id that is repeated in a later
/// part draws other masks there. If a part has no context with ids for its rows, the result has no ids and is a
/// separate batch. Null if no part has a context.
BatchPtr join_batches(const std::vector<Tensor>& parts);
/// The same context with independent counts of random layers from now on: for running a layer again.
BatchPtr replay_batch(const BatchPtr& batch);

}  // namespace trireme

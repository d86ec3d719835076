// BatchContext: what a batch says of itself: whose rows these are, how many the global batch has, which step it is. The
// Loader gives it to the x and y that it hands out, Step to what it feeds the model; ops hand it on from their inputs
// to their results. So dropout and losses read it off the tensor at hand, and any number of batches can be in use at a
// time.
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

/// How often each random layer has drawn for a batch: a layer that is called twice draws two masks.
class RandomCalls {
 public:
  RandomCalls();
  /// A copy counts on from other's counts, apart from it.
  RandomCalls(const RandomCalls& other);
  ~RandomCalls();
  /// The calls of this layer before this one. Threads may share a batch.
  std::uint64_t next(std::uint64_t layer);

 private:
  using Calls = std::map<std::uint64_t, std::uint64_t>;
  Calls now() const;
  mutable std::mutex mutex_;
  Calls calls_;
};

/// Which rows of each global batch a rank takes: share `rank` of `size`, of each of `microbatches` micro-batches that
/// the batch is cut into first. A Loader deals it, a Step expects it.
struct RankShare {
  RankShare() = default;
  /// Not checked: a Step refuses a share other than its own.
  RankShare(int rank, int size, int microbatches = 1) : rank(rank), size(size), microbatches(microbatches) {}
  /// One share for each rank of a World.
  template <class W>
  requires requires(const W& w) {
    w.rank();
    w.size();
  }
  RankShare(const W& world) : rank(world.rank()), size(world.size()) {}  // NOLINT: implicit
  /// All three members agree.
  bool operator==(const RankShare&) const = default;
  int rank = 0,          ///< index of the share, in [0, size)
      size = 1;          ///< shares of each micro-batch: the data-parallel ranks
  int microbatches = 1;  ///< micro-batches of a global batch (gradient accumulation, pipelines), at least 1
};

struct BatchContext {
  bool training = true;    ///< dropout and batch norm behave accordingly
  std::uint64_t seed = 0;  ///< of the run
  std::uint64_t step = 0;  ///< optimizer steps, or batches, before this one
  Tensor samples = {};     ///< i64 [rows]: sample ids of the rows at hand; undefined: 0, 1, 2, ...
  Index global_batch = 0;  ///< rows of the global batch; losses divide by it. 0: the rows at hand
  /// Rows of each micro-batch at hand, as the loader cut the global batch; empty: nobody has cut it.
  std::vector<Index> microbatches = {};
  /// The share of the global batch that the rows at hand are; none: nobody has said.
  std::optional<RankShare> share = {};
  /// A slice of some rows of a share: how many rows all ranks have in theirs is not known.
  bool sliced = false;
  /// Of batches joined along the first axis: the rows of each, and its own context; slicing them apart gives it back.
  std::vector<std::pair<Index, std::shared_ptr<const BatchContext>>> joined = {};
  /// Null: drawn anew with each scope or batch that gets this context.
  std::shared_ptr<RandomCalls> calls = {};

  /// Whether other ranks, or other micro-batches, have more rows of the global batch.
  bool is_share() const { return sliced || (samples && global_batch > 0 && samples.numel() != global_batch); }
  /// Whether x's rows, [rows, ...], are those that samples names.
  bool names_rows_of(const Tensor& x) const { return samples && x.rank() > 0 && samples.numel() == x.dim(0); }
};
/// Shared and immutable; null: the tensor comes from no batch.
using BatchPtr = std::shared_ptr<const BatchContext>;

/// The context of the first of the tensors that carries one, else the enclosing StepContext's
/// (framework/autograd/step_context.h).
const BatchContext& batch_of(const Tensor& x, const Tensor& other = {});
/// Whether layers that see x train: its batch does, and so does what encloses the call (see Inference).
bool is_training(const Tensor& x);

/// The context of rows [begin, end) of a tensor that carries `batch`. Its random layers go on from where the whole's
/// are, apart from it: slices that are used in turn draw what the whole would draw. Null for null.
BatchPtr slice_batch(const BatchPtr& batch, Index rows, Index begin, Index end);
/// The context of rows ids[0], ids[1], ... (i64) of a tensor that carries `batch`: of the same batch where each row
/// comes once, else of a slice of it. Null for null.
BatchPtr take_batch(const BatchPtr& batch, Index rows, const Tensor& ids);
/// The context of parts that are joined along the first axis: all rows, over one batch that has them all. A sample id
/// that comes again in a later part draws other masks there. Where a part carries no context that names its rows, the
/// rows have no ids and are a batch of their own. Null when no part carries one.
BatchPtr join_batches(const std::vector<Tensor>& parts);
/// The same context with random layers' calls counted apart from now on: for running a layer again.
BatchPtr replay_batch(const BatchPtr& batch);

}  // namespace trireme

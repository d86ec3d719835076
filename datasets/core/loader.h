// Loader: batches of a dataset for one rank. The order is a function of (seed, epoch) only; the global batch, or each
// of its micro-batches, is cut into contiguous shares, one per rank, whose sizes differ by at most one sample. No
// sample is dropped or repeated. The last global batch may be short; a rank may then get no rows.
#pragma once
#include <memory>
#include <tuple>
#include <vector>

#include "datasets/core/dataset.h"
#include "datasets/core/tensors.h"
#include "framework/autograd/step_context.h"

namespace trireme {

/// The samples of an epoch (torch.utils.data.Sampler).
struct Sampler {
  Index size = 0;  ///< samples per epoch
  /// Returns `size` ids. It must depend on its arguments only, so that all ranks, and a resumed run, get the same ids.
  std::function<std::vector<std::int64_t>(std::uint64_t seed, Index epoch)> order = {};
};
/// WeightedRandomSampler with replacement: draws `size` ids per epoch, id i with probability weights[i] / sum of
/// weights. Throws Error for a negative weight or a sum of 0.
Sampler weighted_sampler(const std::vector<double>& weights, Index size);

/// Options of a Loader (torch.utils.data.DataLoader and DistributedSampler).
struct LoaderOptions {
  Index batch = 32;          ///< samples of a global batch, over all ranks; at least 1
  bool shuffle = false;      ///< a new permutation per epoch (epoch_order); false: by id
  std::uint64_t seed = 0;    ///< random seed of order, augmentation and BatchContext::seed
  Index epoch = 0;           ///< epoch of the first pass, from 0; see set_epoch
  RankShare shard = {};      ///< this rank's share of each global batch
  int workers = 1;           ///< threads that read ahead, at most `prefetch`; 0: read in the caller
  int prefetch = 2;          ///< batches read ahead, per pass; at least 1 unless workers is 0
  DType dtype = DType::f32;  ///< type of x: f32, f64, bf16, f16; u8: unscaled pixels
  Device device = cpu();     ///< device of x and y; pixels are copied there as u8
  bool training = true;      ///< value of BatchContext::training
  Index start_batch = 0;     ///< skip this many global batches of the first epoch iterated (resume)
  Collate collate = {};      ///< makes batches of tensor data sets; null: TensorSource::batch(), which stacks samples
  /// The ids of an epoch, in order; ids may repeat or be missing. Null: epoch_order().
  Sampler sampler = {};
  Index start_sample = 0;  ///< alternatively skip this many samples: the rest of the epoch is cut into batches
};

/// One rank's rows of a global batch; `auto& [x, y]` binds its x and y.
struct Batch {
  Tensor x;  ///< LoaderOptions::dtype [rows, shape...], on LoaderOptions::device; rows may be 0. For a tensor data set:
             ///< its types, shapes and fields (Tensor::at())
  Tensor y;  ///< labels, i64 [rows], on the device of x; for a tensor data set: its y
  Tensor samples;                        ///< ids in the data set, i64 [rows], on the host
  Index index = 0;                       ///< number of the global batch in the epoch
  Index global = 0;                      ///< rows of the global batch, over all ranks
  RankShare share = {};                  ///< this rank's share of the global batch
  std::vector<Index> microbatches = {};  ///< rows of each micro-batch (RankShare::microbatches > 1)
  Index rows() const { return samples ? samples.numel() : x ? x.dim(0) : 0; }  ///< rows of this rank
};
/// The tuple protocol: get<0> is x, get<1> is y, so that `for (auto& [x, y] : loader)` compiles.
template <std::size_t I>
auto& get(Batch& b) {
  return std::get<I>(std::tie(b.x, b.y));
}
/// As above, for a const batch.
template <std::size_t I>
auto& get(const Batch& b) {
  return std::get<I>(std::tie(b.x, b.y));
}

/// The order of an epoch: a permutation of 0..n-1 from (seed, epoch) (Fisher-Yates on Philox), or the
/// identity.
std::vector<std::int64_t> epoch_order(Index n, bool shuffle, std::uint64_t seed, Index epoch);

/// Iterates over the batches of a data set for one rank.
class Loader {
 public:
  /// Throws Error for an empty data set, more ranks than samples, a shard whose rank does not exist, more micro-batches
  /// than samples in a batch, and an option outside its range.
  Loader(Dataset, LoaderOptions = {});
  ~Loader();
  Loader(Loader&&) noexcept;  ///< iterators in use stay valid

  Index batches() const;                 ///< global batches per epoch
  const LoaderOptions& options() const;  ///< the options of the constructor
  void set_epoch(Index epoch);           ///< begin() starts this epoch; each full pass adds one

  /// Input iterator. x and y of a Batch carry its BatchContext (samples, global batch, share, training, seed, and
  /// step = epoch * batches() + Batch::index), so a hand-written loop needs nothing more. Any number of iterators may
  /// be in use at a time.
  class Iterator {
   public:
    Batch& operator*() const;                      ///< the current batch, valid until ++
    Batch* operator->() const { return &**this; }  ///< members of the current batch
    /// Waits for the next batch. Throws the error of reading one of its samples; the pass then ends.
    Iterator& operator++();
    bool operator==(const Iterator& other) const;  ///< meaningful only for end()
    struct State;
    std::shared_ptr<State> state;  ///< state of the pass, shared by copies; null: end()
  };
  /// A pass over batch shares that become known during the epoch (StepTickets::granted()), in that order, with
  /// read-ahead like an Iterator. Batches are numbered from the position where begin() would start. Movable; for one
  /// thread.
  class Pass {
   public:
    /// Appends this share of a batch to the pass.
    void add(Index batch, const RankShare& share);
    bool done() const;  ///< whether next() has returned all added shares
    /// Waits for the next batch, which is valid until the next call or the end of the pass. Throws Error if done(), and
    /// the error of reading one of its samples.
    Batch& next();
    std::shared_ptr<Iterator::State> state;  ///< state of the pass
  };
  Pass pass();  ///< starts an empty Pass over the current epoch

  Iterator begin();  ///< starts a pass over the current epoch and waits for its first batch
  Iterator end();    ///< the end of any pass

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme

template <>
struct std::tuple_size<trireme::Batch> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, trireme::Batch> {
  using type = trireme::Tensor;
};

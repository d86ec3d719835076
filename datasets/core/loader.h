// Loader: batches of a dataset for one rank. The order is a function of (seed, epoch) only; the global batch, or each
// of its micro-batches, is cut into contiguous shares, one per rank, that differ by at most one sample. No sample is
// dropped or repeated; the last global batch may be short, and may leave a rank with no row.
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
  Index size = 0;  ///< of an epoch
  /// size ids: a function of its arguments alone, so that all ranks, and a resumed run, get the same.
  std::function<std::vector<std::int64_t>(std::uint64_t seed, Index epoch)> order = {};
};
/// WeightedRandomSampler with replacement: id i comes with probability weights[i] / their sum, size times an epoch.
/// Throws Error for weights below 0 or without a sum.
Sampler weighted_sampler(const std::vector<double>& weights, Index size);

/// Options of a Loader (torch.utils.data.DataLoader and DistributedSampler).
struct LoaderOptions {
  Index batch = 32;          ///< samples of a global batch, over all ranks; at least 1
  bool shuffle = false;      ///< a new permutation per epoch (epoch_order); false: by id
  std::uint64_t seed = 0;    ///< of the order, of augmentation and of BatchContext::seed
  Index epoch = 0;           ///< of the first pass, from 0; see set_epoch
  RankShare shard = {};      ///< this rank's of each global batch
  int workers = 1;           ///< threads that read ahead, at most `prefetch`; 0: read in the caller
  int prefetch = 2;          ///< batches read ahead, per pass; at least 1 unless workers is 0
  DType dtype = DType::f32;  ///< of x: f32, f64, bf16, f16; u8: the pixels as they are
  Device device = cpu();     ///< where x and y are handed out; pixels travel there as bytes
  bool training = true;      ///< BatchContext::training of the batches
  Index start_batch = 0;     ///< skip this many global batches of the first epoch iterated (resume)
  Collate collate = {};      ///< of data sets of tensors; null: TensorSource::batch(), which stacks them
  /// Which samples an epoch has, in order, by ids that may come more than once or not at all; null: epoch_order().
  Sampler sampler = {};
  Index start_sample = 0;  ///< or so many samples: what is left of the epoch is cut into batches from there
};

/// One rank's rows of a global batch; `auto& [x, y]` binds its x and y.
struct Batch {
  Tensor x;              ///< LoaderOptions::dtype [rows, shape...], on LoaderOptions::device; rows may be 0. Of a data
                         ///< set of tensors: of its types and shapes, with its fields (Tensor::at())
  Tensor y;              ///< labels, i64 [rows], beside x; of a data set of tensors: its y
  Tensor samples;        ///< ids in the data set, i64 [rows], on the host
  Index index = 0;       ///< of the global batch in the epoch
  Index global = 0;      ///< rows of the global batch, over all ranks
  RankShare share = {};  ///< of its rows that these are
  std::vector<Index> microbatches = {};  ///< rows of each micro-batch (RankShare::microbatches > 1)
  Index rows() const { return samples ? samples.numel() : x ? x.dim(0) : 0; }  ///< of this rank
};
/// The tuple protocol: get<0> is x, get<1> is y, so that `for (auto& [x, y] : loader)` compiles.
template <std::size_t I>
auto& get(Batch& b) {
  return std::get<I>(std::tie(b.x, b.y));
}
/// Of a constant batch: x and y are constant Tensors.
template <std::size_t I>
auto& get(const Batch& b) {
  return std::get<I>(std::tie(b.x, b.y));
}

/// The order of an epoch: a permutation of 0..n-1 from (seed, epoch) (Fisher-Yates on Philox), or the
/// identity.
std::vector<std::int64_t> epoch_order(Index n, bool shuffle, std::uint64_t seed, Index epoch);

class Loader {
 public:
  /// Throws Error for an empty dataset, more ranks than samples, a shard that is none of its ranks', more micro-batches
  /// than samples in a batch, and an option out of its range.
  Loader(Dataset, LoaderOptions = {});
  ~Loader();
  Loader(Loader&&) noexcept;  ///< iterators in use stay valid

  Index batches() const;                 ///< global batches per epoch
  const LoaderOptions& options() const;  ///< as they were given
  void set_epoch(Index epoch);           ///< begin() starts this epoch; each full pass adds one

  /// Input iterator. x and y of a Batch carry its BatchContext (samples, global batch, share, training, seed, and
  /// step = epoch * batches() + Batch::index), so a hand-written loop needs nothing more, and any number of
  /// iterators may be in use at a time.
  class Iterator {
   public:
    Batch& operator*() const;                      ///< the batch at hand, until ++
    Batch* operator->() const { return &**this; }  ///< its members
    /// Waits for the next batch, on the device and of the type asked for. Throws what reading a sample of it threw; the
    /// pass then ends.
    Iterator& operator++();
    bool operator==(const Iterator& other) const;  ///< only meaningful against end()
    struct State;
    std::shared_ptr<State> state;  ///< of the pass, shared by copies; null: end()
  };
  /// A pass over shares of batches of the epoch at hand that become known as it goes (Step::granted()), in their order;
  /// they are read ahead as those of an Iterator. Batches count from where begin() would start. Moves; is in use by one
  /// thread.
  class Pass {
   public:
    /// The share of the batch is to be handed out behind those that were added before.
    void add(Index batch, const RankShare& share);
    bool done() const;  ///< all that was added has been handed out
    /// Waits for the next batch; it is valid until the next call, or the end of the pass. Throws Error where done(),
    /// and what reading a sample of it threw.
    Batch& next();
    std::shared_ptr<Iterator::State> state;  ///< of the pass
  };
  Pass pass();  ///< of nothing yet

  Iterator begin();  ///< starts a pass over the epoch at hand and waits for its first batch
  Iterator end();    ///< behind the last batch of any pass

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

// Loader: batches of a dataset for one rank. The order is a function of (seed, epoch) only; the global batch, or each
// of its micro-batches, is cut into contiguous shares, one per rank, that differ by at most one sample. No sample is
// dropped or repeated; the last global batch may be short, and may leave a rank with no row.
#pragma once
#include <memory>
#include <tuple>
#include <vector>

#include "datasets/core/dataset.h"
#include "framework/autograd/step_context.h"

namespace trireme {

struct LoaderOptions {
  Index batch = 32;  ///< the global batch
  bool shuffle = false;
  std::uint64_t seed = 0;
  Index epoch = 0;           ///< see set_epoch
  RankShare shard = {};      ///< ours of each global batch
  int workers = 1;           ///< threads that read ahead; 0: read in the caller
  int prefetch = 2;          ///< batches read ahead, per loader
  DType dtype = DType::f32;  ///< of x: f32, f64, bf16, f16; u8: the pixels as they are
  Device device = cpu();     ///< where x and y are handed out; pixels travel there as bytes
  bool training = true;      ///< BatchContext::training of the batches
  Index start_batch = 0;     ///< skip this many global batches of the first epoch iterated (resume)
  Index start_sample = 0;    ///< or so many samples: what is left of the epoch is cut into batches from there
};

struct Batch {
  Tensor x;                        ///< [rows, shape...]; rows may be 0
  Tensor y;                        ///< i64 [rows]
  Tensor samples;                  ///< i64 [rows], ids
  Index index = 0;                 ///< of the global batch in the epoch
  Index global = 0;                ///< rows of the global batch
  std::vector<Index> micros = {};  ///< rows of each micro-batch (RankShare::micros > 1)
  Index rows() const { return y ? y.numel() : 0; }
};
// for (auto& [x, y] : loader)
template <std::size_t I>
auto& get(Batch& b) {
  return std::get<I>(std::tie(b.x, b.y));
}
template <std::size_t I>
auto& get(const Batch& b) {
  return std::get<I>(std::tie(b.x, b.y));
}

/// The order of an epoch: a permutation of 0..n-1 from (seed, epoch) (Fisher-Yates on Philox), or the
/// identity.
std::vector<std::int64_t> epoch_order(Index n, bool shuffle, std::uint64_t seed, Index epoch);

class Loader {
 public:
  /// Throws Error for an empty dataset, a batch < 1, a bad shard.
  Loader(Dataset, LoaderOptions = {});
  ~Loader();
  Loader(Loader&&) noexcept;

  Index batches() const;  ///< global batches per epoch
  const LoaderOptions& options() const;
  void set_epoch(Index epoch);  ///< begin() starts this epoch; each full pass adds one

  /// Input iterator. x and y of a Batch carry its BatchContext (samples, global batch, share, training, seed, and
  /// step = batches delivered so far in all epochs), so a hand-written loop needs nothing more, and any number of
  /// iterators may be in use at a time.
  class Iterator {
   public:
    Batch& operator*() const;
    Batch* operator->() const { return &**this; }
    Iterator& operator++();
    bool operator==(const Iterator& other) const;  ///< only meaningful against end()
    struct State;
    std::shared_ptr<State> state;
  };
  Iterator begin();
  Iterator end();

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

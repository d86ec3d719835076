// Loaders with random options: each sample once, in the order of the epoch, whoever reads it.
#include <fmt/format.h>

#include <map>
#include <set>

#include "tests/parallel/sweep/sweep.h"

namespace trireme::test {

std::string sweep_loader(RandomChoice dice) {
  const Index size = dice.between(1, 70);
  const int ranks = static_cast<int>(dice.between(1, std::min<Index>(size, 6))),
            microbatches = static_cast<int>(dice.between(1, 5));
  LoaderOptions o{.batch = dice.between(microbatches, 20),
                  .shuffle = dice.chance(70),
                  .seed = static_cast<std::uint64_t>(dice.between(0, 1000)),
                  .epoch = dice.between(0, 3),
                  .workers = static_cast<int>(dice.between(0, 3)),
                  .prefetch = static_cast<int>(dice.between(1, 5)),
                  .dtype = dice.of({DType::f32, DType::f64, DType::bf16, DType::u8})};
  const Index batches = (size + o.batch - 1) / o.batch;
  o.start_batch = dice.between(0, batches - 1);
  const std::string what = fmt::format("{} samples, batch {}, {} ranks, micro {}, workers {}, prefetch {}, start {}",
                                       size, o.batch, ranks, microbatches, o.workers, o.prefetch, o.start_batch);
  const auto order = epoch_order(size, o.shuffle, o.seed, o.epoch);
  const Dataset source(std::make_unique<Noise>(size, Shape{2, 3, 1}));
  // By batch and micro-batch: the samples, rank after rank.
  std::map<std::pair<Index, int>, std::vector<std::int64_t>> seen;
  for (int rank = 0; rank < ranks; ++rank) {
    o.shard = {rank, ranks, microbatches};
    Loader loader(source, o);
    for (auto& batch : loader) {
      const Index whole_batch = std::min(o.batch, size - batch.index * o.batch);
      check(batch.global == whole_batch, "sweep", "{}: batch {} has {} rows, not {}", what, batch.index, batch.global,
            whole_batch);
      Index at = 0;
      const auto ids = batch.samples.to_vector(), labels = batch.y.to_vector(), pixels = batch.x.to_vector();
      const auto cut = batch.microbatches.empty() ? std::vector<Index>{batch.rows()} : batch.microbatches;
      for (std::size_t m = 0; m < cut.size(); ++m)
        for (Index i = 0; i < cut[m]; ++i, ++at) {
          const auto id = static_cast<std::int64_t>(ids.at(static_cast<std::size_t>(at)));
          seen[{batch.index, static_cast<int>(m)}].push_back(id);
          std::vector<std::uint8_t> expected(6);
          const auto label = source->read(id, expected, {});
          check(label == static_cast<std::int64_t>(labels[static_cast<std::size_t>(at)]), "sweep", "{}: label of {}",
                what, id);
          if (o.dtype != DType::u8) continue;
          for (std::size_t p = 0; p < 6; ++p)
            check(pixels[static_cast<std::size_t>(at) * 6 + p] == expected[p], "sweep", "{}: pixels of {}", what, id);
        }
      check(at == batch.rows(), "sweep", "{}: micro-batches of {} rows in {}", what, at, batch.rows());
    }
  }
  std::vector<std::int64_t> all;
  for (auto& [place, ids] : seen) all.insert(all.end(), ids.begin(), ids.end());
  const std::vector<std::int64_t> expected(order.begin() + o.start_batch * o.batch, order.end());
  check(all == expected, "sweep", "{}: other samples than the epoch's, or in another order", what);
  return "each sample once";
}

}  // namespace trireme::test

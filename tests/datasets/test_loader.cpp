#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "datasets/core/loader.h"
#include "datasets/formats/mnist.h"
#include "datasets/formats/synthetic.h"
#include "framework/layers/inference.h"
#include "tests/support/catch.h"

using namespace trireme;
using trireme::test::contains;

namespace {

/// Sample id's pixels are id + 0, id + 1, ...; its label is id % 7. Counts reads, and may fail at one id.
class Counting final : public DatasetSource {
 public:
  explicit Counting(Index size, Shape shape = {2, 2, 1}, Index broken = -1)
      : size_(size), shape_(shape), broken_(broken) {}
  std::string name() const override { return "counting"; }
  Index size() const override { return size_; }
  Shape shape() const override { return shape_; }
  Index classes() const override { return 7; }
  PixelScale scale() const override {
    return shape_[-1] == 3 ? PixelScale{{0.5f, 0.25f, 0}, {1, 2, 4}} : PixelScale{{0.1307f}, {0.3081f}};
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override {
    check(id != broken_, "counting", "sample {} is broken", id);
    ++reads;
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(static_cast<std::size_t>(id) + i);
    return id % 7;
  }
  mutable std::atomic<Index> reads = 0;

 private:
  Index size_;
  Shape shape_;
  Index broken_;
};

Dataset counting(Index size, Index broken = -1) { return std::make_unique<Counting>(size, Shape{2, 2, 1}, broken); }

std::vector<std::int64_t> ids(const Tensor& t) { return {t.data<std::int64_t>(), t.data<std::int64_t>() + t.numel()}; }

/// The ids of one pass, batch by batch.
std::vector<std::vector<std::int64_t>> pass(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  for (Batch& batch : loader) batches.push_back(ids(batch.samples));
  return batches;
}

}  // namespace

TEST_CASE("loader: any number of ranks and workers reads the same global batches") {
  for (bool shuffle : {false, true}) {
    LoaderOptions options{.batch = 50, .shuffle = shuffle, .seed = 3, .epoch = 2, .workers = 0};
    Loader alone(counting(1003), options);
    const auto whole = pass(alone);
    REQUIRE(whole.size() == 21);
    CHECK(alone.batches() == 21);
    CHECK(whole.back().size() == 3);
    std::vector<std::int64_t> seen;
    for (const auto& batch : whole) seen.insert(seen.end(), batch.begin(), batch.end());
    CHECK(seen == epoch_order(1003, shuffle, 3, 2));

    for (int ranks : {1, 2, 3, 4, 7})
      for (int workers : {0, 1, 3}) {
        std::vector<std::vector<std::int64_t>> joined(whole.size());
        for (int rank = 0; rank < ranks; ++rank) {
          options.shard = {rank, ranks}, options.workers = workers, options.prefetch = 4;
          Loader loader(counting(1003), options);
          Index index = 0;
          for (Batch& batch : loader) {
            REQUIRE(batch.index == index++);
            auto& to = joined[static_cast<std::size_t>(batch.index)];
            const auto mine = ids(batch.samples);
            to.insert(to.end(), mine.begin(), mine.end());
            REQUIRE(batch.global == std::ssize(whole[static_cast<std::size_t>(batch.index)]));
            REQUIRE((batch.rows() == batch.global / ranks || batch.rows() == batch.global / ranks + 1));
            REQUIRE(batch.x.shape() == Shape{batch.rows(), 2, 2, 1});
          }
          REQUIRE(index == 21);
        }
        CHECK(joined == whole);
      }
  }
}

TEST_CASE("loader: micro-batches are cut from the global batch, and ranks share each of them") {
  LoaderOptions options{.batch = 50, .shuffle = true, .seed = 3, .workers = 0};
  Loader alone(counting(103), options);
  const auto whole = pass(alone);
  for (int ranks : {1, 2, 3})
    for (int microbatches : {1, 2, 4, 50}) {
      std::vector<std::vector<std::vector<std::int64_t>>> parts(whole.size(),
                                                                std::vector<std::vector<std::int64_t>>(microbatches));
      for (int rank = 0; rank < ranks; ++rank) {
        options.shard = {rank, ranks, microbatches};
        Loader loader(counting(103), options);
        for (Batch& batch : loader) {
          const auto mine = ids(batch.samples);
          REQUIRE(batch.x.batch()->microbatches == batch.microbatches);
          REQUIRE(std::ssize(batch.microbatches) == (microbatches > 1 ? microbatches : 0));
          Index at = 0;
          for (int k = 0; k < microbatches; ++k) {
            const Index rows = microbatches > 1 ? batch.microbatches[static_cast<std::size_t>(k)] : batch.rows();
            auto& to = parts[static_cast<std::size_t>(batch.index)][static_cast<std::size_t>(k)];
            to.insert(to.end(), mine.begin() + at, mine.begin() + at + rows);
            at += rows;
          }
          REQUIRE(at == batch.rows());
        }
      }
      for (std::size_t b = 0; b < whole.size(); ++b) {
        std::vector<std::int64_t> joined;
        for (int k = 0; k < microbatches; ++k) {
          const auto [begin, end] = share(std::ssize(whole[b]), k, microbatches);
          CHECK(std::ssize(parts[b][static_cast<std::size_t>(k)]) == end - begin);
          for (auto id : parts[b][static_cast<std::size_t>(k)]) joined.push_back(id);
        }
        CHECK(joined == whole[b]);
      }
    }
  options.shard = {0, 1, 51};
  CHECK_THROWS_WITH(Loader(counting(103), options), contains("51 micro-batches of a batch of 50: use at most 50"));
}

TEST_CASE("loader: shares are contiguous and differ by at most one") {
  for (Index n : {0, 1, 3, 49, 50})
    for (int ranks : {1, 2, 3, 4, 7}) {
      Index at = 0, least = n, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [begin, end] = share(n, rank, ranks);
        CHECK(begin == at);
        at = end, least = std::min(least, end - begin), most = std::max(most, end - begin);
      }
      CHECK(at == n);
      CHECK(most - least <= 1);
    }
}

TEST_CASE("loader: the order is a permutation that depends on seed and epoch") {
  auto order = epoch_order(1003, true, 5, 1);
  CHECK(order == epoch_order(1003, true, 5, 1));
  CHECK(order != epoch_order(1003, true, 5, 2));
  CHECK(order != epoch_order(1003, true, 6, 1));
  std::sort(order.begin(), order.end());
  CHECK(order == epoch_order(1003, false, 5, 1));
  CHECK(epoch_order(1, true, 0, 0) == std::vector<std::int64_t>{0});
  CHECK(epoch_order(0, true, 0, 0).empty());

  // Each of the 24 orders of 4 about 1000 times in 24,000: chi-square with 23 degrees of freedom, 1 in 10^5 exceeds 65.
  std::map<std::vector<std::int64_t>, int> seen;
  for (Index epoch = 0; epoch < 24000; ++epoch) ++seen[epoch_order(4, true, 1, epoch)];
  double chi = 0;
  for (const auto& [unused, count] : seen) chi += (count - 1000.0) * (count - 1000.0) / 1000;
  CHECK(seen.size() == 24);
  CHECK(chi < 65);
}

TEST_CASE("loader: epochs go on, and an interrupted one is resumed") {
  const LoaderOptions options{.batch = 4, .shuffle = true, .seed = 9};
  Loader loader(counting(22), options);
  const auto first = pass(loader), second = pass(loader);
  CHECK(first != second);
  loader.set_epoch(0);
  CHECK(pass(loader) == first);
  CHECK(pass(loader) == second);

  for (Index start : {0, 1, 5, 6}) {
    LoaderOptions resume = options;
    resume.epoch = 1, resume.start_batch = start;
    Loader again(counting(22), resume);
    again.set_epoch(1);
    CHECK(pass(again) == std::vector(second.begin() + start, second.end()));
    Loader whole(counting(22), {.batch = 4, .shuffle = true, .seed = 9, .epoch = 2});
    CHECK(pass(again) == pass(whole));
  }
}

TEST_CASE("loader: the rest of an epoch is cut into batches of another size, each sample once") {
  const Index size = 22;
  for (Index batch : {1, 4, 7, 22, 30})
    for (Index start = 0; start <= size; ++start)
      for (int workers : {0, 2}) {
        Loader loader(counting(size), {.batch = batch,
                                       .shuffle = true,
                                       .seed = 9,
                                       .epoch = 1,
                                       .shard = {1, 2},
                                       .workers = workers,
                                       .start_sample = start});
        Loader other(counting(size),
                     {.batch = batch, .shuffle = true, .seed = 9, .epoch = 1, .shard = {0, 2}, .start_sample = start});
        std::vector<std::int64_t> seen;
        Index last = -1;
        auto mine = loader.begin();
        std::vector<std::vector<std::int64_t>> theirs;
        for (Batch& b : other) theirs.push_back(ids(b.samples));
        for (std::size_t k = 0; mine != loader.end(); ++mine, ++k) {
          CHECK(mine->global == std::min(batch, size - start - static_cast<Index>(k) * batch));
          CHECK(mine->index > last);
          last = mine->index;
          REQUIRE(k < theirs.size());
          for (std::int64_t id : theirs[k]) seen.push_back(id);
          for (std::int64_t id : ids(mine->samples)) seen.push_back(id);
        }
        CHECK(last < loader.batches());
        const auto order = epoch_order(size, true, 9, 1);
        CHECK(seen == std::vector(order.begin() + start, order.end()));
      }
}

TEST_CASE("loader: leaving a loop does not end the epoch") {
  Loader loader(counting(40), {.batch = 4, .shuffle = true});
  const auto order = epoch_order(40, true, 0, 0);
  for (int time = 0; time < 2; ++time)
    for (Batch& batch : loader) {
      CHECK(ids(batch.samples) == std::vector(order.begin(), order.begin() + 4));
      break;
    }
}

TEST_CASE("loader: a rank may have no row") {
  Loader loader(counting(9), {.batch = 4, .shard = {3, 4}});
  std::vector<Index> rows;
  for (Batch& batch : loader) {
    rows.push_back(batch.rows());
    CHECK(batch.x.shape() == Shape{batch.rows(), 2, 2, 1});
    CHECK(batch.y.shape() == Shape{batch.rows()});
  }
  CHECK(rows == std::vector<Index>{1, 1, 0});
}

TEST_CASE("loader: pixels become the numbers that torchvision makes of them") {
  const auto expect = [](int value, float mean, float deviation) {
    return (static_cast<float>(value) / 255.0f - mean) / deviation;
  };
  Loader grey(counting(256), {.batch = 256});
  for (auto& [x, y] : grey) {
    const auto* values = x.data<float>();
    for (int i = 0; i < 256; ++i) REQUIRE(values[4 * i + 1] == expect((i + 1) % 256, 0.1307f, 0.3081f));
    REQUIRE(y.data<std::int64_t>()[20] == 6);
  }
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8}) {
    Loader color(std::make_unique<Counting>(5, Shape{2, 3, 3}), {.batch = 5, .dtype = dtype});
    for (auto& [x, y] : color) {
      REQUIRE(x.dtype() == dtype);
      const auto values = x.to_vector();
      const float mean[] = {0.5f, 0.25f, 0}, deviation[] = {1, 2, 4};
      for (int i = 0; i < 5 * 18; ++i) {
        const int pixel = i / 18 + i % 18;
        const double want = dtype == DType::u8 ? pixel : expect(pixel, mean[i % 3], deviation[i % 3]);
        REQUIRE(values[static_cast<std::size_t>(i)] ==
                Approx(want).epsilon(dtype == DType::bf16 ? 4e-3 : 1e-6).margin(1e-7));
      }
    }
  }
}

TEST_CASE("loader: x and y carry what the batch says of itself") {
  Loader loader(counting(10), {.batch = 4, .seed = 77, .epoch = 2, .shard = {1, 2}, .training = true});
  std::vector<std::uint64_t> steps;
  for (Batch& batch : loader) {
    const BatchContext& now = *batch.x.batch();
    CHECK(batch.y.batch() == batch.x.batch());
    steps.push_back(now.step);
    CHECK(ids(now.samples) == ids(batch.samples));
    CHECK(now.global_batch == batch.global);
    CHECK(now.seed == 77);
    CHECK(now.training);
    CHECK((now.share == RankShare{1, 2, 1}));
    // A loop in a loop, as evaluation between steps.
    for (Batch& inner : Loader(counting(6), {.batch = 5, .training = false})) {
      CHECK_FALSE(is_training(inner.x));
      CHECK(inner.x.batch()->global_batch == inner.global);
      CHECK(is_training(batch.x));
      if (batch.index == 1) break;
    }
    const Inference evaluation;
    CHECK_FALSE(is_training(batch.x));
  }
  CHECK(steps == std::vector<std::uint64_t>{6, 7, 8});
  CHECK(StepContext::current().batch.global_batch == 0);
}

TEST_CASE("loader: iterators may be used in any order, each batch by its own size, ids and mode") {
  // The order of creation, use and end is drawn; sums are compared with what each loader gives alone.
  const auto loss_of = [](const Tensor& x) { return mse_loss(x, Tensor::zeros(x.shape())).item(); };
  const auto masked = [](const Tensor& x) { return dropout(x, 0.5, 3).to_vector(); };
  struct StateKind {
    Loader loader;
    std::vector<double> losses, masks;
  };
  const auto make = [&](int k) {
    return LoaderOptions{.batch = 3 + 2 * k,
                         .shuffle = true,
                         .seed = static_cast<std::uint64_t>(k),
                         .workers = k % 2,
                         .training = k != 2};
  };
  const auto see = [&](StateKind& use, const Tensor& x) {
    use.losses.push_back(loss_of(x));
    for (double v : masked(x)) use.masks.push_back(v);
  };
  std::vector<StateKind> alone;
  for (int k = 0; k < 4; ++k) {
    alone.push_back({Loader(counting(11 + k), make(k)), {}, {}});
    for (auto& [x, y] : alone.back().loader) see(alone.back(), x);
  }
  for (std::uint64_t round = 0; round < 30; ++round) {
    const Philox random{mix(round, 99)};
    std::uint64_t drawn = 0;
    const auto below = [&](std::size_t n) { return random(0, drawn++)[0] % n; };
    std::vector<StateKind> mixed;
    std::vector<std::optional<Loader::Iterator>> at(4);
    for (int k = 0; k < 4; ++k) mixed.push_back({Loader(counting(11 + k), make(k)), {}, {}});
    std::vector<std::size_t> live{0, 1, 2, 3};
    while (!live.empty()) {
      const std::size_t pick = below(live.size()), k = live[pick];
      if (!at[k])
        at[k] = mixed[k].loader.begin();
      else
        ++*at[k];
      if (*at[k] == mixed[k].loader.end()) {
        at[k].reset();
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
        continue;
      }
      see(mixed[k], (*at[k])->x);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK(mixed[k].losses == alone[k].losses);
      CHECK(mixed[k].masks == alone[k].masks);
    }
  }
}

TEST_CASE("loader: what a worker throws arrives in the place of its batch") {
  for (int workers : {0, 1, 3}) {
    Loader loader(counting(40, 17), {.batch = 4, .workers = workers, .prefetch = 5});
    int batches = 0;
    CHECK_THROWS_WITH(
        [&] {
          for ([[maybe_unused]] Batch& batch : loader) ++batches;
        }(),
        contains("counting: sample 17 is broken"));
    CHECK(batches == 4);
  }
  CHECK_THROWS_WITH(Loader(counting(40, 0)).begin(), contains("sample 0 is broken"));
}

TEST_CASE("loader: it reads ahead, but no further than asked, and can be dropped at any moment") {
  {
    auto source = std::make_unique<Counting>(1000);
    const std::atomic<Index>& reads = source->reads;
    Loader loader(std::move(source), {.batch = 10, .workers = 2, .prefetch = 3});
    auto first = loader.begin();
    while (reads < 40) std::this_thread::yield();  // one handed out, three ahead
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(reads == 40);
  }
  for (int i = 0; i < 50; ++i) {
    Loader loader(counting(1000), {.batch = 10, .workers = 3, .prefetch = 3});
    int n = 0;
    for ([[maybe_unused]] Batch& batch : loader)
      if (++n > i % 7) break;
  }
  // An iterator keeps what it needs.
  auto loader = std::make_unique<Loader>(counting(12), LoaderOptions{.batch = 4});
  auto it = loader->begin();
  Loader moved = std::move(*loader);
  loader.reset();
  CHECK(ids((++it)->samples) == std::vector<std::int64_t>{4, 5, 6, 7});
}

TEST_CASE("loader: what cannot be is refused") {
  CHECK_THROWS_WITH(Loader(counting(5), {.batch = 0}), contains("loader: batch is 0, it must be at least 1"));
  CHECK_THROWS_WITH(Loader(counting(0)), contains("loader: dataset counting is empty"));
  CHECK_THROWS_WITH(Loader(Dataset{}), contains("there is no dataset"));
  CHECK_THROWS_WITH(Loader(counting(5), {.shard = {0, 6}}),
                    contains("6 ranks share the 5 samples of counting: use at most 5"));
  CHECK_THROWS_WITH(Loader(counting(5), {.shard = {2, 2}}), contains("rank 2 of 2"));
  CHECK_THROWS_WITH(Loader(counting(5), {.workers = -1}), contains("workers is -1"));
  CHECK_THROWS_WITH(Loader(counting(5), {.prefetch = 0}), contains("prefetch is 0"));
  CHECK_THROWS_WITH(Loader(counting(5), {.start_batch = 2}), contains("start_batch is 2, an epoch has 1 batches"));
  CHECK_THROWS_WITH(Loader(counting(5), {.start_sample = 6}), contains("start_sample is 6, an epoch has 5 samples"));
  CHECK_THROWS_WITH(Loader(counting(5), {.start_batch = 1, .start_sample = 1}), contains("give one of them"));
  CHECK_THROWS_WITH(Loader(counting(5), {.dtype = DType::i32}), contains("floating type"));
}

TEST_CASE("loader: a pass hands out the shares that it is told of, in their order, as they become known") {
  const Index size = 103, batch = 20, start = 3;
  const auto order = epoch_order(size, true, 5, 4);
  for (int workers : {0, 1, 3}) {
    Loader loader(counting(size),
                  {.batch = batch, .shuffle = true, .seed = 5, .epoch = 4, .workers = workers, .start_sample = start});
    Loader::Pass pass = loader.pass();
    CHECK(pass.done());
    CHECK_THROWS_WITH(pass.next(), contains("no batch is left that was added"));
    CHECK_THROWS_WITH(pass.add(5, {0, 3}), contains("batch 5 of a pass of 5"));
    std::vector<std::int64_t> seen;
    std::vector<std::pair<Index, RankShare>> told;
    for (int t = 0; t < 15; ++t) told.push_back({(t * 7 % 15) / 3, {t * 7 % 3, 3}});
    std::size_t taken = 0;
    for (std::size_t t = 0; taken < told.size();) {
      for (std::size_t more = 0; t < told.size() && more < 1 + taken % 3; ++more, ++t)
        pass.add(told[t].first, told[t].second);
      while (!pass.done()) {
        const Batch& b = pass.next();
        const auto& [index, mine] = told[taken++];
        const auto [begin, end] = share(std::min(batch, size - start - index * batch), mine.rank, mine.size);
        const auto from = order.begin() + start + index * batch;
        REQUIRE(ids(b.samples) == std::vector(from + begin, from + end));
        REQUIRE(b.share == mine);
        REQUIRE(b.x.batch()->share == mine);
        REQUIRE(b.index == (start + index * batch) / batch);
        for (std::int64_t id : ids(b.samples)) seen.push_back(id);
      }
    }
    std::ranges::sort(seen);
    std::vector<std::int64_t> rest(order.begin() + start, order.end());
    std::ranges::sort(rest);
    CHECK(seen == rest);
  }
}

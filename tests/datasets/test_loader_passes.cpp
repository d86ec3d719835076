// Passes over a data set: epochs one after another, resumed, interrupted, in other orders.
#include <algorithm>
#include <optional>
#include <thread>

#include "tests/datasets/counting.h"
#include "tests/support/catch.h"

namespace test_loader_passes {

using namespace trireme;
using namespace trireme::test;

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
    resume.epoch = 1;
    resume.start_batch = start;
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
    CHECK_ERROR(
        [&] {
          for ([[maybe_unused]] Batch& batch : loader) ++batches;
        }(),
        usage, "counting", 17);
    CHECK(batches == 4);
  }
  CHECK_ERROR(Loader(counting(40, 0)).begin(), usage, "counting", 0);
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

TEST_CASE("loader: a pass hands out the shares that it is told of, in their order, as they become known") {
  const Index size = 103, batch = 20, start = 3;
  const auto order = epoch_order(size, true, 5, 4);
  for (int workers : {0, 1, 3}) {
    Loader loader(counting(size),
                  {.batch = batch, .shuffle = true, .seed = 5, .epoch = 4, .workers = workers, .start_sample = start});
    Loader::Pass pass = loader.pass();
    CHECK(pass.done());
    CHECK_ERROR(pass.next(), usage, "loader");
    CHECK_ERROR(pass.add(5, {0, 3}), usage, "loader", 5);
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

}  // namespace test_loader_passes

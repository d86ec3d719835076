#include <algorithm>
#include <map>

#include "framework/layers/inference.h"
#include "tests/datasets/counting.h"
#include "tests/support/catch.h"

namespace test_loader {

using namespace trireme;
using namespace trireme::test;

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
          options.shard = {rank, ranks};
          options.workers = workers;
          options.prefetch = 4;
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
  CHECK_ERROR(Loader(counting(103), options), usage, 50, 51);
}

TEST_CASE("loader: shares are contiguous and differ by at most one") {
  for (Index n : {0, 1, 3, 49, 50})
    for (int ranks : {1, 2, 3, 4, 7}) {
      Index at = 0, least = n, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [begin, end] = share(n, rank, ranks);
        CHECK(begin == at);
        at = end;
        least = std::min(least, end - begin);
        most = std::max(most, end - begin);
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

TEST_CASE("loader: what cannot be is refused") {
  CHECK_ERROR(Loader(counting(5), {.batch = 0}), usage, 0, 1);
  CHECK_ERROR(Loader(counting(0)), data, "loader", "counting");
  CHECK_ERROR(Loader(Dataset{}), usage, "loader");
  CHECK_ERROR(Loader(counting(5), {.shard = {0, 6}}), usage, 5, "counting", 6);
  CHECK_ERROR(Loader(counting(5), {.shard = {2, 2}}), usage, "loader", 2);
  CHECK_ERROR(Loader(counting(5), {.workers = -1}), usage, "loader", -1);
  CHECK_ERROR(Loader(counting(5), {.prefetch = 0}), usage, "loader", 0);
  CHECK_ERROR(Loader(counting(5), {.start_batch = 2}), usage, 2, 1, "start_batch");
  CHECK_ERROR(Loader(counting(5), {.start_sample = 6}), usage, 6, 5, "start_sample");
  CHECK_ERROR(Loader(counting(5), {.start_batch = 1, .start_sample = 1}), usage, "loader", 1);
  CHECK_ERROR(Loader(counting(5), {.dtype = DType::i32}), usage, "loader", "i32");
}

}  // namespace test_loader

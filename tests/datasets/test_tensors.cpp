// Data sets of tensors: rows, functions, files, combinations; their batches over ranks, samplers, padding, resume.
#include "datasets/core/tensors.h"

#include <cstring>

#include "datasets/core/loader.h"
#include "datasets/formats/synthetic.h"
#include "framework/io/foreign/npy.h"
#include "framework/io/safetensors.h"
#include "framework/layers/init.h"
#include "framework/ops/ops.h"
#include "framework/tensor/create.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_tensors {

using namespace trireme;
using test::contains;
using Values = std::vector<double>;

namespace {

/// Sample i: x [2] and a field "mask" [3], y [1].
const Tensor features = normal({23, 2}, 0, 1, 1), mask = arange(23 * 3).reshape({23, 3}),
             targets = normal({23, 1}, 0, 1, 2);
Dataset rows() { return TensorDataset(features.with("mask", mask), targets); }

/// All that the loaders of so many ranks hand out in an epoch, by sample id.
std::map<Index, std::vector<Values>> epoch(const Dataset& data, int ranks, LoaderOptions options) {
  std::map<Index, std::vector<Values>> all;
  for (int r = 0; r < ranks; ++r) {
    options.shard = RankShare(r, ranks);
    for (Batch& b : Loader(data, options)) {
      const auto ids = b.samples.to_vector<Index>();
      CHECK(b.rows() == std::ssize(ids));
      CHECK(b.x.at("mask").batch() == b.x.batch());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto at = static_cast<Index>(i);
        all[ids[i]].push_back(concat({b.x.view_rows(at, at + 1).reshape({2}).to(DType::f64),
                                      b.x.at("mask").view_rows(at, at + 1).reshape({3}).to(DType::f64),
                                      b.y.view_rows(at, at + 1).reshape({1}).to(DType::f64)},
                                     0)
                                  .to_vector());
      }
    }
  }
  return all;
}
Values row(Index i) {
  const auto x = features.view_rows(i, i + 1).to_vector(), m = mask.view_rows(i, i + 1).to_vector(),
             y = targets.view_rows(i, i + 1).to_vector();
  return {x[0], x[1], m[0], m[1], m[2], y[0]};
}

}  // namespace

TEST_CASE(
    "every row of a tensor data set comes once an epoch, on any number of ranks, from rows, functions and caches") {
  const Dataset by_function = FunctionDataset(23, [](Index id, const AugmentKey&) { return sample_of(rows(), id); });
  for (const Dataset& data :
       {rows(), by_function, cache(by_function), concat_datasets({subset(rows(), {0, 1, 2}), subset(rows(), [] {
                                                                    std::vector<Index> rest;
                                                                    for (Index i = 3; i < 23; ++i) rest.push_back(i);
                                                                    return rest;
                                                                  }())})})
    for (const int ranks : {1, 2, 3, 7})
      for (const int workers : {0, 2}) {
        INFO(data->name() << " on " << ranks << ", workers " << workers);
        const auto all = epoch(data, ranks, {.batch = 8, .shuffle = true, .seed = 5, .workers = workers});
        REQUIRE(all.size() == 23);
        for (const auto& [id, found] : all) CHECK(found == std::vector<Values>{row(id)});
      }
}

TEST_CASE("samples are mapped, zipped and interleaved by id") {
  const Dataset doubled = map_samples(rows(), [](Sample s, Index id, const AugmentKey&) {
    return Sample{s.x * 2 + static_cast<double>(id), s.y};
  });
  CHECK(sample_of(doubled, 3).x.to_vector() == (features.rows(3, 4).reshape({2}) * 2 + 3).to_vector());
  const Dataset zipped = zip_datasets(TensorDataset(features, targets), {{"other", TensorDataset(targets, features)}});
  const Sample s = sample_of(zipped, 4);
  CHECK(s.x.at("other").to_vector() == targets.rows(4, 5).to_vector());
  CHECK(s.y.at("other").to_vector() == features.rows(4, 5).to_vector());
  const Dataset two = interleave({TensorDataset(arange(2)), TensorDataset(arange(3) + 10)});
  Values order;
  for (Index i = 0; i < two->size(); ++i) order.push_back(sample_of(two, i).x.item());
  CHECK(order == Values{0, 10, 1, 11, 0, 12});
  CHECK_ERROR(TensorDataset(features, targets.rows(0, 2)), usage, "[23, 2]", "[2, 1]");
  CHECK_ERROR(sample_of(rows(), 23), usage, 23, 0);
  CHECK_ERROR(subset(rows(), {23}), usage, "subset", 23);
  CHECK_ERROR(zip_datasets(rows(), {{"a", two}}), usage, 23, 6);
}

TEST_CASE("pictures as tensors: the bits of the pictures' loader, through every combination") {
  const PixelScale scale{{0.1f, 0.2f, 0.3f}, {0.5f, 1, 2}};
  const Dataset all = with_scale(Synthetic({.size = 23, .shape = {4, 5, 3}, .classes = 3}), scale);
  std::vector<Index> ids(23);
  for (Index i = 0; i < 23; ++i) ids[static_cast<std::size_t>(i)] = i;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8}) {
    const Dataset tensors = as_tensors(all, dtype);
    CHECK(tensors->name() == all->name());
    CHECK(tensors->classes() == 3);
    CHECK(tensors->shape() == all->shape());
    CHECK(tensors->scale().std == scale.std);
    CHECK(sample_of(tensors, 2).x.shape() == Shape{4, 5, 3});
    CHECK(sample_of(tensors, 2).y.shape() == Shape{});
    CHECK(tensors->tensors()->batch({}).x.shape() == Shape{0, 4, 5, 3});
    const auto same = [](Sample s, Index, const AugmentKey&) { return s; };
    for (const Dataset& data :
         {tensors, map_samples(tensors, same), subset(tensors, ids), concat_datasets({tensors, tensors}),
          zip_datasets(tensors, {{"again", tensors}}), interleave({tensors}), cache(tensors)})
      for (const int ranks : {1, 3})
        for (int rank = 0; rank < ranks; ++rank) {
          const LoaderOptions options{.batch = 6, .shard = {rank, ranks}, .workers = rank, .dtype = dtype};
          INFO(data->name() << " of " << name_of(dtype) << ", rank " << rank << " of " << ranks);
          CHECK(data->classes() == 3);
          Loader expected(all, options), found(data, options);
          auto b = found.begin();
          for (const Batch& e : expected) {
            // The last batch is longer where there are more samples.
            REQUIRE(b->rows() >= e.rows());
            const auto bytes = static_cast<std::size_t>(e.x.view().bytes());
            CHECK(b->x.dtype() == dtype);
            if (e.index < 3) {
              CHECK(b->x.shape() == e.x.shape());
              CHECK(std::memcmp(b->x.data<std::byte>(), e.x.data<std::byte>(), bytes) == 0);
              CHECK(b->y.to_vector<Index>() == e.y.to_vector<Index>());
            }
            ++b;
          }
        }
  }
  CHECK_ERROR(as_tensors(rows()), usage, "as_tensors", "tensors");
  CHECK_ERROR(as_tensors({}), usage, "as_tensors");
  CHECK_ERROR(as_tensors(all, DType::i32), usage, "loader", "i32");
  CHECK_ERROR(sample_of(as_tensors(all), 23), usage, 23, 0);
}

TEST_CASE("sequences are padded to the longest of their batch") {
  const Dataset lines = FunctionDataset(5, [](Index id, const AugmentKey&) {
    return Sample{arange(id + 1), Tensor::scalar(static_cast<double>(id % 2), DType::i64)};
  });
  std::vector<Values> batches, lengths;
  for (Batch& b : Loader(lines, {.batch = 2, .collate = pad_to_longest(-1)})) {
    batches.push_back(b.x.to_vector());
    lengths.push_back(b.x.at("length").to_vector());
  }
  CHECK(batches == std::vector<Values>{{0, -1, 0, 1}, {0, 1, 2, -1, 0, 1, 2, 3}, {0, 1, 2, 3, 4}});
  CHECK(lengths == std::vector<Values>{{1, 2}, {3, 4}, {5}});
  Loader plain(lines, {.batch = 2});
  CHECK_ERROR(plain.begin(), usage, "[1]", "[2]");
}

TEST_CASE("a sampler says which samples an epoch has, the same on every rank and after a resume") {
  Values weights(23, 1);
  weights[4] = 20;
  weights[7] = 0;
  const Sampler sampler = weighted_sampler(weights, 2000);
  const auto ids = [&](int rank, int ranks, Index start) {
    std::vector<Index> all;
    for (Batch& b :
         Loader(rows(),
                {.batch = 50, .seed = 3, .shard = RankShare(rank, ranks), .start_batch = start, .sampler = sampler}))
      for (const Index id : b.samples.to_vector<Index>()) all.push_back(id);
    return all;
  };
  const auto whole = ids(0, 1, 0);
  REQUIRE(whole.size() == 2000);
  CHECK(std::ranges::count(whole, 7) == 0);
  const double share = static_cast<double>(std::ranges::count(whole, 4)) / 2000, expected = 20.0 / 41;
  CHECK(std::abs(share - expected) < 5 * std::sqrt(expected * (1 - expected) / 2000));
  const auto later = ids(0, 1, 13);
  CHECK(std::equal(later.begin(), later.end(), whole.begin() + 13 * 50, whole.end()));
  auto both = ids(0, 2, 0);
  const auto second = ids(1, 2, 0);
  both.insert(both.end(), second.begin(), second.end());
  auto sorted = whole;
  std::ranges::sort(both);
  std::ranges::sort(sorted);
  CHECK(both == sorted);
  CHECK_ERROR(weighted_sampler({1, -1}, 3), usage, "weighted_sampler", -1);
  Loader wrong(rows(), {.batch = 2, .sampler = {1, [](std::uint64_t, Index) { return std::vector<Index>{99}; }}});
  CHECK_ERROR(wrong.begin(), usage, 99, 23);
}

TEST_CASE("files are mapped: .npy and safetensors, whose rows are read where they are") {
  test::Temporary folder;
  write_npy(folder / "x.npy", features);
  write_npy(folder / "m.npy", mask);
  write_safetensors(folder / "t.safetensors", {{"y", targets}, {"h", Tensor::zeros({3}, DType::f16)}});
  CHECK(read_npy(folder / "m.npy").to_vector<Index>() == mask.to_vector<Index>());
  const Dataset data = TensorDataset(map_npy(folder / "x.npy").with("mask", map_npy(folder / "m.npy")),
                                     map_safetensors(folder / "t.safetensors", "y"));
  const auto all = epoch(data, 2, {.batch = 5, .shuffle = true});
  for (Index i = 0; i < 23; ++i) CHECK(all.at(i) == std::vector<Values>{row(i)});
  // What is written to a mapped tensor is its own.
  const Tensor mapped = map_npy(folder / "x.npy");
  mapped.copy_from(Tensor::zeros({23, 2}));
  CHECK(mapped.to_vector() == Values(46, 0));
  CHECK(read_npy(folder / "x.npy").to_vector() == features.to_vector());
  CHECK_ERROR(map_safetensors(folder / "t.safetensors", "z"), data, "map_safetensors", "z");
  CHECK_ERROR(map_safetensors(folder / "t.safetensors", "h"), data, "map_safetensors", "h", "F16");
  for (const DType t :
       {DType::f32, DType::f64, DType::f16, DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::boolean})
    for (const Shape& s : {Shape{}, Shape{3}, Shape{2, 0}, Shape{2, 3, 1}}) {
      const Tensor given = Tensor::full(s, 1, t);
      write_npy(folder / "a.npy", given);
      const Tensor back = read_npy(folder / "a.npy");
      CHECK(back.shape() == s);
      CHECK(back.to_vector() == given.to_vector());
      if (t != DType::f16) CHECK(back.dtype() == t);
      if (t != DType::f16 && t != DType::boolean) CHECK(map_npy(folder / "a.npy").to_vector() == given.to_vector());
    }
  CHECK_ERROR(write_npy(folder / "b.npy", Tensor::zeros({1}, DType::bf16)), usage, "npy", "bf16");
}

TEST_CASE("sequences are padded to the longest of the global batch, whoever has it") {
  const Dataset lines = FunctionDataset(23, [](Index id, const AugmentKey&) {
    const Index length = 1 + id * 7 % 11;
    return Sample{Tensor::full({length, 2}, static_cast<double>(id)), Tensor::full({length}, 1)};
  });
  const auto batches = [&](int rank, int ranks, int microbatches) {
    std::map<Index, std::vector<double>> rows;  // by sample: x and y as they are padded
    Loader loader(lines,
                  {.batch = 6, .shuffle = true, .shard = {rank, ranks, microbatches}, .collate = pad_to_longest(-1)});
    for (Batch& b : loader)
      for (Index i = 0; i < b.rows(); ++i) {
        auto& row = rows[b.samples.to_vector<Index>()[static_cast<std::size_t>(i)]];
        row = b.x.rows(i, i + 1).to_vector();
        for (const double v : b.y.rows(i, i + 1).to_vector()) row.push_back(v);
      }
    return rows;
  };
  const auto whole = batches(0, 1, 1);
  CHECK(whole.size() == 23);
  for (const auto& [ranks, microbatches] : {std::pair(2, 1), {3, 1}, {2, 2}, {1, 3}}) {
    std::map<Index, std::vector<double>> together;
    for (int rank = 0; rank < ranks; ++rank) together.merge(batches(rank, ranks, microbatches));
    CHECK(together == whole);
  }
}

TEST_CASE("joined data sets have all classes, y everywhere or nowhere, and are not written through") {
  const auto of = [](Index classes) { return TensorDataset(ones({4, 2}), Tensor::zeros({4}, DType::i64), classes); };
  CHECK(concat_datasets({of(2), of(7)})->classes() == 7);
  CHECK(interleave({of(2), of(7), of(3)})->classes() == 7);
  const Dataset mixed = concat_datasets({TensorDataset(ones({2, 2})), of(2)});
  CHECK_ERROR(mixed->tensors()->batch(std::vector<std::int64_t>{0, 3}), data, "stack_samples");
  const Dataset noisy = map_samples(of(2), [](Sample s, Index, const AugmentKey&) {
    s.x.data<float>()[0] += 1;
    return s;
  });
  for (int time = 0; time < 2; ++time) CHECK(sample_of(noisy, 1).x.to_vector() == std::vector<double>{2, 1});
  const Sampler rare = weighted_sampler({5e-324, 0, 0}, 100);
  for (const Index id : rare.order(1, 0)) CHECK(id == 0);
  CHECK_ERROR(weighted_sampler({1e308, 1e308}, 10), usage, "weighted_sampler", "inf");
}

}  // namespace test_tensors

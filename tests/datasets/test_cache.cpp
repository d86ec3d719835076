// Caches in files: samples come back bit for bit, from files that are whole and of the data set, or not at all.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "datasets/core/loader.h"
#include "datasets/formats/synthetic.h"
#include "datasets/images/transforms.h"
#include "framework/io/safetensors.h"
#include "framework/ops/ops.h"
#include "framework/tensor/create.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_cache {

using namespace trireme;
using test::contains;
using test::slurp;
using test::spill;

namespace {

TransformRandom numbers(Index of_case) { return {AugmentKey{.seed = 78}, of_case, 0}; }

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8,
                           DType::i16, DType::i32, DType::i64,  DType::u8,  DType::boolean};

/// Any bits of a type: NaNs and subnormal numbers among them.
Tensor random_bits(const Shape& shape, DType dtype, TransformRandom& random) {
  std::vector<std::byte> bytes(checked_bytes("test", shape, dtype));
  for (std::byte& b : bytes) b = std::byte(random.below(dtype == DType::boolean ? 2 : 256));
  return Tensor::from_bytes(bytes, shape, dtype);
}
Shape random_shape(TransformRandom& random) {
  Shape shape;
  for (Index rank = random.below(4); rank > 0; --rank) shape.push_back(random.below(5));
  return shape;
}

/// A data set of random types, shapes and fields, with its samples.
struct Case {
  std::vector<Sample> samples;
  Dataset data;
};
Case random_case(TransformRandom& random) {
  std::vector<std::pair<std::string, std::pair<DType, Shape>>> layout;
  const auto add = [&](const std::string& name) {
    layout.push_back({name, {types[random.below(std::ssize(types))], random_shape(random)}});
  };
  add("x");
  if (random.chance(0.7)) add("y");
  for (const std::string of : {"x", "y"})
    for (const std::string field : {".mask", ".a.b", "."})
      if (random.chance(0.3) && (of == "x" || layout.size() > 1)) add(of + field);
  const bool labelled = std::ranges::any_of(layout, [](auto& l) { return l.first == "y"; });
  Case made;
  for (Index n = 1 + random.below(40); n > 0; --n) {
    std::map<std::string, Tensor> t;
    for (const auto& [name, of] : layout) t[name] = random_bits(of.second, of.first, random);
    Sample s{t.at("x"), labelled ? t.at("y") : Tensor()};
    for (const auto& [name, field] : t) {
      Tensor& main = name[0] == 'x' ? s.x : s.y;
      if (name.size() > 1 && main) main = main.with(name.substr(2), field);
    }
    made.samples.push_back(s);
  }
  made.data = FunctionDataset(std::ssize(made.samples), [all = made.samples](Index id, const AugmentKey&) {
    return all[static_cast<std::size_t>(id)];
  });
  return made;
}

bool same(const Tensor& a, const Tensor& b) {
  if (!a || !b) return a.defined() == b.defined();
  const auto bytes = static_cast<std::size_t>(a.view().bytes());
  if (a.shape() != b.shape() || a.dtype() != b.dtype() || a.fields().size() != b.fields().size()) return false;
  for (const auto& [name, field] : a.fields())
    if (!same(field, b.at(name))) return false;
  return bytes == 0 || std::memcmp(a.data<std::byte>(), b.data<std::byte>(), bytes) == 0;
}
bool same(const Sample& a, const Sample& b) { return same(a.x, b.x) && same(a.y, b.y); }

/// Counts what is read of it.
struct Counted {
  std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(0);
  Dataset data;
  explicit Counted(const Dataset& of)
      : data(map_samples(of, [reads = reads](const Sample& s, Index, const AugmentKey&) {
          ++*reads;
          return s;
        })) {}
};
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(folder)) names.push_back(e.path().filename());
  return names;
}
/// Sample i: x [3] of i, y a scalar.
Dataset small(Index size = 9, double add = 0) {
  return FunctionDataset(size, [add](Index id, const AugmentKey&) {
    return Sample{arange(3).to(DType::f32) + static_cast<double>(id) + add,
                  Tensor::scalar(static_cast<double>(id % 2), DType::i64)};
  });
}

}  // namespace

TEST_CASE("samples of any types, shapes and fields come back from a cache file bit for bit") {
  test::Temporary folder;
  for (Index of_case = 0; of_case < 60; ++of_case) {
    TransformRandom random = numbers(of_case);
    const Case c = random_case(random);
    const std::string path = folder / std::to_string(of_case);
    INFO("case " << of_case << ", " << c.samples.size() << " samples");
    const Counted source(c.data);
    for (const bool again : {false, true}) {
      *source.reads = 0;
      const Dataset cached = cache(source.data, path);
      if (again) CHECK(*source.reads == 2);  // the first and the last, to compare
      REQUIRE(cached->size() == std::ssize(c.samples));
      *source.reads = 0;
      std::vector<Sample> whole;
      for (Index id = 0; id < cached->size(); ++id) {
        const Sample& expected = c.samples[static_cast<std::size_t>(id)];
        CHECK(same(sample_of(cached, id, {.seed = 3, .epoch = 4}), expected));
        whole.push_back(expected);
      }
      const Sample stacked = stack_samples(whole);
      std::vector<std::int64_t> ids(whole.size());
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
      CHECK(same(cached->tensors()->batch(ids), stacked));
      CHECK(cached->tensors()->batch({}).x.dim(0) == 0);
      CHECK(*source.reads == 0);
    }
    // It is a safetensors file with the stacked samples, as any reader sees it.
    const SafetensorsReader file(path);
    CHECK(file.header().metadata.at("format") == "trireme cache 1");
    CHECK(file.header().entries.size() ==
          1 + c.samples[0].x.fields().size() + (c.samples[0].y ? 1 + c.samples[0].y.fields().size() : 0));
  }
}

TEST_CASE("a cache of pictures gives the loader the pictures' bits, labels and classes") {
  test::Temporary folder;
  const Dataset pictures = with_scale(Synthetic({.size = 33, .shape = {5, 4, 3}, .classes = 4}), {{0.3f}, {0.7f}});
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8}) {
    const Dataset cached = cache(as_tensors(pictures, dtype), folder / std::string(name_of(dtype)));
    CHECK(cached->name() == "cache of synthetic");
    CHECK(cached->classes() == 4);
    CHECK(cached->shape() == Shape{5, 4, 3});
    const LoaderOptions options{.batch = 7, .shuffle = true, .seed = 2, .shard = {1, 2}, .dtype = dtype};
    Loader expected(pictures, options), found(cached, options);
    auto e = expected.begin();
    int batches = 0;
    for (Batch& b : found) {
      CHECK(same(b.x, e->x));
      CHECK(same(b.y, e->y));
      ++e;
      ++batches;
    }
    CHECK(batches == 5);
  }
}

TEST_CASE("a cache file that is not of the data set, or damaged, is refused by name") {
  test::Temporary folder;
  const std::string path = folder / "c", whole = (cache(small(), path), slurp(path));
  const auto refused = [&](const Dataset& data, const std::string& why) {
    CHECK_ERROR(cache(data, path), data, path, why);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
  };
  refused(small(10), "does not hold 10 samples of x f32 [3], y i64 []");
  refused(small(9, 1), "its sample 0 is not that of function now");
  refused(TensorDataset(arange(9)), "its source is \"function\", expected \"tensors\"");
  const auto changed = [](auto change) {
    return FunctionDataset(9, [change](Index id, const AugmentKey&) { return change(sample_of(small(), id), id); });
  };
  refused(changed([](Sample s, Index) { return Sample{s.x.to(DType::f64), s.y}; }), "samples of x f64 [3], y i64 []");
  refused(changed([](Sample s, Index) { return Sample{s.x.reshape({3, 1}), s.y}; }), "samples of x f32 [3, 1]");
  refused(changed([](Sample s, Index) { return Sample{s.x, {}}; }), "9 samples of x f32 [3]");
  refused(changed([](Sample s, Index) { return Sample{s.x.with("m", s.x), s.y}; }), "x f32 [3], x.m f32 [3], y i64 []");
  refused(changed([](Sample s, Index id) { return Sample{id == 8 ? s.x + 1 : s.x, s.y}; }), "its sample 8 is not that");

  // Cut anywhere, or with a byte of its header changed, it is refused, or no other file (a name in capitals, say).
  for (std::size_t n = 0; n < whole.size(); n += n < 300 ? 1 : 7) {
    spill(path, whole.substr(0, n));
    refused(small(), "is damaged, or no cache of samples");
  }
  spill(path, whole + "x");
  refused(small(), "is damaged, or no cache of samples");
  std::size_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  for (std::size_t at = 0; at < header + 8; ++at) {
    std::string other = whole;
    other[at] = static_cast<char>(other[at] ^ 1);
    spill(path, other);
    try {
      const Dataset found = cache(small(), path);
      for (Index id = 0; id < 9; ++id) CHECK(same(sample_of(found, id), sample_of(small(), id)));
    } catch (const Error& e) { CHECK_THAT(e.what(), contains(path)); }
  }
  write_safetensors(path, {{"x", arange(27).reshape({9, 3})}});
  refused(small(), "its format is nothing, expected trireme cache 1");
  spill(path, std::string(100, 'a'));
  refused(small(), "is damaged, or no cache of samples");

  const Dataset truths = FunctionDataset(3, [](Index, const AugmentKey&) {
    return Sample{Tensor::full({2}, 1, DType::boolean), {}};
  });
  cache(truths, folder / "b");
  std::string bytes = slurp(folder / "b");
  bytes[bytes.size() - 3] = 2;
  spill(folder / "b", bytes);
  CHECK_ERROR(cache(truths, folder / "b"), data, 0, 1);
}

TEST_CASE("samples that one file cannot hold are named") {
  test::Temporary folder;
  const auto refused = [&](auto sample, const std::string& why) {
    CHECK_ERROR(cache(FunctionDataset(300, sample), folder / "c"), data, why);
    CHECK(names_in(folder.path()).empty());
  };
  refused(
      [](Index id, const AugmentKey&) {
        return Sample{Tensor::zeros({id == 290 ? 4 : 3}), {}};
      },
      "sample 290 of function is x f32 [4], the first one x f32 [3]: a file holds samples of one shape");
  refused(
      [](Index id, const AugmentKey&) {
        const Tensor x = Tensor::zeros({2});
        return Sample{id == 7 ? x : x.with("mask", x), {}};
      },
      "sample 7 of function is x f32 [2], the first one x f32 [2], x.mask f32 [2]");
  refused([](Index, const AugmentKey&) { return Sample{{}, arange(2)}; }, "the samples of function have no x");
  CHECK_ERROR(cache(small(0), folder / "c"), data, "function");
  CHECK_ERROR(cache(Synthetic({}), folder / "c"), usage, "synthetic", "as_tensors");
}

TEST_CASE("a cache that cannot be written says where, and leaves nothing behind") {
  test::Temporary folder;
  CHECK_ERROR(cache(small(), folder / "none/c"), file, folder / "none/c");
  CHECK_ERROR(cache(small(), folder.path()), data, folder.path());
  const Dataset broken = FunctionDataset(2000, [](Index id, const AugmentKey&) {
    check(id < 1900, "test", "sample {} cannot be read", id);
    return sample_of(small(2000), id);
  });
  CHECK_ERROR(cache(broken, folder / "c"), usage, 1900);
  CHECK(names_in(folder.path()).empty());

  auto* before = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit little{20000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  std::string message;
  try {
    cache(small(2000), folder / "c");
  } catch (const Error& e) { message = e.what(); }
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, before);
  CHECK_THAT(message, contains(folder / "c") && contains("File too large") && contains("20000 of "));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a process that is killed while it writes a cache leaves no file in its place; several may write at once") {
  test::Temporary folder;
  const std::string path = folder / "c";
  for (const Index last : {0, 700, 1999}) {
    const pid_t child = fork();
    if (child == 0) {
      const Dataset dies = FunctionDataset(2000, [last](Index id, const AugmentKey&) {
        if (id >= last && id > 0) ::kill(::getpid(), SIGKILL);
        return sample_of(small(2000), id);
      });
      try {
        cache(dies, path);
      } catch (...) {}
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    CHECK(!std::filesystem::exists(path));
  }
  std::vector<Dataset> all(4);
  {
    std::vector<std::jthread> ranks;
    for (Dataset& d : all) ranks.emplace_back([&] { d = cache(small(2000), path); });
  }
  for (const Dataset& d : all)
    for (const Index id : {0, 3, 700, 1999}) CHECK(same(sample_of(d, id), sample_of(small(2000), id)));
  // What a program writes to a sample is its own.
  sample_of(all[0], 5).x.copy_from(Tensor::zeros({3}));
  CHECK(same(sample_of(cache(small(2000), path), 5), sample_of(small(2000), 5)));
}

}  // namespace test_cache

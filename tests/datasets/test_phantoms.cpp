// Phantoms: any box is that part of the whole, bit by bit; what a reconstruction by all angles is; crops as data sets.
#include "datasets/volumes/phantoms.h"

#include <sys/resource.h>

#include <set>

#include "datasets/core/loader.h"
#include "datasets/formats/open_dataset.h"
#include "datasets/volumes/crops.h"
#include "datasets/volumes/volume.h"
#include "datasets/volumes/volume_pairs.h"
#include "datasets/volumes/volume_writer.h"
#include "framework/ops/ops.h"
#include "tests/datasets/volumes.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_phantoms {

using namespace trireme;
using test::contains;
using test::random_number;
using test::spill;

namespace {

Box all_of(const Phantom& p) { return {{0, 0, 0}, p.size()}; }
/// Box of [D, H, W] cut out of the whole.
std::vector<double> part(const Tensor& whole, const Box& box) {
  Shape shape = whole.shape();
  Box wide = box;
  shape.push_back(1);
  wide.at.push_back(0);
  wide.size.push_back(1);
  return test::cut(whole.to_vector(), shape, wide);
}
double mean_of(const Tensor& t) { return mean(t.to(DType::f64)).item(); }

/// Volumes and targets in folders; a target is the input modulo 3.
void write_pair(const std::string& folder, const std::string& name, const Shape& array, std::mt19937_64& dice,
                const char* type = "uint8", const std::string& end = ".npy") {
  for (const char* of : {"/inputs", "/targets"}) std::filesystem::create_directories(folder + of);
  VolumeWriter input(folder + "/inputs/" + name + ".npy", {array, "uint8"});
  VolumeWriter target(folder + "/targets/" + name + end, {array, type});
  std::vector<double> values(static_cast<std::size_t>(array.numel())), labels = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(dice() % 256);
    labels[i] = std::fmod(values[i], 3);
  }
  input.write({{0, 0, 0, 0}, input.shape()}, Tensor::of(values, array, DType::f64));
  input.finish();
  target.write({{0, 0, 0, 0}, target.shape()}, Tensor::of(labels, array, DType::f64));
  target.finish();
}

}  // namespace

TEST_CASE("a box of a phantom is that part of the whole") {
  const auto seed = GENERATE(1, 2, 3, 4, 5, 6);
  std::mt19937_64 dice(static_cast<std::uint64_t>(seed));
  PhantomOptions o{.classes = random_number(dice, 2, 5),
                   .smallest = 1.5,
                   .largest = 6,
                   .angles = seed % 3 == 0 ? 0 : random_number(dice, 1, 40),
                   .missing = static_cast<double>(random_number(dice, 0, 120)),
                   .noise = 0.1,
                   .seed = dice()};
  o.size = seed % 2 ? Shape{random_number(dice, 20, 60), random_number(dice, 20, 60)}
                    : Shape{random_number(dice, 5, 15), random_number(dice, 20, 40), random_number(dice, 20, 40)};
  INFO("seed " << seed);
  const Phantom p(o, 3), same(o, 3), other(o, 4);
  const Tensor image = p.image(all_of(p)), labels = p.labels(all_of(p)), clean = p.clean(all_of(p));
  CHECK(p.ellipsoids() > 1);
  for (int i = 0; i < 10; ++i) {
    const Box box = test::random_part(dice, p.size());
    CHECK(same.image(box).to_vector() == part(image, box));
    CHECK(same.labels(box).to_vector() == part(labels, box));
    CHECK(same.clean(box).to_vector() == part(clean, box));
  }
  CHECK(other.labels(all_of(p)).to_vector() != labels.to_vector());
  const auto ks = labels.to_vector(), greys = clean.to_vector();
  const double kinds = static_cast<double>(o.classes - 1);
  std::set<double> found(ks.begin(), ks.end());
  CHECK(found.contains(0));
  CHECK(found.size() >= 2);
  CHECK(*found.rbegin() <= kinds);
  for (std::size_t i = 0; i < ks.size(); ++i)
    if (std::abs(greys[i] - ks[i] / kinds) > (ks[i] > 0 ? 0.2500001 / kinds : 0))
      FAIL("grey " << greys[i] << " of label " << ks[i]);
}

TEST_CASE("a phantom's noise is normal, and by all angles it is what it was") {
  PhantomOptions o{.size = {128, 128}, .noise = 0.25, .seed = 5};
  const auto difference = [&] {
    const Phantom p(o);
    return p.image(all_of(p)) - p.clean(all_of(p));
  };
  const Tensor noise = difference();
  CHECK(std::abs(mean_of(noise)) < 4 * 0.25 / 128);
  CHECK(std::abs(mean_of(noise * noise) / 0.0625 - 1) < 0.05);
  CHECK(std::abs(mean_of(noise * noise * noise * noise) / (3 * 0.0625 * 0.0625) - 1) < 0.1);
  o.noise = 0;
  CHECK(mean_of(abs(difference())) == 0);
  // Edges are a voxel wide; few angles and missing ones leave more.
  const auto left = [&](Index angles, double missing) {
    o.angles = angles;
    o.missing = missing;
    return mean_of(square(difference()));
  };
  const double all = left(400, 0), some = left(30, 0), wedge = left(400, 60), most = left(400, 120);
  INFO(all << " " << some << " " << wedge << " " << most);
  CHECK(all < 0.01);
  CHECK(some > 1.2 * all);
  CHECK(wedge > 2 * all);
  CHECK(most > 1.5 * wedge);
  // In the middle of an ellipse, away from edges, all angles give its grey value.
  o = {.size = {96, 96}, .density = 0.001, .smallest = 25, .largest = 25, .angles = 600, .seed = 11};
  const Phantom p(o);
  const auto labels = p.labels(all_of(p)).to_vector(), image = p.image(all_of(p)).to_vector(),
             clean = p.clean(all_of(p)).to_vector();
  int inside = 0;
  double worst = 0;
  for (std::size_t h = 3; h < 93; ++h)
    for (std::size_t w = 3; w < 93; ++w) {
      const auto same = [&](std::size_t dh, std::size_t dw) {
        return labels[(h + dh) * 96 + w + dw] == labels[h * 96 + w] &&
               labels[(h - dh) * 96 + w - dw] == labels[h * 96 + w];
      };
      if (!same(3, 0) || !same(0, 3) || !same(2, 2)) continue;
      ++inside;
      worst = std::max(worst, std::abs(image[h * 96 + w] - clean[h * 96 + w]));
    }
  CHECK(inside > 1000);
  CHECK(worst < 0.05);
  // The slices of an ellipsoid are ellipses.
  o = {.size = {9, 48, 48}, .density = 0.001, .smallest = 8, .largest = 14, .angles = 300, .seed = 2};
  const Phantom solid(o);
  CHECK(solid.ellipsoids() == 1);
  CHECK(mean_of(solid.clean(all_of(solid))) > 0.01);
  CHECK(mean_of(square(solid.image(all_of(solid)) - solid.clean(all_of(solid)))) < 0.01);
}

TEST_CASE("a phantom's image is what projections by the measured angles give, filtered and projected back") {
  const test::Oracle oracle;
  std::string list;
  std::vector<Phantom> phantoms;
  for (const auto& [angles, missing] : {std::pair<Index, double>{120, 0}, {20, 0}, {120, 60}, {60, 130}}) {
    const PhantomOptions o{
        .size = {70, 90}, .smallest = 5, .largest = 12, .angles = angles, .missing = missing, .seed = 4};
    const std::string name = std::to_string(phantoms.size());
    phantoms.emplace_back(o, phantoms.size());
    oracle.put(name + ".clean", phantoms.back().clean(all_of(phantoms.back())).reshape(o.size).to(DType::f64));
    list += fmt::format("{} {} {}\n", name, angles, missing);
  }
  oracle.note("cases.txt", list);
  if (!oracle.run("fbp.py", "", test::Python::oracles)) return;
  for (std::size_t k = 0; k < phantoms.size(); ++k) {
    INFO("picture " << k);
    const Phantom& p = phantoms[k];
    const auto ours = p.image(all_of(p)).to_vector(), clean = p.clean(all_of(p)).to_vector(),
               theirs = oracle.get(std::to_string(k) + ".image");
    double off = 0, a = 0, b = 0, both = 0;  // of artefacts: image less clean
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double x = ours[i] - clean[i], y = theirs[i] - clean[i];
      off += (x - y) * (x - y);
      a += x * x;
      b += y * y;
      both += x * y;
    }
    off = std::sqrt(off / static_cast<double>(ours.size()));
    INFO("off by " << off << ", artefacts alike " << both / std::sqrt(a * b));
    CHECK(off < (k == 1 ? 0.1 : 0.05));  // clean() has edges in steps, which few angles spread
    CHECK(both / std::sqrt(a * b) > (k < 2 ? 0.8 : 0.95));
  }
}

TEST_CASE("phantoms that cannot be") {
  const auto said = [](PhantomOptions o) {
    try {
      (void)Phantom(o);
      return std::string("made");
    } catch (const Error& e) { return test::told(e); }
  };
  CHECK(said({}) == "made");
  CHECK_THAT(said({.size = {3}}), test::mentions("usage", "[3]"));
  CHECK_THAT(said({.size = {3, 0}}), test::mentions("usage", "[3, 0]"));
  CHECK_THAT(said({.classes = 1}), test::mentions("usage", 1));
  CHECK_THAT(said({.density = 0}), test::mentions("usage", "density", 0));
  CHECK_THAT(said({.smallest = 4, .largest = 3}), test::mentions("usage", 4, 3));
  CHECK_THAT(said({.size = {1 << 20, 1 << 20}, .smallest = 1, .largest = 1}), test::mentions("usage", 10000000));
  CHECK_THAT(said({.angles = -1}), test::mentions("usage", "angles", -1));
  CHECK_THAT(said({.missing = 180}), test::mentions("usage", 180));
  CHECK_THAT(said({.noise = -1}), test::mentions("usage", "noise", -1));
  const Phantom p({.size = {8, 8}});
  CHECK_ERROR(p.image({{0, 0, 1}, {1, 8, 8}}), usage, "phantom", "[1, 8, 8]");
  CHECK_ERROR(p.labels({{0, 0}, {8, 8}}), usage, "[0, 0]", "[8, 8]", "[1, 8, 8]");
}

TEST_CASE("crops of phantoms are functions of seed, epoch and id, on any number of ranks") {
  for (const Shape& crop : {Shape{16, 24}, Shape{4, 8, 12}})
    for (const VolumeTask task : {VolumeTask::segment, VolumeTask::denoise}) {
      PhantomsOptions o{.phantom = {.size = {12, 40, 40}, .smallest = 2, .largest = 6, .angles = 12, .noise = 0.1},
                        .phantoms = 3,
                        .crop = crop,
                        .task = task,
                        .samples = 10};
      const Dataset data = Phantoms(o);
      Shape image = crop;
      image.push_back(1);
      CHECK(data->shape() == image);
      CHECK(data->classes() == (task == VolumeTask::segment ? 3 : 0));
      const Sample one = sample_of(data, 4, {.seed = 1, .epoch = 2});
      CHECK(one.x.shape() == image);
      CHECK(one.y.shape() == (task == VolumeTask::segment ? crop : image));
      CHECK(one.y.dtype() == (task == VolumeTask::segment ? DType::i64 : DType::f32));
      CHECK(sample_of(data, 4, {.seed = 1, .epoch = 3}).x.to_vector() != one.x.to_vector());
      std::map<Index, std::vector<double>> alone, shared;
      for (int ranks : {1, 3})
        for (int rank = 0; rank < ranks; ++rank)
          for (Batch& b : Loader(data, {.batch = 4, .shuffle = true, .seed = 1, .epoch = 2, .shard = {rank, ranks}}))
            for (Index i = 0; i < b.rows(); ++i)
              (ranks == 1 ? alone : shared)[b.samples.to_vector<Index>()[static_cast<std::size_t>(i)]] =
                  b.x.rows(i, i + 1).to_vector();
      CHECK(alone == shared);
      CHECK(alone.at(4) == one.x.to_vector());
      o.test = true;
      const Dataset test = Phantoms(o);
      CHECK(sample_of(test, 4, {.seed = 1, .epoch = 2}).x.to_vector() ==
            sample_of(test, 4, {.seed = 2, .epoch = 0}).x.to_vector());
      CHECK(sample_of(test, 4, {.seed = 1, .epoch = 2}).x.to_vector() != one.x.to_vector());
    }
  CHECK_ERROR(Phantoms({.crop = {300, 10}}), usage, "[300, 10]", "[1, 256, 256]");
  CHECK_ERROR(Phantoms({.crop = {10}}), usage, "phantoms", "[10]");
  CHECK_ERROR(Phantoms({.samples = 0}), usage, "phantoms", 0);
  CHECK(open_dataset("phantoms", "test", {.test_samples = 5})->size() == 5);
}

TEST_CASE("crops of pairs of volumes on disk") {
  std::mt19937_64 dice(3);
  const test::Temporary folder;
  write_pair(folder / "train", "a", {6, 20, 24}, dice);
  write_pair(folder / "train", "b", {9, 16, 30}, dice, "int16", ".raw");
  write_pair(folder / "val", "c", {3, 17, 20}, dice);
  for (const Shape& crop : {Shape{16, 12}, Shape{3, 8, 8}}) {
    VolumePairsOptions o{.root = folder.path(), .crop = crop, .classes = 3, .samples = 50};
    const Dataset data = VolumePairs(o);
    CHECK(data->size() == 50);
    CHECK(data->classes() == 3);
    std::set<std::vector<double>> different;
    for (Index id = 0; id < data->size(); ++id) {
      const Sample s = sample_of(data, id, {.seed = 4, .epoch = 1});
      const auto x = s.x.to_vector(), y = s.y.to_vector();
      REQUIRE(x.size() == y.size());
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::fmod(std::round(255 * x[i]), 3) == y[i]);
      different.insert(x);
    }
    CHECK(different.size() > 40);
    o.validation_split = 0.5;
    CHECK(VolumePairs(o)->size() == 50);
    o.validation = true;  // of train/b, in order
    CHECK(VolumePairs(o)->size() == (crop.rank() == 2 ? 9 * 1 * 3 : 3 * 2 * 4));
    o.validation_split = 0.9;
    CHECK(VolumePairs(o)->size() > (crop.rank() == 2 ? 9 * 1 * 3 : 3 * 2 * 4));
    o.validation = false;
    CHECK_ERROR(VolumePairs(o), data, 2, 0.9);
    o.validation_split = 0;
    o.test = true;
    const Dataset test = VolumePairs(o);
    CHECK(test->size() == (crop.rank() == 2 ? 3 * 2 * 2 : 1 * 3 * 3));
    o.test = false;
    o.task = VolumeTask::denoise;
    o.mean = 1;
    o.std = 2;
    const Sample s = sample_of(VolumePairs(o), 0, {.seed = 4, .epoch = 1});
    CHECK(s.y.dtype() == DType::f32);
    CHECK(s.y.shape() == s.x.shape());
    const double x = s.x.to_vector()[5] * 2 + 1;
    CHECK(s.y.to_vector()[5] == (std::fmod(x, 3) - 1) / 2);
  }
  // Test crops have every voxel.
  const Volume c = open_volume(folder / "val/inputs/c.npy");
  const auto values = c.read(c.box(), DType::f64).to_vector();
  const Dataset test = VolumePairs({.root = folder.path(), .test = true, .crop = {3, 17, 20}, .classes = 3, .std = 1});
  CHECK(test->size() == 1);
  CHECK(sample_of(test, 0).x.to_vector() == values);
  CHECK(voxel_scale(*find_voxel_type("int16"), 0, 0).std == 32767);
  CHECK(voxel_scale(*find_voxel_type("float32"), 0, 0).std == 1);
}

TEST_CASE("more volumes than a process may have open files") {
  std::mt19937_64 dice(3);
  const test::Temporary folder;
  for (int i = 0; i < 40; ++i)
    write_pair(folder / "train", std::to_string(i), {5, 6}, dice, "uint8", i % 2 ? ".npy" : ".raw");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit less{48, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &less) == 0);
  try {
    const Dataset data = VolumePairs({.root = folder.path(), .crop = {2, 3}, .classes = 3, .samples = 100});
    for (Index id = 0; id < data->size(); ++id) CHECK(sample_of(data, id).x.shape() == Shape{2, 3, 1});
  } catch (const Error& e) { FAIL_CHECK(e.what()); }
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("pairs of volumes that do not match") {
  std::mt19937_64 dice(3);
  const auto said = [&](auto change, VolumePairsOptions o = {.crop = {4, 4}, .classes = 3}) -> std::string {
    const test::Temporary folder;
    write_pair(folder / "train", "a", {3, 8, 8}, dice);
    write_pair(folder / "train", "b", {8, 8}, dice);
    change(folder.path() + "/train/");
    o.root = folder.path();
    try {
      const Dataset data = VolumePairs(o);
      for (Index id = 0; id < 20; ++id) (void)sample_of(data, id);
      return "read";
    } catch (const Error& e) { return test::told(e); }
  };
  const auto write = [](const std::string& path, const Shape& array, const char* type, double value) {
    VolumeWriter out(path, {array, type});
    out.write({{0, 0, 0, 0}, out.shape()}, Tensor::full(out.shape(), value, DType::f64));
    out.finish();
  };
  const auto nothing = [](const std::string&) {};
  namespace fs = std::filesystem;
  CHECK(said(nothing) == "read");
  CHECK(said([](auto t) {  // what is still being written
          fs::copy(t + "inputs/a.npy", t + "inputs/c.npy.partial");
          fs::copy(t + "targets/a.npy", t + "targets/a.npy.partial");
        }) == "read");
  CHECK_THAT(said(nothing, {.crop = {4, 4}}), test::mentions("usage", 0, 2, "--data.classes"));
  CHECK_THAT(said(nothing, {.crop = {2, 4, 4}, .classes = 3}), test::mentions("usage", "[2, 4, 4]", "[1, 8, 8]"));
  CHECK_THAT(said(nothing, {.test = true, .crop = {4, 4}, .classes = 3}), test::mentions("file", "test/inputs"));
  CHECK_THAT(said([](auto t) { fs::remove(t + "targets/a.npy"); }), test::mentions("data", "inputs/a.npy"));
  CHECK_THAT(said([](auto t) { fs::remove(t + "inputs/a.npy"); }), test::mentions("data", "targets/a.npy"));
  CHECK_THAT(said([](auto t) { fs::copy(t + "inputs/a.npy", t + "inputs/a.2.npy"); }),
             test::mentions("data", "inputs/a.npy"));
  CHECK_THAT(said([](auto t) { spill(t + "inputs/a.npy", "?"); }), test::mentions("data", "inputs/a.npy"));
  CHECK_THAT(said([&](auto t) {
               write(t + "targets/a.npy", {3, 8, 9}, "uint8", 0);
             }),
             test::mentions("data", "[D, H, W]"));
  CHECK_THAT(said([&](auto t) {
               write(t + "targets/a.npy", {3, 8, 8}, "float32", 0);
             }),
             test::mentions("data", "targets/a.npy"));
  CHECK_THAT(said([&](auto t) {
               write(t + "inputs/b.npy", {8, 8}, "int8", 0);
             }),
             test::mentions("data", "inputs/b.npy"));
  CHECK_THAT(said([&](auto t) { write(t + "targets/b.npy", {8, 8}, "uint8", 3); }), test::mentions("data", 3, 0, 2));
}

}  // namespace test_phantoms

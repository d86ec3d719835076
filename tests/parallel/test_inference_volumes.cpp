// Models over volumes: whole, in tiles, in passes with features on disk, and over ranks give the same voxels; plans say
// what they take; what was finished is kept.
#include <atomic>
#include <mutex>
#include <random>

#include "framework/layers/inference.h"
#include "framework/layers/layers.h"
#include "framework/ops/mixed_scale.h"
#include "models/vision/unet.h"
#include "parallel/inference/chain_net.h"
#include "parallel/inference/dense_net.h"
#include "parallel/inference/infer.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

using namespace trireme;
using namespace trireme::test;

namespace {

std::mt19937_64 seeded(unsigned seed) { return std::mt19937_64(seed); }
Index draw(std::mt19937_64& random, Index low, Index high) {
  return std::uniform_int_distribution<Index>(low, high)(random);
}

/// Whole numbers, of which most of a large filter are 0, so that sums stay exact in f32; or any numbers.
Tensor filled(std::mt19937_64& random, const Shape& shape, DType dtype, bool whole, Index nonzero = 0) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values)
    v = whole ? static_cast<double>(draw(random, -1, 1)) : std::uniform_real_distribution<>(-0.4, 0.4)(random);
  if (whole && nonzero > 0) {
    std::vector<double> few(values.size(), 0);
    for (Index i = 0; i < nonzero * shape[0]; ++i)
      few[static_cast<std::size_t>(draw(random, 0, shape.numel() - 1))] = 1;
    values = few;
  }
  return Tensor::of(values, shape, dtype);
}

void fill_state(Module& model, std::mt19937_64& random, bool whole) {
  for (const NamedState& state : named_tensors(model)) {
    const Shape& shape = state.tensor->shape();
    Tensor values = filled(random, shape, DType::f64, whole, shape.rank() > 1 ? 4 : 0);
    if (state.name.ends_with("running_var")) values = abs(values) + 0.5;
    if (!whole && state.name.ends_with("weight") && shape.rank() == 1) values = values + 1;
    state.tensor->copy_from(values.to(state.tensor->dtype()));
  }
}

Module conv_layer(int axes, Index in, Index out, Index kernel, const ConvLayerOptions& o) {
  return axes == 2 ? Module(Conv2d(in, out, kernel, o)) : Module(Conv3d(in, out, kernel, o));
}

/// A random row of convolutions, poolings and skip connections.
Module random_chain(std::mt19937_64& random, int axes, Index channels) {
  Sequential net;
  Index c = channels;
  for (Index layer = draw(random, 2, 4); layer > 0; --layer) {
    const Index next = draw(random, 1, 3), kernel = 2 * draw(random, 0, 1) + 1;
    switch (draw(random, 0, 6)) {
      case 0: net.add(conv_layer(axes, c, next, 3, {.stride = 2, .pad = draw(random, 0, 1)})), c = next; break;
      case 1: net.add(MaxPool(2)); break;
      case 2: {
        const ConvTransposeLayerOptions o{.stride = 2, .pad = draw(random, 0, 1)};
        const Index k = draw(random, 2, 3);
        net.add(axes == 2 ? Module(ConvTranspose2d(c, next, k, o)) : Module(ConvTranspose3d(c, next, k, o))), c = next;
        break;
      }
      case 3: {
        const std::string name = "skip" + std::to_string(layer);
        const Index d = draw(random, 1, 3);
        net.add(Stash{name}).add(conv_layer(axes, c, c, 3, {.pad = d, .dilation = d})).add(relu);
        if (draw(random, 0, 1) == 0)
          net.add(AddStashed(name));
        else
          net.add(ConcatStashed(name)), c *= 2;
        break;
      }
      default: {
        const Index d = axes == 2 ? draw(random, 1, 10) : draw(random, 1, 4);
        const Index pad = draw(random, 0, 2) == 0 ? 0 : d * (kernel / 2);
        net.add(conv_layer(axes, c, next, kernel, {.pad = pad, .dilation = d})).add(relu), c = next;
      }
    }
  }
  return net;
}

Tensor evaluated(const Module& model, const Tensor& x) {
  const Inference inference;
  return model(x);
}

/// Largest difference over the largest number; 0: the same numbers.
double distance(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
  const std::vector<double> u = a.to_vector(), v = b.to_vector();
  double most = 0, size = 1e-300;
  for (std::size_t i = 0; i < u.size(); ++i)
    most = std::max(most, std::abs(u[i] - v[i])), size = std::max(size, std::abs(v[i]));
  return most == 0 ? 0 : most / size;
}
double allowed(bool whole, DType dtype) { return whole ? 0 : dtype == DType::f64 ? 1e-11 : 1e-5; }

Shape random_volume(std::mt19937_64& random, int axes, Index channels) {
  Shape shape{1};
  for (int i = 0; i < axes; ++i) shape.push_back(axes == 2 ? draw(random, 21, 45) : draw(random, 9, 18));
  shape.push_back(channels);
  return shape;
}

Box random_box(std::mt19937_64& random, const Shape& shape) {
  Box box = whole_box(shape);
  for (int axis = 1; axis < shape.rank() - 1; ++axis) {
    box.at[axis] = draw(random, 0, shape[axis] - 1);
    box.size[axis] = draw(random, 1, shape[axis] - box.at[axis]);
  }
  return box;
}

ReadBox reader(const Tensor& x) {
  return [x](const Box& box) { return cut(x, whole_box(x.shape()).at, box); };
}

/// Files in memory; write adds to a tensor that is 0 at first.
OpenFiles in_memory(const Tensor& x, const Tensor& y, std::atomic<int>* written = nullptr) {
  return [=](World&) {
    InferenceFiles files;
    files.read = reader(x);
    files.write = [=](const Box& box, const Tensor& values) {
      copy_box(y, whole_box(y.shape()).at, values, box.at, box);
      if (written) ++*written;
      return values;
    };
    files.read_result = reader(y);
    return files;
  };
}

std::vector<Axis> random_mesh(std::mt19937_64& random, int axes, int ranks) {
  std::vector<Axis> mesh{{"h", 1}, {"w", 1}};
  if (axes == 3) mesh.insert(mesh.begin(), {"d", 1});
  for (int factor = 2; ranks > 1;) {
    if (ranks % factor != 0) {
      ++factor;
      continue;
    }
    mesh[static_cast<std::size_t>(draw(random, 0, axes - 1))].size *= factor, ranks /= factor;
  }
  return mesh;
}

/// What ranks make of the plan, brought together.
Tensor inferred(const VolumeNet& net, const std::vector<Axis>& mesh, const InferencePlan& plan, const Tensor& x,
                const InferenceRun& run = {}, InferenceResult* result = nullptr) {
  return on_ranks(ranks_of(mesh), [&](World& world) {
    const Tensor y = Tensor::zeros(net.output(), net.dtype());
    const InferenceResult r = infer(world, mesh, net, plan, in_memory(x, y), run);
    if (result && world.main()) *result = r;
    world.comm().all_reduce(y).wait();
    return y;
  });
}

Extents extents_of(const Shape& s) {
  Extents e{1, 1, 1};
  for (int axis = 1; axis < s.rank() - 1; ++axis) e[static_cast<std::size_t>(axis - 1)] = s[axis];
  return e;
}

struct Dense {
  DenseLayers layers;
  Module model;
};
/// A mixed-scale dense network, and the same as a model.
Dense random_dense(std::mt19937_64& random, int axes, Index channels, int depth, DType dtype, bool whole) {
  Dense net;
  DenseLayers& l = net.layers;
  Index c = channels;
  for (int i = 0; i < depth; ++i) {
    const Index outputs = draw(random, 1, 2);
    Shape filter{outputs};
    for (int s = 0; s < axes; ++s) filter.push_back(3);
    filter.push_back(c);
    l.weight.push_back(filled(random, filter, dtype, whole, 3));
    l.bias.push_back(filled(random, {outputs}, dtype, whole));
    l.dilations.push_back(draw(random, 1, 10));
    c += outputs;
  }
  l.tail = conv_layer(axes, c, 2, 1, {});
  fill_state(l.tail, random, whole);
  net.model = [l](const Tensor& x) { return l.tail(mixed_scale_dense(x, l.weight, l.bias, l.dilations)); };
  return net;
}

}  // namespace

TEST_CASE("any box of a chain of layers equals that of the whole") {
  int compared = 0, too_small = 0;
  const int cases = brief() ? 40 : 160;
  for (unsigned seed = 0; seed < static_cast<unsigned>(cases); ++seed) {
    auto random = seeded(seed);
    const int axes = static_cast<int>(draw(random, 2, 3));
    const bool whole = draw(random, 0, 1) == 0;
    const DType dtype = draw(random, 0, 1) == 0 ? DType::f32 : DType::f64;
    Module model = random_chain(random, axes, 2);
    fill_state(model, random, whole);
    const Shape shape = random_volume(random, axes, 2);
    const Tensor x = filled(random, shape, dtype, whole);
    Tensor expected;
    try {
      expected = evaluated(model, x);
    } catch (const Error&) {  // extents that the model does not take
      CHECK_THROWS_AS(ChainNet(model, shape, dtype), Error);
      ++too_small;
      continue;
    }
    INFO("seed " << seed);
    const ChainNet net(model, shape, dtype);
    REQUIRE(net.output() == expected.shape());
    for (int i = 0; i < 3; ++i) {
      const Box box = random_box(random, net.output());
      const Inference inference;
      const Tensor y = net.run(0, 1, reader(x), box);
      REQUIRE(distance(y, cut(expected, whole_box(expected.shape()).at, box)) <= allowed(whole, dtype));
      ++compared;
    }
  }
  CHECK(compared >= cases);
  CHECK(too_small < cases / 2);
}

TEST_CASE("chains over ranks equal the whole") {
  int compared = 0;
  for (unsigned seed = 1000; seed < (brief() ? 1015u : 1050u); ++seed) {
    auto random = seeded(seed);
    const int axes = static_cast<int>(draw(random, 2, 3));
    const bool whole = draw(random, 0, 1) == 0;
    const DType dtype = draw(random, 0, 1) == 0 ? DType::f32 : DType::f64;
    Module model = random_chain(random, axes, 1);
    fill_state(model, random, whole);
    const Shape shape = random_volume(random, axes, 1);
    const Tensor x = filled(random, shape, dtype, whole);
    const int ranks = rank_counts({static_cast<int>(draw(random, 1, 4))})[0];
    const std::vector<Axis> mesh = random_mesh(random, axes, ranks);
    try {
      (void)evaluated(model, x);
      const ChainNet net(model, shape, dtype);
      for (const Extents& at : places_of(division_of(mesh, axes, nullptr)))
        (void)net.share(division_of(mesh, axes, nullptr), at);
    } catch (const Error&) { continue; }
    INFO("seed " << seed);
    const ChainNet net(model, shape, dtype);
    const InferencePlan plan = predict(net, InferenceWay::mesh, {}, {0, 1}, division_of(mesh, axes, nullptr));
    InferenceResult result;
    const Tensor y = inferred(net, mesh, plan, x, {}, &result);
    REQUIRE(distance(y, evaluated(model, x)) <= allowed(whole, dtype));
    CHECK((under_mpi() || result.sent == plan.sent));
    ++compared;
  }
  CHECK(compared >= 8);
}

TEST_CASE("a U-Net in tiles and over ranks equals the whole") {
  for (const Shape& input : {Shape{64, 48, 1}, Shape{32, 16, 32, 1}}) {
    auto random = seeded(5);
    Module model = unet({.input = input, .classes = 2}, 2);
    fill_state(model, random, false);
    Shape shape{1};
    for (const Index extent : input) shape.push_back(extent);
    const Tensor x = filled(random, shape, DType::f64, false), expected = evaluated(model, x);
    const ChainNet net(model, shape, DType::f64);
    CHECK(net.granularity()[0] == 16);
    const int axes = shape.rank() - 2;
    const InferencePlan tiles = predict(net, InferenceWay::tiles, {16, 32, 16}, {0, 1}, division_of({}, axes, nullptr));
    CHECK(tiles.tiles >= 4);
    CHECK(distance(inferred(net, {}, tiles, x), expected) < 1e-11);
    const std::vector<Axis> mesh{{"h", rank_counts({2})[0]}};
    if (axes == 2 || !under_mpi()) {
      const std::vector<Axis> along = axes == 2 ? mesh : std::vector<Axis>{{"d", 2}};
      const InferencePlan plan = predict(net, InferenceWay::mesh, {}, {0, 1}, division_of(along, axes, nullptr));
      CHECK(distance(inferred(net, along, plan, x), expected) < 1e-11);
    }
  }
  Module model = unet({.input = {40, 32, 1}, .classes = 2}, 2);
  CHECK_THROWS_WITH(ChainNet(model, {1, 40, 32, 1}, DType::f32),
                    Catch::Contains("does not take the volume [1, 40, 32, 1]"));
}

TEST_CASE("a mixed-scale dense network has the same bits whole, in tiles, in passes and over ranks") {
  const Temporary folder;
  int compared = 0;
  for (unsigned seed = 2000; seed < (brief() ? 2012u : 2040u); ++seed) {
    auto random = seeded(seed);
    const int axes = static_cast<int>(draw(random, 2, 3));
    const bool whole = draw(random, 0, 1) == 0;
    const DType dtype = draw(random, 0, 1) == 0 ? DType::f32 : DType::f64;
    const Dense dense =
        random_dense(random, axes, draw(random, 1, 2), static_cast<int>(draw(random, 1, 8)), dtype, whole);
    const Shape shape = random_volume(random, axes, dense.layers.weight[0].dim(-1));
    const Tensor x = filled(random, shape, dtype, whole);
    const DenseNet net(dense.layers, shape, dtype);
    INFO("seed " << seed);
    const std::vector<int> once{0, net.layers()};
    const InferencePlan one =
        predict(net, InferenceWay::whole, extents_of(shape), once, division_of({}, axes, nullptr));
    const Tensor y = inferred(net, {}, one, x);
    REQUIRE(distance(y, evaluated(dense.model, x)) <= allowed(whole, dtype));

    const int ranks = rank_counts({static_cast<int>(draw(random, 1, 4))})[0];
    const std::vector<Axis> mesh = random_mesh(random, axes, ranks);
    Extents tile{1, 1, 1};
    for (int s = 0; s < axes; ++s) tile[static_cast<std::size_t>(s)] = draw(random, 5, 20);
    const Division division = division_of(mesh, axes, nullptr);
    const InferencePlan tiles = predict(net, InferenceWay::tiles, tile, once, division);
    REQUIRE(distance(inferred(net, mesh, tiles, x), y) == 0);
    const InferencePlan divided = predict(net, InferenceWay::mesh, {}, once, division);
    InferenceResult result;
    REQUIRE(distance(inferred(net, mesh, divided, x, {}, &result), y) == 0);
    CHECK((under_mpi() || result.sent == divided.sent));
    CHECK(result.memory <= divided.memory + 65536);  // of packed filters
    ++compared;
    if (under_mpi() || net.layers() < 2) continue;
    std::vector<int> passes{0};
    while (passes.back() < net.layers())
      passes.push_back(static_cast<int>(draw(random, passes.back() + 1, net.layers())));
    const InferencePlan streamed = predict(net, InferenceWay::tiles, tile, passes, division);
    const InferenceRun run{.features = folder / ("features" + std::to_string(seed))};
    REQUIRE(distance(inferred(net, mesh, streamed, x, run), y) == 0);
  }
  CHECK(compared >= 10);
}

TEST_CASE("finished tiles are kept, by other ranks and in parts") {
  if (threads_only()) return;
  const Temporary folder;
  auto random = seeded(3);
  const Dense dense = random_dense(random, 2, 1, 5, DType::f32, false);
  const Shape shape{1, 41, 37, 1};
  const Tensor x = filled(random, shape, DType::f32, false);
  const DenseNet net(dense.layers, shape, DType::f32);
  const Division alone = division_of({}, 2, nullptr);
  const Tensor expected = inferred(net, {}, predict(net, InferenceWay::whole, extents_of(shape), {0, 5}, alone), x);
  for (const std::vector<int>& passes : {std::vector<int>{0, 5}, {0, 2, 5}}) {
    const std::string journal = folder / ("passes" + std::to_string(passes.size()));
    const InferencePlan plan = predict(net, InferenceWay::tiles, {8, 9, 1}, passes, alone);
    const auto tiles = static_cast<Index>(plan.tiles), turns = tiles * (std::ssize(passes) - 1);
    CHECK(TileJournal::begin(journal, {{"of", 1}})["of"] == 1);
    CHECK(TileJournal::begin(journal, {{"of", 2}})["of"] == 1);  // the first one stays
    const Tensor y = Tensor::zeros(net.output());
    std::atomic<int> asked = 0, written = 0;
    InferenceRun run{.journal = journal, .features = folder / ("features" + std::to_string(passes.size()))};
    run.stop = [&] { return ++asked > 7; };
    const auto once = [&](int ranks) {
      return on_ranks(ranks, [&](World& world) {
        return infer(world, {{"h", ranks}}, net, plan, in_memory(x, y, &written), run);
      });
    };
    const InferenceResult first = once(2);
    CHECK(first.stopped);
    CHECK(first.computed == 7);
    CHECK(first.missing == (passes.size() == 2 ? tiles - 7 : tiles));
    run.stop = nullptr;
    spill(journal + "/torn.tiles", "0 3 12345678 0000\n0 4 12");  // lines that say nothing
    const InferenceResult second = once(3);
    CHECK(second.kept == 7);
    CHECK(second.computed == turns - 7);
    CHECK(second.missing == 0);
    CHECK(written == tiles);
    CHECK(distance(y, expected) == 0);
    const TileJournal read(journal, "reader");
    verify_tiles(net, plan, read, in_memory(x, y)(processes()));
    y.copy_from(y + 1);
    CHECK_THROWS_WITH(verify_tiles(net, plan, read, in_memory(x, y)(processes())), Catch::Contains("not the ones"));
  }
  // Parts of a job array.
  const std::string journal = folder / "parts";
  TileJournal::begin(journal, Json::object());
  const InferencePlan plan = predict(net, InferenceWay::tiles, {8, 9, 1}, {0, 5}, alone);
  const Tensor y = Tensor::zeros(net.output());
  for (const Index part : {2, 0, 1}) {
    const InferenceRun run{.journal = journal, .writer = "part" + std::to_string(part), .part = part, .parts = 3};
    const InferenceResult r =
        on_ranks(1, [&](World& world) { return infer(world, {}, net, plan, in_memory(x, y), run); });
    CHECK(r.kept == 0);
    const TileJournal read(journal, "reader");
    const MissingTiles missing = missing_tiles(net, plan, read, 3);
    CHECK(missing.missing == r.missing);
    CHECK(std::ssize(missing.parts) == (part == 2 ? 2 : part == 0 ? 1 : 0));
  }
  CHECK(distance(y, expected) == 0);
}

TEST_CASE("plans stay below the memory that there is, and say what was taken") {
  auto random = seeded(11);
  const Temporary folder;
  int chosen_by_memory = 0;
  for (const int axes : {2, 3}) {
    const Dense dense = random_dense(random, axes, 1, 6, DType::f32, false);
    const Shape shape = axes == 2 ? Shape{1, 700, 650, 1} : Shape{1, 60, 70, 80, 1};
    const Tensor x = filled(random, shape, DType::f32, false);
    const DenseNet net(dense.layers, shape, DType::f32);
    for (const double share : {1.2, 0.6, 0.3}) {
      const InferencePlan whole =
          predict(net, InferenceWay::whole, extents_of(shape), {0, 6}, division_of({}, axes, nullptr));
      const InferenceLimits limits{.memory = share * whole.memory};
      const InferencePlan plan = plan_inference(net, {}, limits).front();
      CHECK(plan.memory <= limits.memory);
      CHECK((share > 1 ? plan.way == InferenceWay::whole : plan.way == InferenceWay::tiles));
      chosen_by_memory += plan.way == InferenceWay::tiles;
      InferenceResult result;
      (void)inferred(net, {}, plan, x, {.features = folder / "features"}, &result);
      INFO("memory " << result.memory << " of " << plan.memory);
      CHECK(result.memory <= 1.02 * plan.memory);
      CHECK(result.memory >= (plan.passes.size() > 2 ? 0.8 : 0.95) * plan.memory);
    }
  }
  CHECK(chosen_by_memory == 4);
}

TEST_CASE("what cannot be computed in boxes is refused") {
  auto random = seeded(12);
  const Dense dense = random_dense(random, 2, 1, 10, DType::f32, false);
  const DenseNet net(dense.layers, {1, 100, 90, 1}, DType::f32);
  CHECK_THROWS_WITH(plan_inference(net, {{"h", 101}}, {}), Catch::Contains("at most 100 ranks"));
  CHECK_THROWS_WITH(plan_inference(net, {{"d", 2}}, {}), Catch::Contains("no axis d"));
  CHECK_THROWS_WITH(plan_inference(net, {{"data", 2}}, {}), Catch::Contains("'data' is none of them"));
  CHECK_THROWS_WITH(plan_inference(net, {}, {.tile = {3, 3, 1}}), Catch::Contains("smaller than the halo"));
  CHECK_THROWS_WITH(plan_inference(net, {}, {.memory = 1000}), Catch::Contains("too little"));
  CHECK_THROWS_WITH(plan_inference(net, {}, {.way = "some"}), Catch::Contains("none of auto"));
  CHECK_THROWS_WITH(DenseNet(dense.layers, {1, 100, 90, 2}, DType::f32), Catch::Contains("over 2 channels"));
  DenseLayers wide = dense.layers;
  wide.tail = Conv2d(net.channels(10), 2, 3, {.pad = 1});
  CHECK_THROWS_WITH(DenseNet(wide, {1, 100, 90, 1}, DType::f32), Catch::Contains("reads more than the voxel"));
  const Module global = Sequential{Conv2d(1, 2, 3), global_avg_pool};
  CHECK_THROWS_WITH(ChainNet(global, {1, 20, 20, 1}, DType::f32), Catch::Contains("runs on whole volumes only"));
  const Module turned = Sequential{Conv2d(1, 2, 3), [](const Tensor& x) { return flip(x, {1}); }};
  CHECK_THROWS_WITH(ChainNet(turned, {1, 20, 20, 1}, DType::f32), Catch::Contains("runs on whole volumes only"));
}

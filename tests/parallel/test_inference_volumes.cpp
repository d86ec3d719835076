// Models over volumes: whole, in tiles, in passes with features on disk, and over ranks give the same voxels.
#include "models/vision/unet.h"
#include "parallel/inference/slice_net.h"
#include "tests/parallel/volume_nets.h"
#include "tests/support/temporary.h"

namespace test_inference_volumes {

using namespace trireme;
using namespace trireme::test;

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
    const int ranks = rank_counts({static_cast<int>(draw(random, 1, 8))})[0];
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
  int compared = 0;
  for (unsigned seed = 3000; seed < (brief() ? 3006u : 3016u); ++seed) {
    auto random = seeded(seed);
    const int axes = static_cast<int>(draw(random, 2, 3));
    const DType dtype = draw(random, 0, 1) == 0 ? DType::f32 : DType::f64;
    Shape shape{1};
    for (int s = 0; s < axes; ++s) shape.push_back(16 * draw(random, 1, axes == 2 ? 8 : 3));
    shape.push_back(1);
    Module model = unet({.input = shape.without(0), .classes = 2}, draw(random, 1, 3));
    fill_state(model, random, false);
    const Tensor x = filled(random, shape, dtype, false);
    convert(model, dtype);
    const Tensor expected = evaluated(model, x);
    const ChainNet net(model, shape, dtype);
    INFO("seed " << seed);
    REQUIRE(net.granularity()[0] == 16);
    Extents tile{1, 1, 1};
    for (int s = 0; s < axes; ++s) tile[static_cast<std::size_t>(s)] = 16 * draw(random, 1, 3);
    const InferencePlan tiles = predict(net, InferenceWay::tiles, tile, {0, 1}, division_of({}, axes, nullptr));
    REQUIRE(distance(inferred(net, {}, tiles, x), expected) <= allowed(false, dtype));
    std::vector<Axis> mesh;
    for (int s = 0; s < axes; ++s) {
      const Index blocks = shape[s + 1] / 16;
      const int most = static_cast<int>(std::min<Index>(blocks, 8 / ranks_of(mesh)));
      mesh.push_back(
          {std::array{"d", "h", "w"}[static_cast<std::size_t>(3 - axes + s)], static_cast<int>(draw(random, 1, most))});
    }
    if (other_ranks(ranks_of(mesh))) continue;
    const InferencePlan plan = predict(net, InferenceWay::mesh, {}, {0, 1}, division_of(mesh, axes, nullptr));
    REQUIRE(distance(inferred(net, mesh, plan, x), expected) <= allowed(false, dtype));
    ++compared;
  }
  CHECK((under_mpi() || compared >= 6));
  Module model = unet({.input = {40, 32, 1}, .classes = 2}, 2);
  CHECK_ERROR(ChainNet(model, {1, 40, 32, 1}, DType::f32), usage, "concat", "[1, 40, 32, 1]");
}

TEST_CASE("a mixed-scale dense network of up to 100 layers has the same bits whole, in tiles and over 1 to 8 ranks") {
  for (unsigned seed = 4000; seed < (brief() ? 4006u : 4032u); ++seed) {
    auto random = seeded(seed);
    const int axes = static_cast<int>(draw(random, 2, 3));
    const bool whole = seed % 4 < 2;
    const DType dtype = draw(random, 0, 1) == 0 ? DType::f32 : DType::f64;
    const Dense dense =
        random_dense(random, axes, 1, static_cast<int>(seed % 4 == 0 ? 100 : draw(random, 9, 99)), dtype, whole);
    Shape shape{1};
    for (int s = 0; s < axes; ++s) shape.push_back(axes == 2 ? draw(random, 17, 40) : draw(random, 8, 12));
    shape.push_back(1);
    const Tensor x = filled(random, shape, dtype, whole);
    const DenseNet net(dense.layers, shape, dtype);
    const std::vector<int> once{0, net.layers()};
    const Tensor y = evaluated(dense.model, x);
    const int ranks = rank_counts({1 + static_cast<int>(seed * 3 % 8)})[0];
    const std::vector<Axis> mesh = random_mesh(random, axes, ranks);
    const Division division = division_of(mesh, axes, nullptr);
    INFO("seed " << seed << " over " << ranks);
    Extents tile{1, 1, 1};
    for (int s = 0; s < axes; ++s) tile[static_cast<std::size_t>(s)] = draw(random, 5, 20);
    REQUIRE(distance(inferred(net, mesh, predict(net, InferenceWay::tiles, tile, once, division), x), y) <=
            allowed(whole, dtype));
    REQUIRE(distance(inferred(net, mesh, predict(net, InferenceWay::mesh, {}, once, division), x), y) <=
            allowed(whole, dtype));
  }
}

TEST_CASE("a model of pictures over a volume makes of each slice what it makes of that picture") {
  const Temporary folder;
  int compared = 0;
  for (unsigned seed = 5000; seed < (brief() ? 5008u : 5030u); ++seed) {
    auto random = seeded(seed);
    const bool whole = draw(random, 0, 1) == 0;
    const DType dtype = draw(random, 0, 1) == 0 ? DType::f32 : DType::f64;
    const Dense dense = random_dense(random, 2, 1, static_cast<int>(draw(random, 1, 6)), dtype, whole);
    Module chain = random_chain(random, 2, 1);
    fill_state(chain, random, whole);
    const bool is_dense = seed % 2 == 0;
    const Index slices = draw(random, 8, 11);
    const Shape picture = random_volume(random, 2, 1);
    const Tensor x = filled(random, {slices, picture[1], picture[2], 1}, dtype, whole);
    const int ranks = rank_counts({static_cast<int>(draw(random, 1, 8))})[0];
    const std::vector<Axis> mesh = random_mesh(random, 3, ranks);
    const Division division = division_of(mesh, 3, nullptr);
    std::shared_ptr<const VolumeNet> slice;
    try {
      if (is_dense)
        slice = std::make_shared<DenseNet>(dense.layers, picture, dtype);
      else
        slice = std::make_shared<ChainNet>(chain, picture, dtype);
      for (const Extents& at : places_of(division)) (void)SliceNet(slice, slices).share(division, at);
    } catch (const Error&) { continue; }  // extents that the chain does not take
    const SliceNet net(slice, slices);
    const Tensor expected = evaluated(is_dense ? dense.model : chain, x).reshape(net.output());
    const Tensor volume = x.reshape(net.input());
    INFO("seed " << seed);
    Extents tile{draw(random, 1, slices), draw(random, 5, 20), draw(random, 5, 20)};
    const std::vector<int> once{0, net.layers()};
    for (const InferencePlan& plan : {predict(net, InferenceWay::tiles, tile, once, division),
                                      predict(net, InferenceWay::mesh, {}, once, division)}) {
      InferenceResult result;
      REQUIRE(distance(inferred(net, mesh, plan, volume, {}, &result), expected) <= allowed(whole, dtype));
      CHECK((under_mpi() || result.sent == plan.sent));
      if (is_dense) CHECK(result.memory <= plan.memory + 65536);
    }
    ++compared;
    if (under_mpi() || net.layers() < 2) continue;
    const InferencePlan streamed = predict(net, InferenceWay::tiles, tile, {0, 1, net.layers()}, division);
    const InferenceRun run{.features = folder / ("features" + std::to_string(seed))};
    REQUIRE(distance(inferred(net, mesh, streamed, volume, run), expected) <= allowed(whole, dtype));
  }
  CHECK(compared >= 4);
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

    const int ranks = rank_counts({static_cast<int>(draw(random, 1, 8))})[0];
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

}  // namespace test_inference_volumes

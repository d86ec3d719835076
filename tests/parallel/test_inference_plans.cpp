// Plans of inference say what it takes; what was finished is kept; what cannot be computed in boxes is refused.
#include <filesystem>
#include <mutex>

#include "models/vision/unet.h"
#include "tests/parallel/volume_nets.h"
#include "tests/support/temporary.h"

namespace test_inference_plans {

using namespace trireme;
using namespace trireme::test;

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
    const TileJournal read(journal, "reader", run.data());
    verify_tiles(net, plan, read, in_memory(x, y)(processes()));
    y.copy_from(y + 1);
    CHECK_ERROR(verify_tiles(net, plan, read, in_memory(x, y)(processes())), data, "[1, 7, 8, 2]", "[0, 0, 0, 0]");
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

TEST_CASE("what was noted of files that are gone, or of another inference, does not count") {
  if (threads_only()) return;
  const Temporary folder;
  const std::string journal = folder / "tiles", volume = folder / "volume", features = folder / "features";
  const auto tiles = [&](const std::string& writer) {
    return std::make_unique<TileJournal>(journal, writer, std::vector{volume, features});
  };
  TileJournal::begin(journal, {{"tile", 1}});
  spill(volume, "voxels");
  {
    const auto first = tiles("first");
    first->note(0, 3, 7);
    first->commit([] {});
  }
  CHECK(tiles("a")->done(0, 3));
  spill(volume, "more voxels");  // the same file
  CHECK(tiles("b")->done(0, 3));
  spill(features, "features");  // was none
  CHECK_FALSE(tiles("c")->done(0, 3));
  std::filesystem::remove(features);
  CHECK(tiles("d")->done(0, 3));
  std::filesystem::rename(volume, folder / "away");
  CHECK_FALSE(tiles("e")->done(0, 3));
  spill(volume, "voxels");  // another file of that name
  CHECK_FALSE(tiles("f")->done(0, 3));
  std::filesystem::rename(folder / "away", volume);
  CHECK(tiles("g")->done(0, 3));
  std::filesystem::remove(journal + "/inference.json");
  CHECK_FALSE(tiles("h")->done(0, 3));
  TileJournal::begin(journal, {{"tile", 2}});
  CHECK_FALSE(tiles("i")->done(0, 3));
  const auto left = tiles("j");
  TileJournal::remove(journal);  // by another process, which has finished
  left->read_again();
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

TEST_CASE("plans of U-Nets say what is taken, whole, in tiles and over ranks") {
  if (threads_only()) return;
  for (unsigned seed = 0; seed < (brief() ? 2u : 6u); ++seed) {
    auto random = seeded(seed);
    const int axes = 2 + static_cast<int>(seed % 2);
    Shape shape{1};
    for (int s = 0; s < axes; ++s) shape.push_back(16 * (axes == 2 ? draw(random, 10, 20) : draw(random, 3, 4)));
    shape.push_back(1);
    Module model = unet({.input = shape.without(0), .classes = 2}, seed == 4 ? 16 : draw(random, 3, 6));
    const Tensor x = filled(random, shape, DType::f32, false);
    const ChainNet net(model, shape, DType::f32);
    const auto taken = [&](const std::string& what, const std::vector<Axis>& mesh, const InferencePlan& plan) {
      InferenceResult result;
      (void)inferred(net, mesh, plan, x, {}, &result);
      INFO(what << ", seed " << seed << ": " << result.memory << " of " << plan.memory);
      CHECK(result.memory <= 1.05 * plan.memory);
      CHECK(result.memory >= 0.6 * plan.memory);  // not all kernels keep filters packed
    };
    const Extents all = extents_of(shape);
    Extents tile = all;
    for (int s = 0; s < axes; ++s)
      tile[static_cast<std::size_t>(s)] = 16 * draw(random, 1, all[static_cast<std::size_t>(s)] / 16);
    const std::vector<Axis> mesh{{"h", 2}};
    taken("whole", {}, predict(net, InferenceWay::whole, all, {0, 1}, division_of({}, axes, nullptr)));
    taken("tiles", {}, predict(net, InferenceWay::tiles, tile, {0, 1}, division_of({}, axes, nullptr)));
    taken("mesh", mesh, predict(net, InferenceWay::mesh, {}, {0, 1}, division_of(mesh, axes, nullptr)));
  }
}

TEST_CASE("what cannot be computed in boxes is refused") {
  auto random = seeded(12);
  const Dense dense = random_dense(random, 2, 1, 10, DType::f32, false);
  const DenseNet net(dense.layers, {1, 100, 90, 1}, DType::f32);
  CHECK_ERROR(plan_inference(net, {{"h", 101}}, {}), usage, "infer", 100);
  CHECK_ERROR(plan_inference(net, {{"d", 2}}, {}), usage, "infer");
  CHECK_ERROR(plan_inference(net, {{"data", 2}}, {}), usage, "infer", "data");
  CHECK_ERROR(plan_inference(net, {}, {.tile = {3, 3, 1}}), usage, 3, 0, 64);
  CHECK_ERROR(plan_inference(net, {}, {.memory = 1000}), out_of_memory, "infer");
  CHECK_ERROR(plan_inference(net, {}, {.way = "some"}), usage, "infer", "some");
  CHECK_ERROR(DenseNet(dense.layers, {1, 100, 90, 2}, DType::f32), usage, "infer", 2);
  DenseLayers wide = dense.layers;
  wide.tail = Conv2d(net.channels(10), 2, 3, {.pad = 1});
  CHECK_ERROR(DenseNet(wide, {1, 100, 90, 1}, DType::f32), usage, "infer");
  const Module global = Sequential{Conv2d(1, 2, 3), global_avg_pool};
  CHECK_ERROR(ChainNet(global, {1, 20, 20, 1}, DType::f32), usage, "part 1", "reduce");
  const Module turned = Sequential{Conv2d(1, 2, 3), [](const Tensor& x) { return flip(x, {1}); }};
  CHECK_ERROR(ChainNet(turned, {1, 20, 20, 1}, DType::f32), usage, "part 1", "take");
}

}  // namespace test_inference_plans

// The Trainer on volumes: a label or a number per voxel, of phantoms and of files, with Dice or the errors; on any
// number of ranks, resumed or not; what is refused.

#include "datasets/volumes/volume_pairs.h"
#include "framework/io/foreign/npy.h"
#include "models/vision/unet.h"
#include "tests/tools/trainer_runs.h"
#include "tools/training/from_options.h"

namespace test_volume_runs {

using namespace trireme;
using namespace trireme::test;

namespace {

TrainerOptions small(const std::filesystem::path& dir) {
  TrainerOptions o = options_for_run(dir);
  o.model = "msd";
  o.arch.layers = 3;
  o.epochs = 2;
  o.optim.lr = 0.02;
  o.data.name = "phantoms";
  o.data.size = {40, 48};
  o.data.crop = {16, 24};
  o.data.angles = 12;
  o.data.phantoms = 3;
  o.data.batch = 6;
  o.data.eval_batch = 4;
  o.data.samples = 20;
  o.data.test_samples = 7;
  return o;
}

}  // namespace

TEST_CASE("voxels are trained on with the same losses and scores on any number of ranks, resumed or not") {
  const test::Temporary folder;
  for (const char* task : {"segment", "denoise"}) {
    INFO(task);
    TrainerOptions o = small(folder / (std::string(task) + "1"));
    o.data.task = task;
    const bool segments = o.data.task == "segment";
    const Run serial = train(o);
    CHECK(serial.losses.size() == 8);
    CHECK(serial.end.classes == (segments ? 3 : 0));
    const Json last = lines_of(o.run.dir, "eval").back();
    for (const char* name : {"test_dice", "test_iou"}) CHECK(last.contains(name) == segments);
    for (const char* name : {"test_mse", "test_r2"}) CHECK(last.contains(name) == !segments);
    if (segments) {
      CHECK(serial.end.labels == 7 * 16 * 24);
      CHECK((last["test_dice"] >= 0 && last["test_dice"] <= 1));
    } else {
      CHECK(std::abs(last["test_mse"].get<double>() - serial.end.loss) < 1e-12);
    }
    for (const int ranks : {2, 3}) {
      TrainerOptions more = o;
      more.run.dir = folder / (task + std::to_string(ranks));
      more.run.max_steps = 3;  // in mid-epoch
      train(more, ranks);
      more.run.max_steps = 0;
      more.run.resume = "yes";
      const Run run = train(more, ranks);
      CHECK(run.losses.begin()->first == 4);
      for (const auto& [step, loss] : run.losses)
        CHECK(std::abs(serial.losses.at(step) - loss) < 1e-11 * std::abs(loss));
      REQUIRE(run.end.metrics.size() == serial.end.metrics.size());
      for (std::size_t i = 0; i < run.end.metrics.size(); ++i)
        CHECK(std::abs(run.end.metrics[i].value - serial.end.metrics[i].value) < 1e-9);
    }
  }
}

TEST_CASE("an evaluation counts each voxel once where crops overlap") {
  const test::Temporary folder;
  for (const char* split : {"train", "val"})
    for (const char* part : {"inputs", "targets"}) std::filesystem::create_directories(folder / split + "/" + part);
  const Tensor x = normal({5, 7}, 0, 1, 3), y = normal({5, 7}, 0, 1, 4);
  const Tensor labels = (x > 0.2).to(DType::i64);
  for (const std::string split : {"train/", "val/"}) {
    write_npy(folder / split + "inputs/a.npy", x);
    write_npy(folder / split + "targets/a.npy", y);
  }
  VolumePairsOptions o{.root = folder.path(), .test = true, .task = VolumeTask::denoise, .mean = 0, .std = 1};
  // A network that returns its input, so that only the data decide.
  Module same = Sequential{[](const Tensor& v) { return v; }};
  const double right = mse_loss(x, y).item();
  const auto evaluated = [&](int ranks, Shape crop, Index batch) {
    o.crop = std::move(crop);
    Evaluation found;
    World::threads(ranks, [&](World& world) {
      const Evaluation mine =
          evaluate(same, VolumePairs(o), world, {.batch = batch, .loss = mse_loss, .metrics = {RegressionErrors{}}});
      if (world.main()) found = mine;
    });
    return found;
  };
  for (const int ranks : {1, 3})
    for (const Shape& crop : {Shape{5, 7}, Shape{1, 1}, Shape{4, 4}, Shape{3, 5}, Shape{5, 6}}) {
      if (ranks > 1 && crop[1] > 5) continue;  // fewer samples than ranks
      INFO(ranks << " " << crop[0] << " x " << crop[1]);
      const Evaluation e = evaluated(ranks, crop, 3);
      CHECK(std::abs(e.loss - right) < 1e-6 * right);
      CHECK(std::abs(result_of(e.metrics, "mse") - right) < 1e-6 * right);
    }
  // Labels: two logits, right where the input is positive.
  write_npy(folder / "val/targets/a.npy", labels);
  Module logits = Sequential{[](const Tensor& v) { return concat({v * -1, v}, v.rank() - 1); }};
  o.task = VolumeTask::segment;
  o.classes = 2;
  const auto segmented = [&](Shape crop) {
    o.crop = std::move(crop);
    World world;
    return evaluate(logits, VolumePairs(o), world, {.batch = 3, .metrics = {Dice{{.classes = 2}}}});
  };
  const Evaluation whole = segmented({5, 7});
  CHECK(whole.labels == 35);
  for (const Shape& crop : {Shape{4, 4}, Shape{2, 5}, Shape{1, 1}}) {
    const Evaluation e = segmented(crop);
    CHECK((e.labels == 35 && e.correct == whole.correct));
    CHECK(std::abs(e.loss - whole.loss) < 1e-6);
    CHECK(result_of(e.metrics, "dice") == result_of(whole.metrics, "dice"));
  }
}

TEST_CASE("a U-Net learns the labels of phantoms") {
  const test::Temporary folder;
  TrainerOptions o = small(folder / "unet");
  o.dtype = "f32";
  o.data.crop = {32, 32};
  o.data.samples = 90;
  o.epochs = 4;
  o.data.angles = 0;
  o.data.noise = 0.1;
  const Run run = train(o, 1,
                        {.model =
                             [] {
                               Module net = unet({.input = {32, 32, 1}, .classes = 3}, 4);
                               initialize(net, 1);
                               return net;
                             }(),
                         .train = make_dataset(o, "train"),
                         .test = make_dataset(o, "test")});
  CHECK(run.losses.rbegin()->second < 0.7 * run.losses.begin()->second);
  CHECK(result_of(run.end.metrics, "dice") > 0.3);
}

TEST_CASE("settings of volumes that cannot be") {
  const test::Temporary folder;
  const auto refused = [&](auto change, const std::string& why) {
    TrainerOptions o = small(folder / "refused");
    change(o);
    World::threads(1, [&](World& world) { CHECK_ERROR(Trainer({}, o, world), usage, why); });
  };
  refused([](auto& o) { o.data.crop = {64, 64}; }, "[1, 40, 48]");
  refused([](auto& o) { o.data.crop = {8}; }, "data.crop");
  refused([](auto& o) { o.data.size = {40, 48, 48, 1}; }, "data.size");
  refused([](auto& o) { o.data.size = {40.5, 48}; }, "data.size");
  refused([](auto& o) { o.data.crop = {8, 0}; }, "data.crop");
  refused([](auto& o) { o.data.limit = 3; }, "for phantoms use data.samples");
  refused([](auto& o) { o.data.augment = true; }, "for phantoms use data.samples");
  refused([](auto& o) { o.data.name = "volumes"; }, "root must name a folder of train/ and val/");
  refused(
      [&](auto& o) {
        o.data.name = "volumes";
        o.data.root = folder.path();
      },
      "data.classes");
  refused([](auto& o) { o.model = "gpt2"; }, "gpt2");
}

}  // namespace test_volume_runs

// What the Trainer and losses refuse, and what they do not count.
#include "framework/tensor/create.h"
#include "tests/tools/trainer_runs.h"

namespace test_trainer_refusals {

using namespace trireme;
using namespace trireme::test;

TEST_CASE("the Trainer trains maps of classes, and refuses what cannot be") {
  const test::Temporary folder;
  const Tensor x = normal({24, 6, 6, 2}, 0, 1, 1);
  const Tensor labels = argmax(x);
  const Dataset maps = TensorDataset(x, labels, 2);
  Module model = Sequential{Conv2d(2, 4, 3, {.pad = 1}), relu, Conv2d(4, 2, 1)};
  initialize(model, 1);
  TrainerOptions o = options_for_run(folder / "maps");
  o.dtype = "f32";
  o.data.batch = 6;
  o.epochs = 20;
  o.optim.lr = 0.05;
  World world;
  const TrainerResult r = Trainer({.model = model,
                                   .train = maps,
                                   .test = maps,
                                   .metrics = {MeanIoU{}, TopK{}, Metric(ConfusionMatrix{}).with_prefix("matrix_")}},
                                  o, world)
                              .run();
  CHECK((r.test.labels == 24 * 36 && r.test.samples == 24));
  CHECK(r.test.accuracy() > 95);
  CHECK(result_of(r.test.metrics, "iou") > 0.9);
  CHECK(100 * result_of(r.test.metrics, "accuracy") == Approx(r.test.accuracy()));
  const Tensor matrix = ConfusionMatrix{}.matrix(r.test.states[2]);
  CHECK(sum(matrix).item() == 24 * 36);

  const auto refused = [&](TrainerInput in, const std::string& why, TrainerOptions with) {
    CHECK_ERROR(Trainer(std::move(in), std::move(with), world), usage, why);
  };
  o = options_for_run(folder / "refused");
  TrainerInput in = input();
  in.loss = {};
  refused(in, "give TrainerInput::loss", o);
  in = input();
  in.metrics.push_back(RegressionErrors{});
  refused(in, "test_mae", o);
  in = input();
  in.metrics.push_back(MeanOf{"a, b", [](const Tensor& p, const Tensor&) { return p; }});
  refused(in, "a, b", o);
  in = input();
  in.train = TensorDataset(x);
  refused(in, "samples of tensors have no target y", o);
  for (const char* none : {"test_maf", "loss", "test_top1", "-epoch", "kind"}) {
    in = input();
    o.checkpoint.best = none;
    refused(in, "checkpoint.best: there is no '" + std::string(none).substr(none[0] == '-') + "'", o);
  }
  in = input();
  in.test = {};
  refused(in, "no data sets are given", options_for_run(folder / "refused"));
}

TEST_CASE("what predictions do not score is not counted, and losses that are no numbers are not the best") {
  const test::Temporary folder;
  World world;
  const auto train = [&](const std::string& name, TrainerInput in) {
    TrainerOptions o = options_for_run(folder / name);
    o.dtype = "f32";
    const Evaluation test = Trainer(std::move(in), o, world).run().test;
    CHECK(!test.is_classified());
    CHECK(!lines_of(folder / name, "eval").at(2).contains("test_top1"));
  };
  const Tensor x = normal({40, 6}, 0, 1, 1);
  const auto net = [](Index in, Index out) { return Module(Sequential{Linear(in, 8), relu, Linear(8, out)}); };
  // An autoencoder on data with classes; logits of two classes as one number; logits of sequences beside labels of
  // rows.
  const Dataset labelled = TensorDataset(x, argmax(x), 6);
  const Dataset itself = map_samples(labelled, [](const Sample& s, Index, const AugmentKey&) {
    return Sample{s.x, s.x};
  });
  train("autoencoder", {.model = net(6, 6), .train = itself, .test = itself, .loss = mse_loss});
  const Dataset binary = TensorDataset(x, (sum(x, {1}, true) > 0).to(DType::i64), 2);
  train("binary", {.model = net(6, 1),
                   .train = binary,
                   .test = binary,
                   .loss = [](const Tensor& y, const Tensor& t) { return bce_with_logits_loss(y, t.to(DType::f32)); },
                   .metrics = {ConfusionMatrix{}}});
  const Dataset sequences = TensorDataset(normal({16, 3, 6}, 0, 1, 2), Tensor::zeros({16}, DType::i64), 6);
  train("sequences",
        {.model = net(6, 6), .train = sequences, .test = sequences, .loss = [](const Tensor& y, const Tensor& t) {
           return cross_entropy(mean(y, {1}), t);
         }});
  int evaluations = 0;
  train("nan", {.model = net(6, 6), .train = itself, .test = itself, .loss = [&](const Tensor& y, const Tensor& t) {
                  const bool here = !y.requires_grad() && ++evaluations == 2;
                  return mse_loss(y, t) * (here ? std::nan("") : 1.0);
                }});
  std::ifstream result(folder / "nan/result.json");
  const Json best = parse_json(std::string(std::istreambuf_iterator<char>(result), {})).at("best");
  CHECK((best.at("epoch") != 2 && best.at("test_loss").is_number()));
  std::filesystem::remove_all(folder / "nan/checkpoints/step_00000006");  // of the last epoch: goes on from that one
  TrainerOptions again = options_for_run(folder / "nan");
  again.dtype = "f32";
  again.run.resume = "yes";
  Trainer gone_on({.model = net(6, 6), .train = itself, .test = itself, .loss = mse_loss}, again, world);
  CHECK(gone_on.step().optimizer().steps() == 4);
}

TEST_CASE("another program does not go on with a run, and a loss that trains nothing is refused") {
  const test::Temporary folder;
  World world;
  TrainerOptions o = options_for_run(folder / "run");
  o.run.max_steps = 10;
  (void)Trainer(input(), o, world).run();
  o.run.resume = "yes";
  o.run.max_steps = 0;
  TrainerInput in = input();
  in.train = regression(190, 1);
  CHECK_ERROR(Trainer(in, o, world), usage, 190, "[6]", 0);
  in = input();
  in.optimizer = AdamW{.lr = 0.5};
  CHECK_ERROR(Trainer(in, o, world), usage, 203, "[6]", 0);
  in = input();
  in.sampler = weighted_sampler(std::vector<double>(203, 1), 203);
  CHECK_ERROR(Trainer(in, o, world), usage, "resume", 203);
  in = input();
  in.metrics = {};
  CHECK(Trainer(in, o, world).run().steps == 21);

  const auto refused = [&](const Loss& loss, const std::string& why) {
    TrainerInput one = input();
    one.loss = loss;
    Trainer trainer(one, options_for_run(folder / ("refused" + std::to_string(why.size()))), world);
    CHECK_ERROR(trainer.run(), usage, why);
  };
  refused([](const Tensor& y, const Tensor& t) { return mse_loss(y.detach(), t); }, "nothing would be trained");
  refused([](const Tensor& y, const Tensor& t) { return square(y - t); }, "expected one number");
  refused([](const Tensor&, const Tensor&) { return Tensor(); }, "expected one");
  in = input();
  in.test = TensorDataset(normal({0, 6}, 0, 1, 1), Tensor::zeros({0, 2}));
  CHECK_ERROR(Trainer(in, options_for_run(folder / "empty"), world), data, "loader", "tensors");
  in = TrainerInput{.train = TensorDataset(normal({8, 6}, 0, 1, 1), arange(8), 3)};
  in.model = Sequential{Linear(6, 8)};
  in.test = in.train;
  in.loss = cross_entropy;
  TrainerOptions f32 = options_for_run(folder / "labels");
  f32.dtype = "f32";
  Trainer labels(in, f32, world);
  CHECK_ERROR(labels.run(), data, "evaluate", 3);
}

TEST_CASE("a run does not go on with other data of the same size") {
  const test::Temporary folder;
  TrainerOptions o = options_for_run(folder / "run");
  o.run.max_steps = 10;
  train(o, 1, input());
  o.run.resume = "yes";
  o.run.max_steps = 0;
  const auto with = [](std::uint64_t train_seed, std::uint64_t test_seed) {
    TrainerInput in = input();
    in.train = regression(203, train_seed);
    in.test = regression(77, test_seed);
    return in;
  };
  CHECK_ERROR(train(o, 1, with(9, 2)), data, "resume", "train data are 203");
  CHECK_ERROR(train(o, 1, with(1, 9)), data, "resume", "test data are 77");
  o.run.override = true;
  CHECK(train(o, 1, with(1, 9)).losses.begin()->first == 11);
  o.run.override = false;
  CHECK_ERROR(train(o, 1, with(1, 2)), data, "resume", "test data are 77");
  std::filesystem::remove(folder / "run/data.json");  // as of runs before there was one
  CHECK(train(o, 1, with(1, 2)).losses.empty());
}

TEST_CASE("a mean over a part of the global batch is refused") {
  const auto wrong = [](const Tensor& y, const Tensor& target) { return mean(square(y - target)); };
  const auto right = [](const Tensor& y, const Tensor& target) { return batch_mean(square(y - target)); };
  const auto train = [&](const Loss& loss, World& world, std::optional<Strategy> strategy) {
    Module model = two_heads();
    Step step(model, loss, Sgd{.lr = 0.1}, world, std::move(strategy));
    Tensor last;
    for (auto& [x, y] : Loader(regression(40, 1), {.batch = 20, .shard = step.shard()})) last = step(x, y);
    return last.item();
  };
  World alone;
  const double one = train(wrong, alone, Strategy());
  CHECK_ERROR(train(wrong, alone, accumulate(2)), usage, "mean", "batch_mean");
  CHECK(train(right, alone, Strategy()) == Approx(one).epsilon(1e-13));
  CHECK(train(right, alone, accumulate(3)) == Approx(one).epsilon(1e-13));
  CHECK_ERROR(World::threads(2, [&](World& w) { train(wrong, w, {}); }), usage, "mean", "batch_mean");
  // A mask's mean, whose sum of weights differs from rank to rank.
  const auto mask_of = [](const Tensor& target) { return (target > 0.2).to(target.dtype()); };
  const Loss::Function masked = [&](const Tensor& y, const Tensor& t) { return batch_mean(square(y - t), mask_of(t)); };
  const Loss counted(masked, [&](const Tensor& t) { return sum(1 - mask_of(t)).item(); });
  const double of_mask = train(masked, alone, Strategy());
  CHECK(of_mask != Approx(one));
  CHECK(train(counted, alone, accumulate(3)) == Approx(of_mask).epsilon(1e-13));
  World::threads(3, [&](World& w) { expect(std::abs(train(counted, w, {}) - of_mask) < 1e-13 * of_mask); });
  CHECK_ERROR(World::threads(2, [&](World& w) { train(masked, w, {}); }), usage, "batch_mean", 20, 40);
  // Flattened rows; the rows' own axis, of which a rank may have one; where nothing is recorded.
  const std::vector<Loss> others{
      [](const Tensor& y, const Tensor& t) { return mean(square(y - t).reshape({-1})); },
      [](const Tensor& y, const Tensor& t) { return sum(mean(square(y - t), {0})); },
      [](const Tensor& y, const Tensor& t) { return mean(square(transpose(y - t, 0, 1))); },
  };
  for (const Loss& loss : others) {
    CHECK_ERROR(World::threads(2, [&](World& w) { train(loss, w, {}); }), usage, "mean", "batch_mean");
    CHECK_ERROR(World::threads(2,
                               [&](World& w) {
                                 Module model = two_heads();
                                 evaluate(model, regression(3, 1), w, {.batch = 2, .dtype = DType::f64, .loss = loss});
                               }),
                usage, "mean", "batch_mean");
  }
  const auto tested = [&](World& w) {
    Module model = two_heads();
    return evaluate(model, regression(31, 1), w, {.batch = 7, .dtype = DType::f64, .loss = right}).loss;
  };
  const double whole = tested(alone);
  World::threads(3, [&](World& w) {
    expect(std::abs(train(right, w, {}) - one) < 1e-13 * one);
    expect(std::abs(tested(w) - whole) < 1e-13 * whole);
  });
}

}  // namespace test_trainer_refusals

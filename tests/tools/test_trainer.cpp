// The Trainer with a program's own model, loss, data and metrics: the same numbers on one rank and on several, resumed
// or not; call-backs; early stopping; what it refuses.
#include "tools/training/trainer.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <source_location>

#include "framework/io/json.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/metrics/metrics.h"
#include "framework/optim/optimizers.h"
#include "framework/tensor/create.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"
#include "tests/support/temporary.h"
#include "tools/training/from_options.h"

using namespace trireme;
using test::contains;

namespace {

/// y = a function of x, with f64 features; samples differ in how much they weigh.
Dataset regression(Index size, std::uint64_t seed) {
  const Tensor x = normal({size, 6}, 0, 1, seed, DType::f64);
  const Tensor weight = uniform({size, 1}, 0.5, 2, seed + 1, DType::f64);
  return TensorDataset(x.with("weight", weight), concat({sin(sum(x, {1}, true)), mean(x, {1}, true)}, 1));
}
/// Two inputs, two outputs.
struct TwoHeads {
  Linear one{6, 16}, first{16, 1}, second{16, 1};
  Tensor operator()(const Tensor& x) const {
    const Tensor h = trireme::tanh(one(x)) * x.at("weight");
    return concat({first(h), second(h)}, 1);
  }
  void visit(const StateVisitor& v) { v("one", one), v("first", first), v("second", second); }
};
Module two_heads() {
  Module m = TwoHeads{};
  initialize(m, 3);
  convert(m, DType::f64);
  return m;
}
/// A metric as a user would write it.
struct WithinTenth {
  void add(MetricState& s, const Tensor& prediction, const Tensor& target) const {
    s.counts.resize(2);
    for (const double d : abs(prediction - target).to_vector()) s.counts[0] += d < 0.1, ++s.counts[1];
  }
  std::vector<MetricResult> results(const MetricState& s) const {
    return {{"within_tenth", static_cast<double>(s.count(0)) / static_cast<double>(std::max<Index>(1, s.count(1)))}};
  }
};
TrainerOptions options_for_run(const std::filesystem::path& dir) {
  TrainerOptions o;
  o.model = "two_heads", o.epochs = 3, o.dtype = "f64", o.data.batch = 32, o.data.eval_batch = 50;
  o.run.dir = dir, o.run.progress = "off";
  return o;
}
/// On a rank's thread, where Catch2's own are not to be used.
void expect(bool holds, const std::source_location& at = std::source_location::current()) {
  check(holds, "test", "line {}: it does not hold", at.line());
}
/// A loss of the program's own.
Tensor log_cosh(const Tensor& y, const Tensor& target) {
  const Tensor d = y - target;
  return batch_mean(d + softplus(d * -2) - std::log(2.0));
}
TrainerInput input() {
  return {.model = two_heads(),
          .train = regression(203, 1),
          .test = regression(77, 2),
          .loss = log_cosh,
          .optimizer = AdamW{.lr = 0.01},
          .metrics = {RegressionErrors{}, WithinTenth{}}};
}
std::vector<Json> lines_of(const std::filesystem::path& dir, const std::string& kind) {
  std::vector<Json> all;
  std::string line;
  for (std::ifstream in(dir / "metrics.jsonl"); std::getline(in, line);)
    if (Json json = parse_json(line); json.value("kind", "") == kind) all.push_back(json);
  return all;
}

}  // namespace

TEST_CASE("a regression with two inputs and a metric of one's own is the same on any number of ranks") {
  const test::Temporary folder;
  std::vector<Evaluation> ends;
  for (const int ranks : {1, 2, 3}) {
    const std::filesystem::path dir = folder / std::to_string(ranks);
    World::threads(ranks, [&](World& world) {
      const TrainerResult r = Trainer(input(), options_for_run(dir), world).run();
      if (world.main()) ends.push_back(r.test);
    });
    const auto evals = lines_of(dir, "eval");
    REQUIRE(evals.size() == 3);
    CHECK(evals[2].at("test_mae").get<double>() == result_of(ends.back().metrics, "mae"));
    CHECK(!evals[2].contains("test_top1"));
    CHECK(evals[2].at("test_loss").get<double>() < evals[0].at("train_loss").get<double>());
    std::ifstream table(dir / "metrics.csv");
    std::string head;
    std::getline(table, head);
    CHECK(head.ends_with(",test_mae,test_mse,test_rmse,test_r2,test_within_tenth"));
    std::ifstream result(dir / "result.json");
    CHECK(parse_json(std::string(std::istreambuf_iterator<char>(result), {})).at("best").contains("test_loss"));
  }
  REQUIRE(ends.size() == 3);
  for (const Evaluation& e : ends) {
    CHECK(!e.is_classified());
    CHECK(std::abs(e.loss - ends[0].loss) < 1e-12);
    for (std::size_t i = 0; i < e.metrics.size(); ++i)
      CHECK(std::abs(e.metrics[i].value - ends[0].metrics[i].value) < 1e-11);
    CHECK(contains("within_tenth").match(e.text()));
  }
}

TEST_CASE("metrics and losses are the serial run's under every kind of strategy, ignored and weighted labels too") {
  const test::Temporary folder;
  const Tensor x = normal({150, 6}, 0, 1, 4, DType::f64), y = argmax(x);
  std::vector<std::int64_t> labels = y.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); i += 7) labels[i] = -100;
  const Dataset marked = TensorDataset(x, Tensor::from(labels), 6);
  int runs = 0;
  const auto train = [&](int ranks, const std::string& mesh, const std::string& strategy) {
    std::mutex mutex;
    std::optional<Evaluation> end;
    World::threads(ranks, [&](World& world) {
      Module model = Sequential{Linear(6, 16), trireme::tanh, Linear(16, 12), trireme::tanh, Linear(12, 6)};
      initialize(model, 3);
      convert(model, DType::f64);
      TrainerOptions o = options_for_run(folder / std::to_string(runs));
      o.parallel.mesh = mesh, o.parallel.strategy = strategy, o.epochs = 2, o.optim.lr = 0.01;
      Trainer trainer(
          {.model = model,
           .train = marked,
           .test = marked,
           .loss = cross_entropy_with({.weights = Tensor::of(std::vector<double>{1, 2, 1, .5, 1, 3}, {6}, DType::f64)}),
           .metrics = {PrecisionRecallF1{{.classes = 6}}, Auc{}}},
          o, world);
      const TrainerResult r = trainer.run();
      const std::lock_guard lock(mutex);
      if (world.main()) end = r.test;
    });
    ++runs;
    return *end;
  };
  const Evaluation serial = train(1, "", "");
  CHECK((serial.labels == 128 && serial.samples == 150));
  for (const auto& [ranks, mesh, strategy] : std::vector<std::tuple<int, std::string, std::string>>{
           {2, "", "data_parallel"},
           {3, "", "data_parallel | zero(3)"},
           {1, "", "accumulate(micro=3)"},
           {2, "pipe=2", "pipeline(micro=2, partition=even)"},
           {4, "pipe=2,data=2", "pipeline(micro=3, schedule=zb-h1, partition=even) | data_parallel"},
           {2, "tensor=2", "tensor"},
           {4, "tensor=2,data=2", "tensor | data_parallel"}}) {
    INFO(strategy << " on " << ranks);
    const Evaluation got = train(ranks, mesh, strategy);
    CHECK((got.correct == serial.correct && got.in_top5 == serial.in_top5 && got.labels == serial.labels));
    CHECK(std::abs(got.loss - serial.loss) < 1e-11);
    for (std::size_t i = 0; i < serial.metrics.size(); ++i) {
      CHECK(got.metrics[i].name == serial.metrics[i].name);
      CHECK(std::abs(got.metrics[i].value - serial.metrics[i].value) < 1e-13);
    }
  }
}

TEST_CASE("call-backs see every step, epoch, evaluation and checkpoint, and may stop early") {
  const test::Temporary folder;
  for (const int ranks : {1, 2}) {
    std::mutex mutex;
    std::map<std::string, int> seen;
    std::vector<std::string> saved;
    World::threads(ranks, [&](World& world) {
      const auto count = [&](const char* what) {
        const std::lock_guard lock(mutex);
        ++seen[what];
      };
      TrainerInput in = input();
      in.callbacks = {
          .on_step =
              [&](const StepMetrics& s) {
                expect(s.loss > 0 && s.lr == 0.01 && s.step == (s.epoch - 1) * 7 + s.batch);
                count("step");
              },
          .on_epoch = [&](const EpochMetrics& e) { expect(e.loss > 0 && e.step == 7 * e.epoch), count("epoch"); },
          .on_evaluation =
              [&](const Evaluation& e, const EpochMetrics& of) {
                expect(e.samples == 77);
                return count("evaluation"), of.epoch < 2;
              },
          .on_save =
              [&](std::int64_t, const std::string& directory) {
                count("save");
                if (world.main()) saved.push_back(directory);
              }};
      const TrainerResult r = Trainer(in, options_for_run(folder / ("early" + std::to_string(ranks))), world).run();
      expect(r.steps == 14 && !r.stopped && r.test.samples == 77);
    });
    CHECK(seen["step"] == 14 * ranks);
    CHECK(seen["epoch"] == 2 * ranks);
    CHECK((seen["evaluation"] == 2 * ranks && seen["save"] == 2 * ranks));
    for (const std::string& path : saved) CHECK(std::filesystem::exists(std::filesystem::path(path) / "manifest.json"));
  }
}

TEST_CASE("a run with samplers, padding and metrics goes on with the same bits") {
  const test::Temporary folder;
  /// Sequences of differing lengths, weighted; the model sees how long they are.
  const auto train = [&](const std::filesystem::path& dir, std::int64_t steps, bool resume) {
    const Dataset sequences = FunctionDataset(90, [](Index id, const AugmentKey&) {
      const Index length = 2 + id % 5;
      return Sample{normal({length, 3}, 0, 1, static_cast<std::uint64_t>(id)),
                    Tensor::full({1}, static_cast<double>(length))};
    });
    struct Sums {
      Linear layer{3, 8}, head{8, 1};
      Tensor operator()(const Tensor& x) const {
        return head(trireme::tanh(sum(layer(x), {1}))) + 0 * x.at("length").to(DType::f32).reshape({-1, 1});
      }
      void visit(const StateVisitor& v) { v("layer", layer), v("head", head); }
    };
    Module model = Sums{};
    initialize(model, 1);
    TrainerOptions o = options_for_run(dir);
    o.dtype = "f32", o.data.batch = 8, o.run.max_steps = steps, o.run.resume = resume ? "yes" : "no";
    o.checkpoint.best = "-test_mae";
    std::vector<double> weights(90);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = i % 3 ? 1 : 2;
    World world;
    Trainer trainer({.model = model,
                     .train = sequences,
                     .test = sequences,
                     .loss = mse_loss,
                     .metrics = {RegressionErrors{}},
                     .collate = pad_to_longest(),
                     .sampler = weighted_sampler(weights, 50)},
                    o, world);
    const TrainerResult r = trainer.run();
    std::vector<double> all;
    for (const auto& e : trainer.step().parameters().entries())
      for (const double v : e.tensor.to_vector()) all.push_back(v);
    all.push_back(r.test.loss);
    return all;
  };
  const auto whole = train(folder / "whole", 0, false);
  (void)train(folder / "cut", 10, false);
  CHECK(train(folder / "cut", 0, true) == whole);
}

TEST_CASE("the Trainer trains maps of classes, and refuses what cannot be") {
  const test::Temporary folder;
  const Tensor x = normal({24, 6, 6, 2}, 0, 1, 1);
  const Tensor labels = argmax(x);
  const Dataset maps = TensorDataset(x, labels, 2);
  Module model = Sequential{Conv2d(2, 4, 3, {.pad = 1}), relu, Conv2d(4, 2, 1)};
  initialize(model, 1);
  TrainerOptions o = options_for_run(folder / "maps");
  o.dtype = "f32", o.data.batch = 6, o.epochs = 20, o.optim.lr = 0.05;
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
    CHECK_THROWS_WITH(Trainer(std::move(in), std::move(with), world), contains(why));
  };
  o = options_for_run(folder / "refused");
  TrainerInput in = input();
  in.loss = {};
  refused(in, "give TrainerInput::loss", o);
  in = input(), in.metrics.push_back(RegressionErrors{});
  refused(in, "two metrics are called test_mae: give one a prefix", o);
  in = input(), in.metrics.push_back(MeanOf{"a, b", [](const Tensor& p, const Tensor&) { return p; }});
  refused(in, "a result is called 'a, b'", o);
  in = input(), in.train = TensorDataset(x);
  refused(in, "samples of tensors have no y", o);
  for (const char* none : {"test_maf", "loss", "test_top1", "-epoch", "kind"}) {
    in = input();
    o.checkpoint.best = none;
    refused(in, "checkpoint.best: there is no '" + std::string(none).substr(none[0] == '-') + "'", o);
  }
  in = input(), in.test = {};
  refused(in, "wants its own data sets", options_for_run(folder / "refused"));
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
  again.dtype = "f32", again.run.resume = "yes";
  Trainer gone_on({.model = net(6, 6), .train = itself, .test = itself, .loss = mse_loss}, again, world);
  CHECK(gone_on.step().optimizer().steps() == 4);
}

TEST_CASE("a run that a call-back has ended is over when it is started again") {
  const test::Temporary folder;
  World world;
  for (int start = 0; start < 3; ++start) {
    TrainerInput in = input();
    in.callbacks.on_evaluation = [](const Evaluation&, const EpochMetrics& e) { return e.epoch < 2; };
    TrainerOptions o = options_for_run(folder / "run");
    o.run.resume = "auto";
    const TrainerResult r = Trainer(in, o, world).run();
    CHECK(r.steps == 14);
    CHECK(r.test.samples == 77);
  }
}

TEST_CASE("another program does not go on with a run, and a loss that trains nothing is refused") {
  const test::Temporary folder;
  World world;
  TrainerOptions o = options_for_run(folder / "run");
  o.run.max_steps = 10;
  (void)Trainer(input(), o, world).run();
  o.run.resume = "yes", o.run.max_steps = 0;
  TrainerInput in = input();
  in.train = regression(190, 1);
  CHECK_THROWS_WITH(Trainer(in, o, world), contains("train: tensors: 190 samples of [6], 0 classes"));
  in = input(), in.optimizer = AdamW{.lr = 0.5};
  CHECK_THROWS_WITH(Trainer(in, o, world), contains("the program gives"));
  in = input(), in.sampler = weighted_sampler(std::vector<double>(203, 1), 203);
  CHECK_THROWS_WITH(Trainer(in, o, world), contains("sampler: 203 samples"));
  in = input(), in.metrics = {};
  CHECK(Trainer(in, o, world).run().steps == 21);

  const auto refused = [&](const Loss& loss, const std::string& why) {
    TrainerInput one = input();
    one.loss = loss;
    Trainer trainer(one, options_for_run(folder / ("refused" + std::to_string(why.size()))), world);
    CHECK_THROWS_WITH(trainer.run(), contains(why));
  };
  refused([](const Tensor& y, const Tensor& t) { return mse_loss(y.detach(), t); }, "nothing would be trained");
  refused([](const Tensor& y, const Tensor& t) { return square(y - t); }, "expected one number");
  refused([](const Tensor&, const Tensor&) { return Tensor(); }, "expected one");
  in = input(), in.test = TensorDataset(normal({0, 6}, 0, 1, 1), Tensor::zeros({0, 2}));
  CHECK_THROWS_WITH(Trainer(in, options_for_run(folder / "empty"), world), contains("is empty"));
  in = TrainerInput{.train = TensorDataset(normal({8, 6}, 0, 1, 1), arange(8), 3)};
  in.model = Sequential{Linear(6, 8)}, in.test = in.train, in.loss = cross_entropy;
  TrainerOptions f32 = options_for_run(folder / "labels");
  f32.dtype = "f32";
  Trainer labels(in, f32, world);
  CHECK_THROWS_WITH(labels.run(), contains("has a label 3, and 3 classes"));
}

TEST_CASE("fields without rows are whole in whatever dtype activations have") {
  const test::Temporary folder;
  World world;
  const Tensor x = normal({40, 6}, 0, 1, 1).with("table", normal({3, 6}, 0, 1, 2));
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    struct Attends {
      Linear layer{3, 1};
      Tensor operator()(const Tensor& x) const {
        check(x.at("table").shape() == Shape{3, 6} && x.at("table").dtype() == x.dtype(), "test", "table {} {}",
              x.at("table").shape(), name_of(x.at("table").dtype()));
        return layer(matmul(x, x.at("table"), {.transpose_b = true}));
      }
      void visit(const StateVisitor& v) { v("layer", layer); }
    };
    TrainerOptions o = options_for_run(folder / dtype);
    o.dtype = dtype;
    const Dataset data = TensorDataset(x, sum(x, {1}, true));
    const TrainerResult r =
        Trainer({.model = Attends{}, .train = data, .test = data, .loss = mse_loss}, o, world).run();
    CHECK(r.test.samples == 40);
  }
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
  CHECK_THROWS_WITH(train(wrong, alone, accumulate(2)), contains("batch_mean()"));
  CHECK(train(right, alone, Strategy()) == Approx(one).epsilon(1e-13));
  CHECK(train(right, alone, accumulate(3)) == Approx(one).epsilon(1e-13));
  CHECK_THROWS_WITH(World::threads(2, [&](World& w) { train(wrong, w, {}); }), contains("batch_mean()"));
  // A mask's mean, whose sum of weights differs from rank to rank.
  const auto mask_of = [](const Tensor& target) { return (target > 0.2).to(target.dtype()); };
  const Loss::Function masked = [&](const Tensor& y, const Tensor& t) { return batch_mean(square(y - t), mask_of(t)); };
  const Loss counted(masked, [&](const Tensor& t) { return sum(1 - mask_of(t)).item(); });
  const double of_mask = train(masked, alone, Strategy());
  CHECK(of_mask != Approx(one));
  CHECK(train(counted, alone, accumulate(3)) == Approx(of_mask).epsilon(1e-13));
  World::threads(3, [&](World& w) { expect(std::abs(train(counted, w, {}) - of_mask) < 1e-13 * of_mask); });
  CHECK_THROWS_WITH(World::threads(2, [&](World& w) { train(masked, w, {}); }), contains("whose ignored(target)"));
  // Flattened rows; the rows' own axis, of which a rank may have one; where nothing is recorded.
  const std::vector<Loss> others{
      [](const Tensor& y, const Tensor& t) { return mean(square(y - t).reshape({-1})); },
      [](const Tensor& y, const Tensor& t) { return sum(mean(square(y - t), {0})); },
      [](const Tensor& y, const Tensor& t) { return mean(square(transpose(y - t, 0, 1))); },
  };
  for (const Loss& loss : others) {
    CHECK_THROWS_WITH(World::threads(2, [&](World& w) { train(loss, w, {}); }), contains("batch_mean()"));
    CHECK_THROWS_WITH(World::threads(2,
                                     [&](World& w) {
                                       Module model = two_heads();
                                       evaluate(model, regression(3, 1), w,
                                                {.batch = 2, .dtype = DType::f64, .loss = loss});
                                     }),
                      contains("batch_mean()"));
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

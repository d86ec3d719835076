// The Trainer with a program's own model, loss, data and metrics: the same numbers on one rank and on several, resumed
// or not; call-backs; early stopping.
#include <map>
#include <mutex>
#include <optional>

#include "tests/tools/trainer_runs.h"

namespace test_trainer {

using namespace trireme;
using namespace trireme::test;

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
      o.parallel.mesh = mesh;
      o.parallel.strategy = strategy;
      o.epochs = 2;
      o.optim.lr = 0.01;
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

TEST_CASE("with validation data epochs never touch the test set, which is evaluated once at the end") {
  const test::Temporary folder;
  std::vector<double> losses;
  for (const int ranks : {1, 2}) {
    const std::filesystem::path dir = folder / std::to_string(ranks);
    World::threads(ranks, [&](World& world) {
      TrainerInput in = input();
      in.validation = regression(40, 9);
      TrainerOptions o = options_for_run(dir);
      const TrainerResult r = Trainer(in, o, world).run();
      expect(r.test.samples == 77);
      if (world.main()) losses.push_back(r.test.loss);
      o.run.resume = "yes";  // nothing is left to train, and the test's line is not written twice
      in = input();
      in.validation = regression(40, 9);
      expect(Trainer(in, o, world).run().test.loss == r.test.loss);
    });
    const auto evals = lines_of(dir, "eval"), tests = lines_of(dir, "test");
    REQUIRE((evals.size() == 3 && tests.size() == 1));
    for (const Json& eval : evals) {
      CHECK(eval.at("val_samples") == 40);
      CHECK((eval.contains("val_loss") && eval.contains("val_mae")));
      CHECK_FALSE(eval.contains("test_loss"));
      CHECK_FALSE(eval.contains("test_mae"));
    }
    CHECK((tests[0].at("test_samples") == 77 && tests[0].at("step") == evals[2].at("step")));
    CHECK(tests[0].at("test_loss").get<double>() == losses.back());
    CHECK(parse_json(slurp(dir / "result.json")).at("best").contains("val_loss"));
  }
  CHECK(std::abs(losses[0] - losses[1]) < 1e-12);
  World::threads(1, [&](World& world) {
    TrainerInput in = input();
    in.validation = regression(40, 9);
    TrainerOptions o = options_for_run(folder / "best");
    o.checkpoint.best = "-test_loss";
    expect([&] {
      try {
        Trainer(in, o, world);
        return false;
      } catch (const Error& e) { return std::string(e.what()).find("val_loss") != std::string::npos; }
    }());
  });
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
      in.callbacks = {.on_step =
                          [&](const StepMetrics& s) {
                            expect(s.loss > 0 && s.lr == 0.01 && s.step == (s.epoch - 1) * 7 + s.batch);
                            count("step");
                          },
                      .on_epoch =
                          [&](const EpochMetrics& e) {
                            expect(e.loss > 0 && e.step == 7 * e.epoch);
                            count("epoch");
                          },
                      .on_evaluation =
                          [&](const Evaluation& e, const EpochMetrics& of) {
                            expect(e.samples == 77);
                            count("evaluation");
                            return of.epoch < 2;
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
      void visit(const StateVisitor& v) {
        v("layer", layer);
        v("head", head);
      }
    };
    Module model = Sums{};
    initialize(model, 1);
    TrainerOptions o = options_for_run(dir);
    o.dtype = "f32";
    o.data.batch = 8;
    o.run.max_steps = steps;
    o.run.resume = resume ? "yes" : "no";
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

}  // namespace test_trainer

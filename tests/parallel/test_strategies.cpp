// Strategies x ranks x transports against the serial run. Run it under mpiexec for MPI; without, ranks are
// threads.
#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"
#include "models/vision/resnet.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/training.h"

namespace test_strategies {

using namespace trireme;
using namespace trireme::test;

namespace {

const std::vector<int> all_ranks = {1, 2, 3, 4, 7};

Sequential small_cnn() {
  return {Conv2d(1, 4, 3), relu, MaxPool(2), Dropout(0.25), flatten, Linear(64, 16), relu, Dropout(0.5), Linear(16, 5)};
}
Sequential normed_cnn() { return {Conv2d(1, 4, 3), BatchNorm(4), relu, MaxPool(2), flatten, Linear(64, 5)}; }

/// Linear in all its weights, so that gradients stay small integers for any number of steps.
struct Branches {
  Conv2d conv{1, 4, 3};
  Linear fc{36, 64};
  Tensor operator()(const Tensor& x) const { return flatten(conv(x)) + fc(flatten(x)); }
  void visit(const StateVisitor& v) {
    v("conv", conv);
    v("fc", fc);
  }
};

}  // namespace

TEST_CASE("every exact strategy trains the serial run's model, dropout and short last batch included",
          "[table][device]") {
  auto dtype = GENERATE(DType::f64, DType::f32);
  Setup s{.model = small_cnn, .dtype = dtype};
  auto reference = serial_run(s);
  CHECK(reference.losses.front() > 1.5);
  for (auto& row : strategies()) {
    Strategy strategy = parse_strategy(exact_text(row));
    INFO(row.name);
    bool compared = false;
    if (strategy.claim() != Claim::exact) continue;  // tests/parallel/test_averaging.cpp has those
    if (!strategy.split.context.empty() || !strategy.split.experts.empty()) continue;  // test_transformers.cpp has them
    for (int ranks : rank_counts(all_ranks)) {
      if ((row.axis.empty() && ranks > 1) || ranks < row.least) continue;
      if (row.axis == "pipe" && ranks > 5) continue;    // parts of the model
      if (strategy.split.any() && ranks > 4) continue;  // outputs of its first layer
      INFO(row.name << " on " << ranks << " ranks, " << name_of(dtype));
      check_close(parallel_run(s, {{row.axis.empty() ? "data" : row.axis, ranks}}, strategy), reference,
                  dtype == DType::f64 ? 1e-12 : 1e-5);
      compared = true;
    }
    CHECK((under_mpi() || compared));
  }
}

TEST_CASE("every all-reduce algorithm trains the same model, on every rank") {
  if (threads_only("the processes' communicator is shared by all tests")) return;
  Setup s{.model = small_cnn, .steps = 5};
  auto reference = serial_run(s);
  for (const char* algorithm : {"ring", "recursive_doubling", "rabenseifner", "tree"})
    for (int ranks : {2, 3}) {
      INFO(algorithm << " on " << ranks << " ranks");
      check_close(on_ranks(ranks,
                           [&](World& world) {
                             world.use_all_reduce(algorithm);
                             return train(s, world, data_parallel({.first_bucket = 100, .bucket = 300}));
                           }),
                  reference, 1e-12);
    }
}

TEST_CASE("other optimizers under data_parallel equal their serial runs") {
  int ranks = rank_counts({3})[0];
  for (auto& optimizer_config :
       {OptimizerConfig(Adadelta{}), OptimizerConfig(AdamW{}), OptimizerConfig(Lars{.lr = 0.1}),
        OptimizerConfig(Lamb{}), OptimizerConfig(Adagrad{})}) {
    Setup s{.model = small_cnn, .optimizer_config = optimizer_config, .steps = 5};
    check_close(parallel_run(s, ranks, data_parallel()), serial_run(s), 1e-11);
  }
}

TEST_CASE("ranks without rows take part") {
  for (int ranks : rank_counts({4, 7})) {
    for (Index batch : {1, 3, 5}) {
      INFO(ranks << " ranks, batch " << batch);
      Setup s{.model = small_cnn, .samples = 16, .batch = batch, .steps = 7};
      check_close(parallel_run(s, ranks, data_parallel()), serial_run(s), 1e-12);
      Setup normed{.model = normed_cnn, .samples = 16, .batch = batch, .steps = 7};
      check_close(parallel_run(normed, ranks, data_parallel()), serial_run(normed), 1e-11);
    }
  }
}

TEST_CASE("on integers data_parallel equals serial bit by bit", "[table][device]") {
  Setup linear{.model = [] { return with_integers(Branches()); },
               .loss = pattern_loss,
               .optimizer_config = Sgd{.lr = 1},
               .dtype = DType::f32,
               .steps = 20,
               .shape = {6, 6, 1},
               .integers = true};
  for (auto& s : {linear, integer_conv()}) {
    auto reference = serial_run(s);
    for (double w : reference.weights) REQUIRE((w * 64 == std::round(w * 64) && std::abs(w) < 1 << 16));
    CHECK(distance(reference.losses, std::vector<double>(reference.losses.size(), 0)) > 0);
    for (int ranks : rank_counts(all_ranks)) {
      INFO(ranks << " ranks");
      check_same_bits(parallel_run(s, ranks, data_parallel({.first_bucket = 20, .bucket = 300})), reference);
    }
  }
}

TEST_CASE("overlap and bucket sizes do not change a bit") {
  // Over MPI the order of a sum may depend on its length; there two ranks, whose sums have one order, are
  // compared.
  int ranks = rank_counts({3})[0];
  if (ranks > 2 && threads_only("there sums of more than two have no one order")) return;
  Setup s{.model = small_cnn, .dtype = DType::f32, .steps = 8};
  auto reference = parallel_run(s, ranks, data_parallel());
  check_same_bits(parallel_run(s, ranks, data_parallel({.overlap = false})), reference);
  for (auto [first, bucket] : {std::pair<Index, Index>{1, 1 << 20}, {50, 100}, {1000, 33}, {64, 4096}})
    for (bool overlap : {true, false}) {
      INFO("buckets of " << first << " and " << bucket << ", overlap " << overlap);
      check_same_bits(
          parallel_run(s, ranks, data_parallel({.first_bucket = first, .bucket = bucket, .overlap = overlap})),
          reference);
    }
}

TEST_CASE("a run repeats bit by bit") {
  int ranks = rank_counts({4})[0];
  Setup s{.model = small_cnn, .dtype = DType::f32, .steps = 6};
  check_same_bits(parallel_run(s, ranks, {}), parallel_run(s, ranks, {}));
}

TEST_CASE("batch norm over the global batch equals serial; over fewer rows all ranks still hold one model") {
  Setup s{.model = normed_cnn, .optimizer_config = Sgd{.lr = 0.05}, .steps = 20};
  auto reference = serial_run(s);
  for (int ranks : rank_counts({2, 3, 4})) {
    INFO(ranks << " ranks");
    check_close(parallel_run(s, ranks, data_parallel({.norm_scope = NormScope::global})), reference, 1e-12);
    check_close(parallel_run(s, ranks, data_parallel({.norm_scope = NormScope::group, .norm_group = ranks})), reference,
                1e-12);
    check_close(parallel_run(s, ranks, data_parallel()), reference, 1e-12);
    auto local = parallel_run(s, ranks, data_parallel({.norm_scope = NormScope::local}));
    CHECK(local.agreed);
    CHECK(distance(local.weights, reference.weights) > 1e-6);
    // A group of one is local.
    check_same_bits(parallel_run(s, ranks, data_parallel({.norm_scope = NormScope::group, .norm_group = 1})), local);
  }
}

TEST_CASE("ranks that normalise by their own equal shares average to the serial run's running means") {
  Setup s{.model = normed_cnn, .batch = 48, .steps = 1};
  const auto reference = serial_run(s);
  REQUIRE(reference.buffer_ends == std::vector<std::size_t>{4, 8});  // means, then variances
  const auto means = [](const Outcome& o) { return std::vector<double>(o.buffers.begin(), o.buffers.begin() + 4); };
  for (int ranks : rank_counts({2, 3, 4})) {
    if (48 % ranks != 0) continue;
    INFO(ranks << " ranks");
    const auto local = parallel_run(s, ranks, data_parallel({.norm_scope = NormScope::local}));
    CHECK(local.agreed);
    CHECK(distance(means(local), means(reference)) < 1e-12);
    CHECK(distance(local.buffers, reference.buffers, reference.buffer_ends) > 1e-6);  // the variances are of fewer rows
  }
}

TEST_CASE("by default a residual network trains the serial run's model on any number of ranks") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Setup s{.model =
                [] {
                  return cifar_resnet(8, {.input = {8, 8, 1}, .classes = 5});
                },
            .dtype = dtype,
            .samples = 71,
            .batch = 10,
            .steps = 8,  // the last batch has one row, which the ranks but one lack
            .shape = {8, 8, 1}};
    const auto reference = serial_run(s);
    for (int ranks : rank_counts(all_ranks)) {
      INFO(ranks << " ranks, " << name_of(dtype));
      check_close(parallel_run(s, ranks, std::nullopt), reference, dtype == DType::f64 ? 1e-11 : 1e-4);
    }
  }
}

TEST_CASE(
    "by default a network with batch norm and dropout is the same model on one rank and on more, and is right "
    "about as many samples") {
  struct Result {
    std::vector<double> weights;
    double right = 0;
  };
  const auto run = [](World& world) {
    Module model = Sequential{Conv2d(1, 4, 3), BatchNorm(4), relu, MaxPool(2), Dropout(0.25), flatten, Linear(64, 5)};
    initialize(model, 1);
    convert(model, DType::f64);
    Step step(model, cross_entropy, Sgd{.lr = 0.05, .momentum = 0.9}, world, std::nullopt, {.seed = 5});
    const auto noise = [](Index samples) { return Dataset(std::make_unique<Noise>(samples, Shape{10, 10, 1})); };
    LoaderOptions options{
        .batch = 61, .shuffle = true, .seed = 3, .shard = step.shard(), .workers = 0, .dtype = DType::f64};
    for (options.epoch = 0; options.epoch < 2; ++options.epoch)
      for (auto& [x, y] : Loader(noise(997), options)) step(x, y);
    Result result{whole_weights(step.parameters())};
    const Inference inference;
    options.shuffle = false;
    for (auto& [x, y] : Loader(noise(331), options)) {
      const auto likeliest = argmax(model(x)).to_vector(), labels = y.to_vector();
      for (std::size_t i = 0; i < labels.size(); ++i) result.right += likeliest[i] == labels[i];
    }
    const Tensor right = Tensor::scalar(result.right, DType::f64);
    world.comm().all_reduce(right).wait();
    result.right = right.item();
    return result;
  };
  World alone;
  const Result serial = run(alone);
  for (int ranks : rank_counts({3, 7})) {
    INFO(ranks << " ranks");
    const Result parallel = on_ranks(ranks, run);
    CHECK(distance(parallel.weights, serial.weights) <= 1e-11);
    CHECK(parallel.right == serial.right);
  }
}

TEST_CASE("batch norm's rows, and what a strategy claims of them, are told") {
  struct Expected {
    const char *mesh, *strategy, *rows;
    Claim claim = Claim::exact;
  };
  if (threads_only("they are told alike")) return;
  const Expected all[] = {
      {"data=2", "data_parallel", "global"},
      {"data=2", "data_parallel(norm_scope=local)", "local: each rank's rows", Claim::statistical},
      {"data=4", "data_parallel(norm_scope=group, norm_group=2)", "group: the rows of every 2 ranks",
       Claim::statistical},
      {"data=2", "accumulate(micro=2) | data_parallel", "each micro-batch over all ranks"},
      {"data=2", "accumulate(micro=2) | data_parallel(norm_scope=local)", "local: each rank's rows of each micro-batch",
       Claim::statistical},
      {"data=1", "data_parallel(norm_scope=local)", "global"},
      {"pipe=2", "pipeline(micro=2)", "each micro-batch"},
      {"data=2,pipe=2", "pipeline(micro=2) | data_parallel", "each micro-batch over all ranks"},
      {"h=2", "spatial", "global"},
  };
  for (const Expected& told : all) {
    const auto axes = parse_mesh(told.mesh);
    INFO(told.mesh << " " << told.strategy);
    for (bool norms : {true, false}) {
      const auto [rows, claim] = on_ranks(ranks_of(axes), [&](World& world) {
        Mesh mesh(world, axes);
        Step step(norms ? normed_cnn() : small_cnn(), cross_entropy, Sgd{}, mesh, parse_strategy(told.strategy));
        return std::pair(StepProbe(step).batch_norm(), StepProbe(step).claim());
      });
      CHECK(rows == (norms ? told.rows : ""));
      CHECK(claim == (norms ? told.claim : Claim::exact));
    }
  }
}

TEST_CASE("ignored labels are counted over all ranks") {
  Setup s{.model = small_cnn, .loss = cross_entropy_with({.ignore_index = 2}), .steps = 6};
  auto reference = serial_run(s);
  for (int ranks : rank_counts({3})) check_close(parallel_run(s, ranks, data_parallel()), reference, 1e-12);
  // A function of one's own around such a loss says what it ignores; where others have labels it is refused else.
  const Loss inner = s.loss;
  const auto twice = [inner](const Tensor& x, const Tensor& y) { return scale(inner(x, y), 0.5) + inner(x, y) * 0.5; };
  s.loss = Loss(twice, inner.ignored());
  for (int ranks : rank_counts({2}))
    for (const Strategy& strategy : {data_parallel(), accumulate(3) | data_parallel()})
      check_close(parallel_run(s, ranks, strategy), reference, 1e-11);
  s.loss = twice;
  check_close(serial_run(s), reference, 1e-11);
  CHECK_ERROR(serial_run(s, accumulate(3)), usage, 17, 50);
}

TEST_CASE("options without an effect are refused") {
  CHECK_ERROR(parse_strategy("data_parallel(norm_group=4)"), usage, 4, "norm_scope");
  CHECK_ERROR(parse_strategy("one_weird_trick(norm_group=2, norm_scope=local)"), usage, 2, "local");
  CHECK_ERROR(parse_strategy("pipeline(partition=even, memory=1000)"), usage, 1000, "even");
  CHECK_ERROR(parse_strategy("pipeline(partition=\"3, 5\", bandwidth=1000)"), usage, 1000, "3, 5");
  CHECK_ERROR(parse_strategy("gossip(graph=ring, seed=3)"), usage, 3, "ring");
  CHECK_NOTHROW(parse_strategy("data_parallel(norm_group=4, norm_scope=group)"));
  CHECK_NOTHROW(parse_strategy("pipeline(memory=1000, bandwidth=1000)"));
  CHECK_NOTHROW(parse_strategy("gossip(graph=random, seed=3) "));
  CHECK_NOTHROW(parse_strategy("gossip(graph=ring, mode=async, seed=3)"));
}

TEST_CASE("a layer that mixes the rows of a batch is refused where ranks or micro-batches share it") {
  const auto run = [](int ranks, const std::string& strategy, const std::function<Tensor(const Tensor&)>& layer) {
    Setup s{.model =
                [layer] {
                  return Sequential{flatten, Linear(4, 5), Module(layer)};
                },
            .samples = 8,
            .batch = 8,
            .steps = 1,
            .shape = {2, 2, 1}};
    return parallel_run(s, ranks, parse_strategy(strategy)).losses.size();
  };
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> layers = {
      {"softmax", [](const Tensor& x) { return softmax(x, 0); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 0); }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }},
      {"max", [](const Tensor& x) { return x - amax(x, {0}, true); }},
      {"logsumexp", [](const Tensor& x) { return x - logsumexp(x, {0}, true); }},
      {"tril", [](const Tensor& x) { return tril(x); }},
      {"topk", [](const Tensor& x) { return x + topk(x, x.dim(0), 0).values; }},
      {"matmul", [](const Tensor& x) { return matmul(matmul(x, x, {.transpose_b = true}), x); }},
      {"mean", [](const Tensor& x) { return x - reduce(x, ReduceKind::mean, {0}); }}};
  for (const auto& [op, layer] : layers) {
    INFO(op);
    CHECK(run(1, "serial", layer) == 1);
    if (under_mpi()) continue;
    CHECK_ERROR(run(2, "data_parallel", layer), usage, op, 8);
    CHECK_ERROR(run(1, "accumulate(micro=2)", layer), usage, op, 8);
  }
}

}  // namespace test_strategies

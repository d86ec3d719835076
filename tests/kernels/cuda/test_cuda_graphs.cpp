// Steps that are replayed as CUDA graphs beside those whose kernels are started one by one: the same bits.
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/layers/init.h"
#include "framework/layers/on.h"
#include "kernels/core/runtime.h"
#include "models/registry/models.h"
#include "parallel/runtime/step_probe.h"
#include "tests/kernels/cuda/no_device.h"
#include "tests/support/ranks.h"

namespace test_cuda_graphs {

using namespace trireme;
using namespace trireme::test;
using Values = std::vector<double>;

namespace {

/// Before the plugin is opened: ranks get emulated devices of their own.
const int devices = setenv("TRIREME_EMULATOR_DEVICES", "3", 0);

struct Run {
  Outcome outcome;
  int replayed = 0;
  std::string why_not;
};

Module model_on_device(const std::string& name, const Shape& input) {
  Module model = make_model(name, {.input = input, .classes = 10});
  initialize(model, 1);
  place(model, cuda());
  return model;
}

/// Two epochs of five batches each and one of another size.
Run train(const std::string& name, const Shape& input, DType dtype, const OptimizerConfig& optimizer_config,
          StepOptions options, const Loss& loss = cross_entropy) {
  World world;
  options.keep_outputs = whole_output;
  Step step(model_on_device(name, input), loss, optimizer_config, world, {}, options);
  Run run;
  Values losses;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    Loader loader(Dataset(std::make_unique<Noise>(22, input)),
                  {.batch = 4, .epoch = epoch, .workers = 0, .dtype = dtype, .device = cuda()});
    for (auto& [x, y] : loader) {
      losses.push_back(step(x, y).item());
      run.replayed += StepProbe(step).replayed();
      for (const double value : StepProbe(step).outputs().to_vector()) losses.push_back(value);
    }
    StepProbe(step).consolidate();
  }
  run.why_not = StepProbe(step).not_replayed();
  run.outcome = outcome(world, losses, step.parameters());
  return run;
}

}  // namespace

TEST_CASE("replayed steps are those that are started kernel by kernel, bit for bit") {
  if (no_device()) return;
  struct Case {
    const char* model;
    Shape input;
    DType dtype;
    OptimizerConfig optimizer_config;
  };
  const Schedule rate = exponential(0.01, 0.9);
  const std::size_t before = runtime(DeviceKind::cuda).in_use();
  for (const auto& [model, input, dtype, optimizer_config] :
       {Case{"mnist_cnn", {28, 28, 1}, DType::f32, Adam{.lr = rate}},
        Case{"mnist_cnn", {28, 28, 1}, DType::bf16, Sgd{.lr = rate, .momentum = 0.9}},
        Case{"lenet5", {28, 28, 1}, DType::f16, Sgd{.lr = rate, .momentum = 0.9}},
        Case{"resnet20", {8, 8, 3}, DType::bf16, Lars{.lr = rate}},
        Case{"resnet20", {8, 8, 3}, DType::f32, AdamW{.lr = rate}}}) {
    INFO(model << " " << name_of(dtype));
    StepOptions options{.seed = 5, .optimizer = {.clip_norm = 1}, .loss_scale = dtype == DType::f16 ? 1024.0 : 0.0};
    const Run started = train(model, input, dtype, optimizer_config, options);
    options.cuda_graphs = true;
    const Run replayed = train(model, input, dtype, optimizer_config, options);
    CHECK(started.replayed == 0);
    CHECK(replayed.why_not.empty());
    CHECK(replayed.replayed == 8);  // of five alike the first is started
    CHECK(replayed.outcome.losses == started.outcome.losses);
    CHECK(replayed.outcome.weights == started.outcome.weights);
    CHECK(replayed.outcome.buffers == started.outcome.buffers);
  }
  CHECK(runtime(DeviceKind::cuda).in_use() == before);
}

TEST_CASE("replayed steps of several ranks are those that are started kernel by kernel, bit for bit") {
  if (no_device()) return;
  struct Case {
    const char* model;
    Shape input;
    Strategy strategy;
    StepOptions options;
    OptimizerConfig optimizer_config = Sgd{.lr = 0.02, .momentum = 0.9};
  };
  const DataParallelOptions small{.first_bucket = 500, .bucket = 3000};
  DataParallelOptions own_norm = small, at_end = small;
  own_norm.norm_scope = NormScope::local;
  at_end.overlap = false;
  const std::vector<Case> cases{
      {"mnist_cnn", {28, 28, 1}, data_parallel(small), {.optimizer = {.clip_norm = 1}}},
      {"mnist_cnn", {28, 28, 1}, data_parallel(at_end), {}, Adam{.lr = 0.01}},
      {"resnet20", {8, 8, 3}, data_parallel(own_norm), {.checks = {.every = 1}}},
      {"resnet20", {8, 8, 3}, data_parallel(small), {}, Lars{.lr = 0.1}},  // statistics of all ranks' rows
      {"resnet20", {8, 8, 3}, data_parallel(small) | zero(1), {.optimizer = {.clip_norm = 1}}},
      {"lenet5", {28, 28, 1}, data_parallel() | central_storage(), {}}};
  for (int ranks : {2, 3})
    for (const Case& c : cases) {
      const auto number = &c - cases.data();
      if (ranks == 3 && number != 0 && number != 3) continue;
      INFO(c.model << " " << c.strategy.name() << " on " << ranks << " ranks");
      const auto run = [&](bool graphs) {
        return on_ranks(ranks, [&](World& world) {
          const Device mine = cuda(world.rank() % open_backend(DeviceKind::cuda).devices);
          (void)world.use(mine);
          Module model = make_model(c.model, {.input = c.input, .classes = 10});
          initialize(model, 1);
          place(model, mine);
          StepOptions options = c.options;
          options.seed = 5;
          options.cuda_graphs = graphs;
          Step step(model, cross_entropy, c.optimizer_config, world, c.strategy, options);
          Run run;
          Values losses;
          for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
            // Batches of 6, then one of 4: on two ranks of 2 each, on three of 2, 1 and 1, where one rank's shape is
            // as before and the others' are not.
            Loader loader(Dataset(std::make_unique<Noise>(28, c.input)),
                          {.batch = 6, .epoch = epoch, .shard = step.shard(), .workers = 0, .device = mine});
            for (auto& [x, y] : loader) {
              losses.push_back(step(x, y).item());
              run.replayed += StepProbe(step).replayed();
            }
          }
          run.why_not = StepProbe(step).not_replayed();
          StepProbe(step).consolidate();
          run.outcome = outcome(world, losses, step.parameters());
          return run;
        });
      };
      const Run started = run(false), replayed = run(true);
      CHECK(started.replayed == 0);
      CHECK(replayed.why_not == "");
      CHECK(replayed.replayed >= 6);
      CHECK(replayed.outcome.losses == started.outcome.losses);
      CHECK(replayed.outcome.weights == started.outcome.weights);
      CHECK(replayed.outcome.buffers == started.outcome.buffers);
    }
}

TEST_CASE("layers that ranks divide are replayed if they only sum, and say why if not") {
  if (no_device()) return;
  const auto train_on = [](bool graphs, const Loss& loss) {
    return on_ranks(2, [&](World& world) {
      const Device mine = cuda(world.rank() % open_backend(DeviceKind::cuda).devices);
      (void)world.use(mine);
      Module model = Sequential{Linear(12, 20), relu, Linear(20, 8), relu, Linear(8, 5)};
      initialize(model, 1);
      place(model, mine);
      Mesh mesh(world, {{"tensor", 2}});
      Step step(model, loss, Sgd{.lr = 0.05}, mesh, tensor(), {.cuda_graphs = graphs});
      Run run;
      Values losses;
      const Tensor x = normal({4, 12}, 0, 1, 3).to(mine), y = Tensor::full({4}, 1, DType::i64, mine);
      for (int i = 0; i < 4; ++i) {
        losses.push_back(step(x, y).item());
        run.replayed += StepProbe(step).replayed();
      }
      run.why_not = StepProbe(step).not_replayed();
      run.outcome = outcome(world, losses, step.parameters());
      return run;
    });
  };
  // Cross-entropy leaves logits where they are. Another loss gathers them, which needs the host.
  const Loss gathers = [](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); };
  for (const bool sums : {true, false}) {
    const Loss loss = sums ? Loss(cross_entropy) : gathers;
    const Run started = train_on(false, loss), tried = train_on(true, loss);
    CHECK((tried.replayed > 0) == sums);
    if (!sums) CHECK_THAT(tried.why_not, contains("capturing a CUDA graph"));
    CHECK(tried.outcome.losses == started.outcome.losses);
    CHECK(tried.outcome.weights == started.outcome.weights);
  }
}

TEST_CASE("a step that cannot be captured is started, and so are all after it") {
  if (no_device()) return;
  double seen = 0;
  const Loss reads = [&seen](const Tensor& x, const Tensor& y) {
    Tensor loss = cross_entropy(x, y);
    seen += loss.item();
    return loss;
  };
  StepOptions options{.seed = 5};
  const Run started = train("mnist_cnn", {28, 28, 1}, DType::f32, Sgd{.lr = 0.01}, options, reads);
  const double once = std::exchange(seen, 0);
  options.cuda_graphs = true;
  const Run same = train("mnist_cnn", {28, 28, 1}, DType::f32, Sgd{.lr = 0.01}, options, reads);
  CHECK(same.replayed == 0);
  CHECK(same.why_not.find("capturing a CUDA graph") != std::string::npos);
  CHECK(seen == once);
  CHECK(same.outcome.losses == started.outcome.losses);
  CHECK(same.outcome.weights == started.outcome.weights);
}

TEST_CASE("a replayed step refuses a loss that is not finite, and leaves the weights") {
  if (no_device()) return;
  World world;
  Step step(model_on_device("mnist_cnn", {28, 28, 1}), cross_entropy, Sgd{.lr = 0.01}, world, {},
            {.cuda_graphs = true});
  Loader loader(Dataset(std::make_unique<Noise>(4, Shape{28, 28, 1})), {.batch = 4, .workers = 0, .device = cuda()});
  const auto batch = loader.begin();
  for (int i = 0; i < 3; ++i) (void)step(batch->x, batch->y);
  REQUIRE(StepProbe(step).replayed());
  const Values before = step.parameters().values().to_vector();
  const Tensor bad = Tensor::full(batch->x.shape(), NAN, DType::f32, cuda());
  CHECK_ERROR(step(bad, batch->y), numerics, "nan", "input");
  CHECK(step.parameters().values().to_vector() == before);
  const Tensor kept = step(batch->x, batch->y);
  const double value = kept.item();
  CHECK(std::isfinite(value));
  (void)step(batch->x, batch->y);
  CHECK(kept.item() == value);  // the next step writes over the graph's own
  StepProbe(step).record(true);
  (void)step(batch->x, batch->y);
  CHECK(!StepProbe(step).replayed());
}

TEST_CASE("concurrent branches of a graph share no memory") {
  if (no_device()) return;
  Runtime& device = runtime(DeviceKind::cuda);
  const Tensor x = Tensor::full({1000}, 2, DType::f32, cuda());
  Tensor left, right, after;
  std::set<const void*> blocks;
  const auto twice = [&](Tensor& out) {
    return [&] {
      const Tensor between = x + x;  // released while the other side may be running
      blocks.insert(between.view().data);
      out = between * x;
      blocks.insert(out.view().data);
    };
  };
  auto graph = device.make_graph(cuda());
  graph->begin();
  device.fork_join(cuda(), twice(left), twice(right));
  CHECK(blocks.size() == 4);
  after = left + right;
  CHECK(blocks.contains(after.view().data));  // from here on it is free
  graph->end();
  graph->start(0);
  CHECK(after.to_vector() == Values(1000, 16));
}

TEST_CASE("what cannot be captured says so, and a graph's blocks outlive it") {
  if (no_device()) return;
  Runtime& device = runtime(DeviceKind::cuda);
  const std::size_t before = device.in_use();
  {
    const Tensor x = Tensor::full({1000}, 2, DType::f32, cuda());
    Tensor y, none;
    auto graph = device.make_graph(cuda());
    graph->begin();
    y = x + x;
    none = y * y;  // its block is free again within the graph
    none = {};
    none = y * x;
    graph->end();
    graph->start(0);
    CHECK(none.to_vector() == Values(1000, 8));
    x.copy_from(Tensor::full({1000}, 3, DType::f32, cuda()));
    graph->start(0);
    CHECK(y.to_vector() == Values(1000, 6));
    CHECK(none.to_vector() == Values(1000, 18));
    CHECK_ERROR(graph->start(1), usage, 1);
    graph->begin();
    CHECK_ERROR(y.to_vector(), usage, "CUDA");
    CHECK_ERROR(Tensor::full({4}, 1).to(cuda()), usage, "CUDA");
    graph.reset();
    CHECK(y.to_vector() == Values(1000, 6));
    CHECK((y + y).to_vector() == Values(1000, 12));
  }
  CHECK(device.in_use() == before);
}

}  // namespace test_cuda_graphs

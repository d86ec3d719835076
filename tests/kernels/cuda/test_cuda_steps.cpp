// Training steps of whole models on a device beside the CPU's; loss scaling.
#include <map>

#include "framework/layers/init.h"
#include "framework/layers/on.h"
#include "framework/tensor/launch.h"
#include "kernels/core/runtime.h"
#include "models/registry/models.h"
#include "parallel/runtime/step_resume.h"
#include "tests/kernels/cuda/no_device.h"
#include "tests/support/ranks.h"

namespace test_cuda_steps {

using namespace trireme;
using namespace trireme::test;
using Values = std::vector<double>;

TEST_CASE("steps of whole models equal the CPU's") {
  if (no_device()) return;
  const auto steps = [](const std::string& name, Shape input, DType type, Device device) {
    Module model = make_model(name, {.input = input, .classes = 10});
    initialize(model, 1);
    if (type == DType::f64) convert(model, type);
    place(model, device);
    World world;
    Step step(model, cross_entropy, Sgd{.lr = 0.02, .momentum = 0.9}, world, {}, {.seed = 3});
    Values losses;
    Loader loader(Dataset(std::make_unique<Noise>(24, input)),
                  {.batch = 8, .workers = 0, .dtype = type, .device = device});
    for (auto& [x, y] : loader) losses.push_back(step(x, y).item());
    return outcome(world, losses, step.parameters());
  };
  for (auto& [name, input] : {std::pair<std::string, Shape>{"mnist_cnn", {28, 28, 1}}, {"resnet20", {16, 16, 3}}}) {
    INFO(name);
    const Outcome exact = steps(name, input, DType::f64, cpu());
    for (auto [type, tolerance] : {std::pair{DType::f64, 1e-9}, {DType::f32, 1e-3}}) {
      INFO(name_of(type));
      const Outcome got = steps(name, input, type, cuda());
      CHECK(distance(got.losses, exact.losses) < tolerance);
      CHECK(distance(got.weights, exact.weights) < tolerance);
      CHECK(distance(got.buffers, exact.buffers) < tolerance);
    }
  }
}

TEST_CASE("narrow convolutions bring batch norm's sums with them: gradients and running statistics of two passes",
          "[moments]") {
  if (no_device()) return;
  struct Run {
    Values loss;
    std::vector<Values> gradients, statistics;
    std::map<std::string, int> launched;
  };
  const auto run = [](DType type, bool fused, Device device = cuda()) {
    Module model = Sequential{Conv2d(3, 16, 3, {.pad = 1, .bias = false}),
                              BatchNorm(16),
                              relu,
                              Conv2d(16, 24, 3, {.stride = 2, .pad = 1}),
                              BatchNorm(24),
                              relu,
                              Conv2d(24, 24, 3, {.pad = 1, .groups = 3}),
                              BatchNorm(24),
                              relu,
                              global_avg_pool,
                              flatten,
                              Linear(24, 5)};
    initialize(model, 1);
    if (type == DType::f64) convert(model, type);
    place(model, device);
    Parameters parameters(model);
    const Sequential& layers = *model.as<Sequential>();
    Loader loader(Dataset(std::make_unique<Noise>(8, Shape{12, 12, 3})),
                  {.batch = 8, .workers = 0, .dtype = type, .device = device});
    const auto batch = loader.begin();
    Run r;
    const LaunchWatch watch([&](const LaunchWatch::Call& call) { ++r.launched[call.op]; });
    Tensor y = batch->x;
    if (fused) y = model(y);
    for (std::size_t i = 0; !fused && i < layers.size(); ++i) y = layers[i](y);
    const Tensor loss = cross_entropy(y, batch->y);
    loss.backward();
    r.loss = loss.to_vector();
    model.visit(StateVisitor([&](const NamedState& leaf) {
      if (leaf.kind == StateKind::buffer)
        r.statistics.push_back(leaf.tensor->to_vector());
      else
        r.gradients.push_back(leaf.tensor->grad().to_vector());
    }));
    return r;
  };
  const Run exact = run(DType::f64, false, cpu());
  for (DType type : {DType::bf16, DType::f16}) {
    INFO(name_of(type));
    set_deterministic(type == DType::f16);  // in bf16 the sums may come in any order
    // Both are off by what bf16 rounds, some 10 % where terms cancel: so neither is the other's measure.
    const Run fused = run(type, true), apart = run(type, false);
    set_deterministic(true);
    CHECK((fused.launched.at("conv_moments") == 3 && fused.launched.count("batch_norm_moments") == 0));
    CHECK((apart.launched.at("batch_norm_moments") == 3 && apart.launched.count("conv_moments") == 0));
    CHECK(distance(fused.loss, apart.loss) < 1e-2);
    REQUIRE(fused.gradients.size() == apart.gradients.size());
    for (std::size_t i = 0; i < fused.gradients.size(); ++i) {
      INFO(i);
      const Values& right = exact.gradients[i];
      if (distance(right, Values(right.size())) < 1e-12)
        continue;  // of a bias in front of a norm: nothing but rounding
      CHECK(distance(fused.gradients[i], right) < 2 * distance(apart.gradients[i], right));
    }
    for (std::size_t i = 0; i < fused.statistics.size(); ++i) {
      const Values& right = exact.statistics[i];
      CHECK(distance(fused.statistics[i], right) < 1.5 * distance(apart.statistics[i], right));
    }
  }
}

TEST_CASE("loss scaling: f16 trains, and a step that overflows changes no weight") {
  if (no_device()) return;
  Module model = make_model("lenet5", {.input = {28, 28, 1}, .classes = 10});
  initialize(model, 1);
  place(model, cuda());
  World world;
  Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, {}, {.loss_scale = 0x1p24});
  Loader loader(Dataset(std::make_unique<Noise>(8, Shape{28, 28, 1})),
                {.batch = 8, .workers = 0, .dtype = DType::f16, .device = cuda()});
  const auto batch = loader.begin();
  const double first = step(batch->x, batch->y).item();
  double last = first;
  for (int i = 0; i < 40; ++i) last = step(batch->x, batch->y).item();
  CHECK(std::isfinite(last));
  CHECK(last < first);
  StepResume(step).set_loss_scale({.scale = 0x1p40});
  const auto before = step.parameters().values().to_vector();
  (void)step(batch->x, batch->y);
  CHECK(step.parameters().values().to_vector() == before);
  CHECK(StepResume(step).loss_scale().scale == 0x1p39);
}

TEST_CASE("weights that are placed under SkipInit go to a device when they are first used") {
  if (no_device()) return;
  const Runtime& gpus = runtime(DeviceKind::cuda);
  const auto make = [](Device device) {
    const SkipInit zeros;
    return Module(Sequential{on(device, Linear(64, 2048)), on(device, Linear(2048, 8))});
  };
  const auto numbers = [](Module model) {
    std::vector<Values> all;
    model.visit(StateVisitor([&](const NamedState& leaf) { all.push_back(leaf.tensor->to_vector()); }));
    return all;
  };
  const std::size_t before = gpus.in_use();
  Module model = make(cuda());
  CHECK(gpus.in_use() == before);
  CHECK_ERROR(make(cuda(99)), device, "cuda:99");
  Module host = make(cpu());
  initialize(host, 3);
  initialize(model, 3);
  CHECK(gpus.in_use() - before >= 2048 * (64 + 8) * sizeof(float));
  CHECK(numbers(model) == numbers(host));
  const Parameters whole(make(cuda()));  // without the Step
  CHECK(whole.values().to_vector() == Values(static_cast<std::size_t>(whole.size())));
}

TEST_CASE("under ZeRO devices have no memory for what other ranks hold") {
  if (no_device()) return;
  constexpr Index wide = 4096, narrow = 512;
  const auto in_use = [](int stage) {
    return on_ranks(2, [stage](World& world) {
      const Device mine = cuda(world.rank() % open_backend(DeviceKind::cuda).devices);
      (void)world.use(mine);
      Module model = Sequential{Linear(narrow, wide, {.bias = false}), relu, Linear(wide, narrow, {.bias = false})};
      initialize(model, 1);
      place(model, mine);
      Step step(model, mse_loss, Sgd{.lr = 0.01}, world, data_parallel() | zero(stage));
      const Tensor x = normal({2, narrow}, 0, 1, 3).to(mine), y = Tensor::zeros({2, narrow}, DType::f32, mine);
      for (int i = 0; i < 2; ++i) (void)step(x, y).item();
      runtime(DeviceKind::cuda).synchronize(mine);
      world.comm().barrier();
      const std::size_t bytes = runtime(DeviceKind::cuda).in_use();
      world.comm().barrier();
      return static_cast<double>(bytes);
    });
  };
  // Of each rank's gradients, and weights, half is the other's; of that some is left at the edges of chunks (2 MiB).
  const double half = narrow * wide * sizeof(float), first = in_use(1), second = in_use(2), third = in_use(3);
  CHECK(first - second > 0.6 * 2 * half);
  CHECK(first - second <= 2 * half);
  CHECK(second - third > 0.6 * 2 * half);
  CHECK(second - third <= 2 * half);
}

}  // namespace test_cuda_steps

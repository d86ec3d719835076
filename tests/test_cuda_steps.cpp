// Training steps of whole models on a device beside the CPU's; loss scaling.
#include "framework/init.h"
#include "framework/on.h"
#include "models/models.h"
#include "tests/no_device.h"
#include "tests/ranks.h"

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
    Loader loader(Dataset(std::make_shared<Noise>(24, input)),
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

TEST_CASE("loss scaling: f16 trains, and a step that overflows changes no weight") {
  if (no_device()) return;
  Module model = make_model("lenet5", {.input = {28, 28, 1}, .classes = 10});
  initialize(model, 1);
  place(model, cuda());
  World world;
  Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, {}, {.loss_scale = 0x1p24});
  Loader loader(Dataset(std::make_shared<Noise>(8, Shape{28, 28, 1})),
                {.batch = 8, .workers = 0, .dtype = DType::f16, .device = cuda()});
  const auto batch = loader.begin();
  const double first = step(batch->x, batch->y).item();
  double last = first;
  for (int i = 0; i < 40; ++i) last = step(batch->x, batch->y).item();
  CHECK(std::isfinite(last));
  CHECK(last < first);
  step.set_loss_scale(0x1p40);
  const auto before = step.parameters().values().to_vector();
  (void)step(batch->x, batch->y);
  CHECK(step.parameters().values().to_vector() == before);
  CHECK(step.loss_scale() == 0x1p39);
}

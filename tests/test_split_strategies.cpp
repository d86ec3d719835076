// Strategies that split layers, alone and with data parallelism, against the serial run, parameter by parameter.
#include "models/resnet.h"
#include "tests/training.h"

using namespace trireme;
using namespace trireme::test;

namespace {

struct Split {
  std::string mesh, strategy;
};
const std::vector<Split> splits = {
    {"h=1", "spatial"},
    {"h=2", "spatial"},
    {"w=3", "spatial"},
    {"h=4", "spatial(axes=h)"},
    {"h=2,w=2", "spatial"},
    {"h=4,w=2", "spatial"},
    {"data=2,h=2", "spatial | data_parallel(norm_scope=global)"},
    {"data=3,h=2", "data_parallel(norm_scope=global, overlap=false) | spatial"},
    {"data=2,h=2,w=2", "spatial | data_parallel(norm_scope=global)"},
    {"tensor=1", "tensor"},
    {"tensor=2", "tensor"},
    {"tensor=3", "tensor"},
    {"tensor=4", "tensor"},
    {"model=8", "tensor(axis=model)"},
    {"data=2,tensor=2", "tensor | data_parallel(norm_scope=global)"},
    {"data=2,tensor=4", "data_parallel(norm_scope=global) | tensor"},
    {"tensor=2,h=2", "tensor | spatial"},
    {"data=2,tensor=2,h=2", "tensor | spatial | data_parallel(norm_scope=global)"},
    {"data=2", "one_weird(norm_scope=global)"},
    {"data=3", "one_weird(norm_scope=global)"},
    {"data=4", "one_weird(norm_scope=global, overlap=false)"},
    {"data=8", "one_weird(norm_scope=global)"},
};

void compare_all(const Setup& s, double tolerance) {
  const Outcome reference = serial_run(s);
  for (const Split& split : splits) {
    const auto axes = parse_mesh(split.mesh);
    if (under_mpi() && ranks_of(axes) != processes().size()) continue;
    INFO(split.mesh << " " << split.strategy);
    check_close(parallel_run(s, axes, parse_strategy(split.strategy)), reference, tolerance);
  }
}

/// 20 steps; the last of a round's batches has 5 rows.
Setup setup(std::function<Module()> model, const Shape& shape = {12, 12, 1}) {
  return {.model = std::move(model), .samples = 55, .batch = 10, .steps = 20, .shape = shape};
}

Sequential small_cnn() {
  return {Conv2d(1, 8, 3), relu, Conv2d(8, 8, 3), relu,          MaxPool(2), Dropout(0.25), flatten,
          Linear(128, 16), relu, Dropout(0.5),    Linear(16, 10)};
}

}  // namespace

TEST_CASE("split layers of a CNN train the serial run's model, dropout included") {
  compare_all(setup(small_cnn), 1e-11);
}

TEST_CASE("split layers of an MLP train the serial run's model") {
  compare_all(setup([] { return Sequential{flatten, Linear(144, 24), relu, Linear(24, 16), relu, Linear(16, 10)}; }),
              1e-11);
}

TEST_CASE("split layers of a residual network train the serial run's model, batch norm's statistics included") {
  compare_all(setup([] { return cifar_resnet(8, {.input = {8, 8, 1}}); }, {8, 8, 1}), 1e-11);
}

TEST_CASE("on integers split layers equal serial bit by bit") {
  compare_all({.model =
                   [] {
                     return with_integers(Sequential{Conv2d(1, 8, 3), relu, MaxPool(2), Conv2d(8, 8, 3), flatten,
                                                     Linear(72, 8), relu, Linear(8, 8)});
                   },
               .loss = pattern_loss,
               .recipe = Sgd{.lr = 0.125},
               .samples = 16,
               .batch = 8,
               .steps = 2,
               .shape = {12, 12, 1},
               .integers = true},
              0);
}

TEST_CASE("splits that cannot be say what would work") {
  if (under_mpi()) return;
  const auto refusal = [](const std::string& mesh, const std::string& strategy, const Shape& shape) {
    const auto axes = parse_mesh(mesh);
    try {
      World::threads(ranks_of(axes), [&](World& world) {
        Setup s = setup([] { return Sequential{Conv2d(1, 3, 1), flatten, Linear(48, 10)}; }, shape);
        s.steps = 1;
        train(s, world, axes, parse_strategy(strategy));
      });
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  CHECK_THAT(refusal("h=2", "data_parallel", {4, 4, 1}), Catch::Contains("mesh axis 'h' has 2 ranks"));
  CHECK_THAT(refusal("data=2", "spatial", {4, 4, 1}), Catch::Contains("name one, as in h=2"));
  CHECK_THAT(refusal("data=2", "tensor", {4, 4, 1}), Catch::Contains("name one, as in tensor=2"));
  CHECK_THAT(refusal("h=5", "spatial", {4, 4, 1}), Catch::Contains("at most 4 ranks would work"));
  CHECK_THAT(refusal("tensor=4", "tensor", {4, 4, 1}), Catch::Contains("at most 3 ranks would work"));
  CHECK_THAT(refusal("d=2", "spatial", {4, 4, 1}), Catch::Contains("no axis to split over the mesh axis 'd'"));
  CHECK_THAT(refusal("h=2", "spatial(axes=rows)", {4, 4, 1}), Catch::Contains("there are: h, w, d"));
  CHECK_THAT(refusal("data=2,h=2", "one_weird | spatial", {4, 4, 1}), Catch::Contains("leave out spatial and tensor"));
}

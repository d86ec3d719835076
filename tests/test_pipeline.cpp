// Pipelines and gradient accumulation, alone and with data parallelism, against the serial run in the same
// micro-batches. Run it under mpiexec for MPI; without, ranks are threads.
#include "tests/training.h"

using namespace trireme;
using namespace trireme::test;

namespace {

/// The form of the MNIST CNN: 6 parts.
Sequential small_cnn() {
  return {Conv2d(1, 2, 3), relu, Conv2d(2, 3, 3), relu,        MaxPool(2), Dropout(0.25), flatten,
          Linear(3, 8),    relu, Dropout(0.5),    Linear(8, 5)};
}
/// 9 parts.
Sequential small_mlp() {
  Sequential model{flatten, Linear(36, 6), relu};
  for (int i = 0; i < 6; ++i) model.add(Linear(6, 6)).add(relu);
  return model.add(Linear(6, 5));
}
Conv2d conv3(Index in, Index out, Index stride = 1) {
  return {in, out, 3, {.stride = stride, .pad = 1, .bias = false}};
}
/// Two residual blocks whose layers are parts of their own, so that a cut may fall inside one: 12 parts.
Sequential small_resnet() {
  return {conv3(1, 3),    BatchNorm(3),
          relu,           Stash{"a"},
          conv3(3, 3),    BatchNorm(3),
          relu,           conv3(3, 3),
          BatchNorm(3),   AddStashed("a"),
          relu,           Stash{"b"},
          conv3(3, 4, 2), BatchNorm(4),
          relu,           conv3(4, 4),
          BatchNorm(4),   AddStashed("b", Sequential{Conv2d(3, 4, 1, {.stride = 2, .bias = false}), BatchNorm(4)}),
          relu,           flatten,
          Linear(36, 5)};
}

struct Model {
  const char* name;
  std::function<Module()> make;
  int parts;
};
const std::vector<Model> models = {{"cnn", small_cnn, 6}, {"resnet", small_resnet, 12}, {"mlp", small_mlp, 9}};

/// 20 steps; every fourth batch has one row.
Setup setup_of(const Model& model) {
  return {.model = model.make,
          .recipe = Sgd{.lr = 0.05, .momentum = 0.9},
          .samples = 37,
          .batch = 12,
          .steps = 20,
          .shape = {6, 6, 1}};
}

std::vector<PipelineOptions> schedules_of(int micro) {
  std::vector<PipelineOptions> all;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"})
    all.push_back({.micro = micro, .schedule = schedule, .chunks = schedule == std::string("interleaved") ? 2 : 1});
  return all;
}

}  // namespace

TEST_CASE("every schedule on any number of stages trains what serial accumulation does") {
  for (auto& model : models) {
    const Setup s = setup_of(model);
    for (int micro : {4, 6}) {
      const auto reference = serial_run(s, accumulate(micro));
      for (int ranks : rank_counts({2, 3, 4, 8}))
        for (auto& o : schedules_of(micro)) {
          if (ranks * o.chunks > model.parts || (o.chunks > 1 && micro % ranks != 0)) continue;
          INFO(model.name << ", " << o.schedule << ", " << ranks << " stages, " << micro << " micro-batches");
          check_close(parallel_run(s, {{"pipe", ranks}}, pipeline(o)), reference, 1e-11);
        }
    }
  }
}

// Each kind of parallelism on the same MNIST CNN, with four ranks each. `parallelism [STEPS]` runs all of them on
// threads, `mpiexec -n 4 parallelism [STEPS]` on processes. All train the same model as one process does; the program
// compares the losses.
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
using namespace trireme;

namespace {
int steps = 20;
const Sgd sgd{.lr = 0.05, .momentum = 0.9};

/// Equal initial weights for all.
Module model() {
  Module m = mnist_cnn();
  initialize(m, 1);
  return m;
}

/// Trains a rank on its rows of each batch. Returns the loss of the last batch.
double train(Step& step) {
  int done = 0;
  for (auto& [x, y] : Loader(Mnist("train"), {.batch = 64, .shuffle = true, .shard = step.shard()})) {
    const Tensor loss = step(x, y);
    if (++done == steps) return loss.item();
  }
  return NAN;
}

/// Each rank takes a quarter of the batch. Gradients are summed during backward.
double by_data(World& world) {
  Step step(model(), cross_entropy, sgd, world, data_parallel());
  return train(step);
}

/// The same; each rank also stores only a quarter of the weights, gradients and optimizer state (ZeRO).
double by_data_in_shards(World& world) {
  Step step(model(), cross_entropy, sgd, world, data_parallel() | zero(3));
  return train(step);
}

/// Each rank takes a quarter of the batch. Only rank 0 has optimizer state; it updates and broadcasts the weights.
double by_central_storage(World& world) {
  Step step(model(), cross_entropy, sgd, world, data_parallel() | central_storage());
  return train(step);
}

/// Each rank takes its quarter in two consecutive micro-batches: half the activations.
double by_accumulation(World& world) {
  Step step(model(), cross_entropy, sgd, world, accumulate(2) | data_parallel());
  return train(step);
}

/// Each rank holds some of the layers. Eight micro-batches flow through them.
double by_pipeline(World& world) {
  Mesh mesh(world, {{"pipe", 4}});
  Step step(model(), cross_entropy, sgd, mesh, pipeline({.micro = 8, .schedule = "1f1b"}));
  return train(step);
}

/// Two pipelines of two stages, each with half of the batch.
double by_pipeline_and_data(World& world) {
  Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
  Step step(model(), cross_entropy, sgd, mesh, pipeline({.micro = 4, .schedule = "zb-h1"}) | data_parallel());
  return train(step);
}

/// Each rank holds a quarter of every filter bank and weight matrix.
double by_tensor(World& world) {
  Mesh mesh(world, {{"tensor", 4}});
  Step step(model(), cross_entropy, sgd, mesh, tensor());
  return train(step);
}

/// Each rank has a quarter of every image, two by two. Neighbours exchange edges.
double by_space(World& world) {
  Mesh mesh(world, {{"h", 2}, {"w", 2}});
  Step step(model(), cross_entropy, sgd, mesh, spatial());
  return train(step);
}

/// Each pair of ranks takes half of the batch; within a pair each rank has the upper or lower half of every image.
double by_space_and_data(World& world) {
  Mesh mesh(world, {{"data", 2}, {"h", 2}});
  Step step(model(), cross_entropy, sgd, mesh, spatial() | data_parallel());
  return train(step);
}

/// Convolutions divide the batch, fully connected layers their outputs, over the same ranks.
double by_one_weird_trick(World& world) {
  Step step(model(), cross_entropy, sgd, world, one_weird_trick());
  return train(step);
}

/// Convolutions on one device of each rank, fully connected layers on another, placed by hand. With GPUs use cuda(0)
/// and cuda(1).
double by_hand(World& world) {
  const Module whole = model();
  const auto& layers = *whole.as<Sequential>();
  Sequential placed;
  for (std::size_t i = 0; i < layers.size(); ++i) placed.add(layers.name(i), on(cpu(i < 6 ? 0 : 1), layers[i]));
  Step step(placed, cross_entropy, sgd, world, data_parallel());
  return train(step);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) steps = std::atoi(argv[1]);
  const std::pair<const char*, double (*)(World&)> kinds[] = {
      {"data", by_data},
      {"data, in shards", by_data_in_shards},
      {"data, one update", by_central_storage},
      {"data, accumulated", by_accumulation},
      {"pipeline", by_pipeline},
      {"pipeline x data", by_pipeline_and_data},
      {"tensor", by_tensor},
      {"space", by_space},
      {"space x data", by_space_and_data},
      {"one weird trick", by_one_weird_trick},
      {"by hand", by_hand},
  };
  return World::run(argc, argv, 4, [&](World& world) {
    World alone;
    Step serial(model(), cross_entropy, sgd, alone, Strategy());
    const double expected = train(serial);
    if (world.main()) std::printf("%-20s loss %.6f\n", "one process", expected);
    for (auto& [name, run] : kinds) {
      const double loss = run(world);
      if (world.main()) std::printf("%-20s loss %.6f\n", name, loss);
      check(std::abs(loss - expected) < 1e-3, "parallelism", "{}: the loss is {}, one process has {}", name, loss,
            expected);
    }
  });
}

// A program outside the tree: trains three steps on the installed MNIST and prints the losses; then trains by the
// Trainer, which goes on where it stopped.
#include <trireme/framework/ops/unary.h>
#include <trireme/kernels/cpu/map.h>
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>

#include "datasets/dataset.h"
#include "models/resnet.h"
using namespace trireme;

// A program's own types, with names that the library uses inside.
struct Block {};
struct Frozen {};
struct LeafState {};
struct Node {};
struct Storage {};
using Own = std::tuple<Block, Frozen, LeafState, Node, Storage>;

/// F.hardshrink: an op of this program's own, with a parameter.
struct HardShrink {
  static constexpr char name[] = "hard_shrink", backward_name[] = "hard_shrink_backward";
  static constexpr bool needs_x = true, needs_y = false;
  double lambda = 0.5;
  constexpr auto value(auto x) const { return x >= -lambda && x <= lambda ? 0 : x; }
  constexpr auto slope(auto x, auto) const { return x >= -lambda && x <= lambda ? decltype(x)(0) : 1; }
};
const CpuFormula<HardShrink> hard_shrink_cpu;
Tensor hard_shrink(const Tensor& x, double lambda) { return ops::unary(x, HardShrink{lambda}); }

int main(int argc, char** argv) {
  const Sequential overloaded{Linear(8, 8), tanh};  // which <cmath> has, too
  Sequential model{Conv2d(1, 8, 3), [](const Tensor& x) { return hard_shrink(x, 0.01); },
                   MaxPool(2),      Dropout(0.25),
                   flatten,         Linear(8 * 13 * 13, 10)};
  World world(argc, argv);
  Step step(model, cross_entropy, Sgd{.lr = own_rate, .momentum = 0.9}, world, data_parallel());
  int steps = 0;
  for (auto& [x, y] : Loader(Mnist("train"), {.batch = 128, .shuffle = true, .shard = world})) {
    std::printf("loss %.4f\n", step(x, y).item());
    if (++steps == own_steps()) break;
  }

  const Dataset data = Synthetic({.size = 64, .shape = {4, 4, 1}, .classes = 3});
  const auto input = [&] {
    return TrainerInput{.model = Sequential{flatten, Linear(16, 8), relu, Linear(8, 3)}, .train = data, .test = data};
  };
  TrainerOptions options{.model = "tiny", .epochs = 1};
  options.data.batch = 16;
  options.optim.schedule = "constant";
  options.run.dir = std::string(argv[0]) + "-run";
  options.run.progress = "off";
  options.run.tensorboard = true;
  Trainer(input(), options, world).run();
  options.epochs = 3;
  options.run.resume = "yes";
  const TrainerResult result = Trainer(input(), options, world).run();
  std::printf("trained %d steps: %s; %s\n", int(result.steps), result.test.text().c_str(), result.checkpoint.c_str());
}

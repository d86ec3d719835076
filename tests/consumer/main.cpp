// A program outside the tree: trains three steps on the installed MNIST and prints the losses.
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>

#include "datasets/dataset.h"
#include "models/resnet.h"
using namespace trireme;

int main(int argc, char** argv) {
  const Sequential overloaded{Linear(8, 8), tanh};  // which <cmath> has, too
  Sequential model{Conv2d(1, 8, 3), relu, MaxPool(2), Dropout(0.25), flatten, Linear(8 * 13 * 13, 10)};
  World world(argc, argv);
  Step step(model, cross_entropy, Sgd{.lr = own_rate, .momentum = 0.9}, world, data_parallel());
  int steps = 0;
  for (auto& [x, y] : Loader(Mnist("train"), {.batch = 128, .shuffle = true, .shard = world})) {
    std::printf("loss %.4f\n", step(x, y).item());
    if (++steps == own_steps()) break;
  }
}

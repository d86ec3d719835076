// A training loop with Step. Run it alone, or as `mpiexec -n 4 step_loop [STEPS]`: the ranks share the batch and train
// the same model.
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>
using namespace trireme;

int main(int argc, char** argv) {
  Sequential model{Conv2d(1, 32, 3),  relu, Conv2d(32, 64, 3), relu,           MaxPool(2), Dropout(0.25), flatten,
                   Linear(9216, 128), relu, Dropout(0.5),      Linear(128, 10)};
  World world(argc, argv);
  Step step(model, cross_entropy, Sgd{.lr = 0.05, .momentum = 0.9}, world, data_parallel());

  RunningMean loss;
  int steps = 0, last = argc > 1 ? std::atoi(argv[1]) : 100;
  for (auto& [x, y] : Loader(Mnist("train"), {.batch = 128, .shuffle = true, .shard = world})) {
    loss.add(step(x, y).item());
    if (++steps % 10 == 0 && world.main())
      std::printf("step %d: loss %.4f, mean so far %.4f\n", steps, loss.last(), loss.mean());
    if (steps == last) break;
  }
}

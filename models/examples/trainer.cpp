// Regression with the Trainer: evaluation, metrics, checkpoints and a run directory. Run `trainer DIR [EPOCHS]`, or on
// ranks `mpiexec -n 2 trainer DIR`. The same command resumes a stopped run.
#include <trireme/trireme.h>

#include <cstdlib>
using namespace trireme;

Dataset sines(Index rows, std::uint64_t seed) {
  const Tensor x = normal({rows, 8}, 0, 1, seed);
  return TensorDataset(x, sin(sum(x, {1}, true)));
}

int main(int argc, char** argv) {
  return World::run(argc, argv, 1, [&](World& world) {
    Trainer trainer({.model = Sequential{Linear(8, 64), relu, Linear(64, 64), relu, Linear(64, 1)},
                     .train = sines(8192, 1),
                     .test = sines(1024, 2),
                     .loss = mse_loss,
                     .metrics = {RegressionErrors{}}},
                    {.model = "sines",
                     .epochs = argc > 2 ? std::atoi(argv[2]) : 5,
                     .run = {.dir = argc > 1 ? argv[1] : "runs/sines", .resume = "auto"}},
                    world);
    trainer.run();
  });
}

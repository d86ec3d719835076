// A hand-written training loop: MNIST, one process: `hand_written [STEPS]`.
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>
using namespace trireme;

int main(int argc, char** argv) {
  Module model = mnist_cnn();
  Parameters parameters(model);
  Optimizer sgd(parameters, Sgd{.lr = 0.05, .momentum = 0.9});

  int step = 0, last = argc > 1 ? std::atoi(argv[1]) : 100;
  for (auto& [x, y] : Loader(Mnist("train"), {.batch = 128, .shuffle = true})) {
    Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    sgd.step();  // also clears the gradients
    if (++step % 10 == 0) std::printf("step %d: loss %.4f\n", step, loss.item());
    if (step == last) break;
  }
}

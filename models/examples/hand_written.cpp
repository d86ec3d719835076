// The training loop written out: MNIST, one process.
#include <trireme/trireme.h>

#include <cstdio>
using namespace trireme;

int main() {
  Module model = mnist_cnn();
  Parameters parameters(model);
  Optimizer sgd(parameters, Sgd{.lr = 0.05, .momentum = 0.9});

  int step = 0;
  for (auto& [x, y] : Loader(Mnist("train"), {.batch = 128, .shuffle = true})) {
    Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    sgd.step();   // also forgets the gradients it used
    if (++step % 20 == 0) std::printf("step %d: loss %.4f\n", step, loss.item());
    if (step == 100) break;
  }
}

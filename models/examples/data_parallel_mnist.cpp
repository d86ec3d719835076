// Data-parallel MNIST with Adadelta: a learning rate that is scaled by the ranks after a warm-up, initial state from
// rank 0, checkpoints by rank 0. Run it alone or as `mpiexec -n 4 data_parallel_mnist [EPOCHS [IMAGES]]`. Step would do
// the broadcast and the reduction automatically; this example writes them out.
#include <trireme/trireme.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
using namespace trireme;

int main(int argc, char** argv) {
  return World::run(argc, argv, 1, [&](World& world) {
    int epochs = argc > 1 ? std::atoi(argv[1]) : 12;
    const Index images = argc > 2 ? std::atoi(argv[2]) : 60000;
    Loader train(head(Mnist("train"), images), {.batch = 128 * world.size(), .shuffle = true, .shard = world});
    Loader test(head(Mnist("test"), std::min<Index>(images, 10000)),
                {.batch = 1000, .shard = world, .training = false});

    Module model = mnist_cnn();
    Parameters parameters(model);
    Optimizer adadelta(parameters, Adadelta{.lr = warm_up(world.size(), train.batches(), 1.0 / world.size())});
    Reducer reducer(parameters, world);
    broadcast_state(parameters, world);

    for (int epoch = 1; epoch <= epochs; ++epoch) {
      for (auto& [x, y] : train) {
        cross_entropy(model(x), y).backward();
        reducer.finish();
        adadelta.step();
      }
      Tensor correct = Tensor::zeros({1}, DType::f64);
      {
        const Inference inference;  // no graph is recorded for backward
        for (auto& [x, y] : test) correct.data<double>()[0] += static_cast<double>(count_correct(model(x), y));
      }
      world.comm().all_reduce(correct).wait();
      if (!world.main()) continue;
      std::printf("epoch %d: %g of the test images are right\n", epoch, correct.item());
      write_safetensors("mnist.safetensors", export_weights(parameters));
    }
  });
}

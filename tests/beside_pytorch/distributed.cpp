// Training and evaluation on several ranks, with dropout and a short last batch: the same weights and numbers on any
// number of them, each test sample counted once. distributed RANKS DROPOUT
#include <trireme/trireme.h>
using namespace trireme;

Dataset samples_of(const std::string& split) {
  return TensorDataset(read_npy("x_" + split + ".npy"), read_npy("y_" + split + ".npy"), 4);
}

void train(World& world, double dropout) {
  Module model = convert(Sequential{Conv2d(1, 8, 3), relu, flatten, Dropout(dropout), Linear(288, 4)}, DType::f64);
  Step step(model, cross_entropy, Sgd{.lr = 0.1, .momentum = 0.9}, world);
  import_weights(step.parameters(), "start.safetensors");
  Loader loader(samples_of("train"), {.batch = 24, .shard = step.shard()});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [x, y] : loader) {
      const Tensor loss = step(x, y);
      if (world.main()) fmt::print("{}\n", loss.item());
    }
  const Evaluation result = evaluate(step.model(), samples_of("test"), world, {.batch = 24, .dtype = DType::f64});
  if (world.main()) {
    fmt::print("{} {} {}\n", result.samples, result.correct, result.loss);
    write_safetensors("end.safetensors", export_weights(step.parameters()));
  }
}

int main(int argc, char** argv) {
  return World::run(argc, argv, std::stoi(argv[1]), [&](World& world) { train(world, std::stod(argv[2])); });
}

// Regression on a table: training, evaluation with metrics, checkpoints, and going on from the newest. regression
// EPOCHS
#include <trireme/trireme.h>
using namespace trireme;

Dataset samples_of(const std::string& split) {
  return TensorDataset(read_npy("x_" + split + ".npy"), read_npy("y_" + split + ".npy"));
}

int main(int argc, char** argv) {
  World world(argc, argv);
  TrainerOptions options{
      .model = "table", .weights = "start.safetensors", .epochs = std::stoi(argv[1]), .dtype = "f64"};
  options.data = {.batch = 32, .shuffle = false};
  options.optim = {.name = "adam", .lr = 0.01, .schedule = "constant"};
  options.run = {.dir = "run", .resume = "auto", .override = true, .progress = "off"};
  Trainer trainer({.model = Sequential{Linear(8, 32), tanh, Linear(32, 1)},
                   .train = samples_of("train"),
                   .test = samples_of("test"),
                   .loss = mse_loss,
                   .metrics = {RegressionErrors()}},
                  options, world);
  fmt::print("{}\n", trainer.run().test.text());
  write_safetensors("end.safetensors", export_weights(trainer.step().parameters()));
}

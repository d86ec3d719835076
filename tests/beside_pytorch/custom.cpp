// An op with a gradient, a loss, an optimizer and a schedule of the program's own, a frozen layer, and a group of
// parameters with settings of its own.
#include <trireme/trireme.h>
using namespace trireme;

Tensor snake(const Tensor& input) {
  const Tensor x = input.detach();
  return record("snake", x + square(sin(x)), {input}, [x = SavedTensor(x)](const Tensor& dy, Gradients& gradients) {
    gradients.set_grad(0, dy * (1 + sin(2 * x.get())));
  });
}

Tensor pinball(const Tensor& prediction, const Tensor& target) {
  const Tensor error = target - prediction;
  return batch_mean(maximum(0.9 * error, -0.1 * error));
}

struct MyLion {
  static constexpr char name[] = "my_lion";
  Schedule lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  std::vector<OptimizerField> fields() {
    return {{"lr", &lr},
            {"beta1", &beta1, OptimizerField::fraction},
            {"beta2", &beta2, OptimizerField::fraction},
            {"weight_decay", &weight_decay}};
  }
  std::vector<OptimizerState> state() const { return {{"momentum"}}; }
  void update(const OptimizerUpdate& u) const {
    const Tensor &p = u.value, &m = u.state[0], grad = u.grad * u.grad_scale;
    p.copy_from(p - u.lr * (sign(beta1 * m + (1 - beta1) * grad) + u.weight_decay * p));
    m.copy_from(beta2 * m + (1 - beta2) * grad);
  }
};

int main() {
  Module model = convert(Sequential{Linear(6, 16), snake, Linear(16, 16), snake, Linear(16, 1)}, DType::f64);
  freeze(model, "0.*");
  Parameters parameters(model);
  import_weights(parameters, "start.safetensors");
  const Tensor x = read_npy("x.npy"), y = read_npy("y.npy");
  const MyLion rule{.lr = [](std::int64_t step) { return 0.01 / (1 + 0.1 * double(step)); }, .weight_decay = 0.05};
  Optimizer lion(parameters, rule, {.groups = {{.names = "4.*", .lr_factor = 10, .weight_decay = 0}}});
  for (int step = 0; step < 10; ++step) {
    const Tensor loss = pinball(model(x), y);
    loss.backward();
    lion.step();
    fmt::print("{}\n", loss.item());
  }
  write_safetensors("end.safetensors", export_weights(parameters));
}

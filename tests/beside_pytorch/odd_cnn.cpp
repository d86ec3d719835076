// A CNN of odd shapes, trained three steps: 5 x 3 kernels, strides of 2 x 1, asymmetric padding, groups, channels
// repeated and cut, max pooling with padding, adaptive average pooling, batch norms.
#include <trireme/trireme.h>
using namespace trireme;

struct Model {
  Conv2d conv1{3, 12, {5, 3}, {.stride = {2, 1}, .pad = {{2, 1}, {1, 0}}}};
  BatchNorm bn1{12};
  Conv2d conv2{18, 24, 3, {.pad = 1, .groups = 6, .bias = false}};
  BatchNorm bn2{24};
  Linear head{24 * 3 * 4, 10};

  Tensor operator()(Tensor x) const {
    x = relu(bn1(conv1(x)));
    x = slice(repeat(x, {1, 1, 1, 2}), -1, 0, 18);
    x = MaxPool({3, 2}, {.stride = {2, 1}, .pad = {1, 0}})(x);
    x = relu(bn2(conv2(x)));
    return head(flatten(adaptive_avg_pool(x, {3, 4})));
  }
  void visit(const StateVisitor& v) { v("conv1", conv1, "bn1", bn1, "conv2", conv2, "bn2", bn2, "head", head); }
};

int main() {
  Module model = convert(Model(), DType::f64);
  Parameters parameters(model);
  import_weights(parameters, "start.safetensors");
  const Tensor x = read_npy("x.npy"), y = read_npy("y.npy");
  Optimizer sgd(parameters, Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = cross_entropy_with({.label_smoothing = 0.1})(model(x), y);
    loss.backward();
    sgd.step();
    fmt::print("{}\n", loss.item());
  }
  write_safetensors("end.safetensors", export_weights(parameters));
}

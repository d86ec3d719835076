// A custom op with kernels for the CPU and for CUDA. The program checks its gradient, trains a small network, and
// compares CUDA devices with the CPU. For the CPU alone, and for both:
//   c++ snake_op.cpp -o snake_op $(pkg-config --cflags --libs trireme)
//   nvcc --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -c snake_op_cuda.cu $(pkg-config --cflags trireme)
//   c++ snake_op.cpp snake_op_cuda.o -o snake_op $(pkg-config --cflags --libs trireme) -L/usr/local/cuda/lib64 -lcudart
#include "snake_op.h"

#include <trireme/framework/ops/help.h>
#include <trireme/kernels/cpu/parallel.h>
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>
using namespace trireme;

namespace {

void snake_forward(View y, View x) {
  dispatch_float(x.dtype, SnakeForward::name, [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel(), 20, [to = y.as<T>(), from = x.as<const T>()](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const auto v = static_cast<Accumulator<T>>(from[i]), s = std::sin(v);
        to[i] = static_cast<T>(v + s * s);
      }
    });
  });
}
void snake_backward(View dx, View dy, View x) {
  dispatch_float(x.dtype, SnakeBackward::name, [&](auto type) {
    using T = decltype(type);
    using A = Accumulator<T>;
    parallel_for(x.numel(), 20, [to = dx.as<T>(), by = dy.as<T>(), at = x.as<T>()](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        to[i] = static_cast<T>(static_cast<A>(by[i]) * (1 + std::sin(2 * static_cast<A>(at[i]))));
    });
  });
}
const Kernel<SnakeForward> snake_on_cpu{DeviceKind::cpu, snake_forward};
const Kernel<SnakeBackward> snake_backward_on_cpu{DeviceKind::cpu, snake_backward};

}  // namespace

Tensor snake(const Tensor& x) {
  ops::check_float("snake", x);
  Tensor y = ops::part_like(x);
  launch<SnakeForward>(y, x);
  if (!needs_record("snake", y, {&x})) return y;
  return record("snake", std::move(y), {x}, [x = SavedTensor(x)](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { launch<SnakeBackward>(dx, dy, x); });
  });
}

namespace {

/// The largest difference, relative for numbers above 1. Throws Error if it is at least `most`.
double difference(const char* what, const std::vector<double>& a, const std::vector<double>& b, double most) {
  check(a.size() == b.size(), what, "{} numbers, expected {}", a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::fmax(worst, std::abs(a[i] - b[i]) / std::fmax(1, std::abs(b[i])));
  check(worst < most, what, "they differ by {}, more than {}", worst, most);
  return worst;
}
double difference(const char* what, const Tensor& a, const Tensor& b, double most) {
  return difference(what, a.to_vector(), b.to_vector(), most);
}

struct Computed {
  Tensor y, dx;
};
Computed compute(Tensor x, const Tensor& dy) {
  x = x.detach().require_grad();
  const Tensor y = snake(x);
  y.backward(dy);
  return {y.detach(), x.grad()};
}

struct Trained {
  double first, last;  // losses
  std::vector<double> weights;
  bool replayed;
};
/// Trains a network with snakes on a function of that kind.
Trained train(Device device, const OptimizerConfig& optimizer_config, int steps, bool cuda_graphs = false) {
  Module model = Sequential{Linear(1, 32), snake, Linear(32, 1)};
  initialize(model, 1);
  place(model, device);
  World world;
  Step step(model, mse_loss, optimizer_config, world, Strategy(), {.cuda_graphs = cuda_graphs});
  const Tensor x = linspace(-3, 3, 64).reshape({64, 1}), y = x * 0.5 + sin(x * 3);
  const Tensor x_there = x.to(device), y_there = y.to(device);
  Trained trained{};
  for (int i = 0; i < steps; ++i) {
    trained.last = step(x_there, y_there).item();
    if (i == 0) trained.first = trained.last;
  }
  trained.weights = step.parameters().values().to_vector();
  trained.replayed = StepProbe(step).replayed();
  return trained;
}

bool has_cuda_kernels() {
  for (const CensusRow& row : census())
    if (row.name == SnakeForward::name) return row.present[static_cast<int>(DeviceKind::cuda)];
  return false;
}
/// Compares results and gradients of every type, and training steps, with the CPU's.
void compare(Device device, const Tensor& x, const Tensor& dy) {
  for (const auto& [type, most] :
       {std::pair{DType::f64, 1e-14}, {DType::f32, 1e-6}, {DType::bf16, 4e-3}, {DType::f16, 5e-4}}) {
    const Tensor rounded = x.to(type), rounded_dy = dy.to(type);
    const Computed there = compute(rounded.to(device), rounded_dy.to(device));
    const Computed here = compute(rounded.to(DType::f64), rounded_dy.to(DType::f64));
    std::printf("%s, %-4s: y within %.1e, dx within %.1e of the CPU's\n", to_string(device).c_str(),
                std::string(name_of(type)).c_str(), difference("y", there.y, here.y, most),
                difference("dx", there.dx, here.dx, most));
  }
  const Sgd optimizer_config{.lr = 0.02, .momentum = 0.9};
  const Trained here = train(cpu(), optimizer_config, 5);
  for (const bool cuda_graphs : {false, true}) {
    const Trained there = train(device, optimizer_config, 5, cuda_graphs);
    check(there.replayed == cuda_graphs, "snake_op", "steps are not replayed as CUDA graphs");
    std::printf("%s: weights after 5 steps%s within %.1e of the CPU's\n", to_string(device).c_str(),
                cuda_graphs ? ", 4 of them replayed as a CUDA graph," : "",
                difference("weights", there.weights, here.weights, 1e-5));
  }
}

}  // namespace

int main() {
  const Tensor x = uniform({5000}, -3, 3, 1, DType::f64), dy = uniform({5000}, -1, 1, 2, DType::f64);
  const double h = 1e-6;
  const Tensor slope = (snake(x + h) - snake(x - h)) / (2 * h);
  std::printf("gradient: within %.1e of finite differences\n",
              difference("gradient", compute(x, dy).dx, slope * dy, 1e-8));

  const Trained trained = train(cpu(), Adam{.lr = 0.01}, 300);
  std::printf("training: loss %.4f, after 300 steps %.4f\n", trained.first, trained.last);
  check(trained.last < trained.first / 20, "snake_op", "it has learned too little");

  const Backend& devices = open_backend(DeviceKind::cuda);
  if (devices.devices == 0) std::printf("cuda: no device: %s\n", devices.absent.c_str());
  if (!has_cuda_kernels()) std::printf("cuda: this program is without snake_op_cuda.cu\n");
  for (int i = 0; has_cuda_kernels() && i < devices.devices; ++i) compare(cuda(i), x, dy);
}

#include "parallel/profile/ceilings.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "framework/layers/init.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/matmul.h"
#include "kernels/core/runtime.h"

namespace trireme {
namespace {

/// Best rate of five repetitions of work of size n. n is doubled until a repetition takes a millisecond, or n is
/// `most`.
double best_rate(Device device, Index n, Index most, const std::function<std::function<void()>(Index)>& prepare,
                 const std::function<double(Index)>& amount) {
  for (;; n *= 2) {
    const std::function<void()> work = prepare(n);
    double least = runtime(device.kind).timed(device, work);
    const bool last = least > 1e-3 || n >= most;
    for (int i = 0; last && i < 4; ++i) least = std::min(least, runtime(device.kind).timed(device, work));
    if (last) return amount(n) / least;
  }
}

}  // namespace

Ceilings measure_ceilings(Device device, DType dtype) {
  const auto copy = [&](Index n) -> std::function<void()> {
    const Tensor from = Tensor::full({n}, 1, DType::f32, device), to = Tensor::like(from);
    return [=] { to.copy_from(from); };
  };
  const auto product = [&](Index n) -> std::function<void()> {
    const Tensor a = Tensor::empty({n, n}, dtype, device), b = Tensor::like(a), c = Tensor::like(a);
    uniform(a, -1, 1, 1);
    uniform(b, -1, 1, 2);  // numbers of one bit pattern draw less power, and run faster
    return [=] { launch<kernel::MatMul>(c, a, b, MatMulOptions{}); };
  };
  return {.bytes = best_rate(device, Index{1} << 22, Index{1} << 28, copy,
                             [](Index n) { return 8.0 * static_cast<double>(n); }),
          .operations =
              best_rate(device, 256, 8192, product, [](Index n) { return 2 * std::pow(static_cast<double>(n), 3); })};
}

}  // namespace trireme

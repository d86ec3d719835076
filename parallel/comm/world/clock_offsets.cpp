#include "parallel/comm/world/clock_offsets.h"

#include <cmath>

namespace trireme {

static double clock_ahead(World& world, int other, const std::function<double()>& now) {
  double ahead = 0, quickest = INFINITY;  // seconds
  const Tensor number = Tensor::zeros({1}, DType::f64);
  for (int i = 0; i < 10; ++i) {
    if (world.rank() == other) {
      world.comm().recv(number, 0).wait();
      world.comm().send(Tensor::of(std::vector{now()}, {1}, DType::f64), 0).wait();
      continue;
    }
    const double asked = now();
    world.comm().send(number, other).wait();
    world.comm().recv(number, other).wait();
    const double answered = now();
    if (answered - asked < quickest) {
      quickest = answered - asked;
      ahead = number.item() - (asked + answered) / 2;
    }
  }
  return std::abs(ahead) <= quickest / 2 ? 0 : ahead;
}

std::vector<double> clocks_ahead(World& world, const std::function<double()>& now) {
  std::vector<double> all(static_cast<std::size_t>(world.size()));
  for (int other = 1; other < world.size(); ++other)
    if (world.main() || world.rank() == other) all[static_cast<std::size_t>(other)] = clock_ahead(world, other, now);
  return all;
}

}  // namespace trireme

// Every strategy with bf16 activations on the CPU, against the serial run in the same precision.
#include "tests/parallel/pairs.h"
#include "tests/parallel/training.h"

namespace test_activations {

using namespace trireme;
using namespace trireme::test;

namespace {

Sequential small_cnn() {
  return {Conv2d(1, 4, 3), relu, MaxPool(2), Dropout(0.25), flatten, Linear(64, 16), relu, Dropout(0.5), Linear(16, 5)};
}

}  // namespace

TEST_CASE("every exact strategy trains with bf16 activations as the serial run does") {
  Setup s{.model = small_cnn, .dtype = DType::f32, .samples = 203, .batch = 20, .steps = 11};
  const Outcome exact = serial_run(s);
  s.activations = DType::bf16;
  const Outcome reference = serial_run(s);
  // What bf16 does to the serial run, against f32.
  const double rounding = distance(reference.weights, exact.weights, exact.weight_ends);
  CHECK(rounding > 1e-3);
  CHECK(rounding < 0.1);
  int compared = 0;
  for (auto& row : strategies()) {
    const Strategy strategy = parse_strategy(exact_text(row));
    if (strategy.claim() != Claim::exact || !strategy.split.context.empty() || !strategy.split.experts.empty())
      continue;
    for (int ranks : rank_counts({1, 2, 3})) {
      if ((row.axis.empty() && ranks > 1) || ranks < row.least) continue;
      if (strategy.split.any() && ranks > 4) continue;  // outputs of its first layer
      INFO(row.name << " on " << ranks << " ranks");
      const Outcome got = parallel_run(s, {{row.axis.empty() ? "data" : row.axis, ranks}}, strategy);
      CHECK(got.agreed);
      // Layers that are cut round partial sums; the others only take gradients of fewer rows at a time.
      const double bar =
          strategy.split.tensor.empty() && strategy.split.one_weird_trick.empty() ? rounding / 8 : rounding;
      CHECK(distance(got.weights, reference.weights, reference.weight_ends) <= bar);
      CHECK(distance(got.weights, exact.weights, exact.weight_ends) <= 1.25 * rounding);
      CHECK(distance(got.losses, reference.losses) <= 0x1p-9);
      ++compared;
    }
  }
  CHECK((under_mpi() || compared >= 2 + 3 * 6));
}

}  // namespace test_activations

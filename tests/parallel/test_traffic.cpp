// What a dry run over shapes finds: what parts cost, and what they send; and that a step sends what its plan says.
#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "kernels/contracts/matmul.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/part_costs.h"
#include "tests/support/catch.h"

using namespace trireme;

TEST_CASE("costs are counted from shapes, and nothing of the model moves") {
  Module model = Sequential{Conv2d(3, 4, 3), BatchNorm(4), relu, MaxPool(2), flatten, Linear(36, 8), Dropout(0.5)};
  initialize(model, 1);
  Parameters parameters(model);
  const Chain chain(model);
  const auto values = parameters.values().to_vector(), mean = parameters.buffers()[0].tensor.to_vector();
  const Tensor x = Tensor::empty({5, 8, 8, 3});
  const auto costs = count_costs(chain, parameters, x, 1e9), again = count_costs(chain, parameters, x, 1e9);
  REQUIRE(costs == again);
  REQUIRE(std::ssize(costs) == chain.size());
  // Backward by the input is left out in front of all weights.
  CHECK(costs[0].forward >= 2 * 5 * 6 * 6 * 4 * (3 * 3 * 3) / 1e9);
  CHECK(costs[0].backward_weight >= 2 * 5 * 6 * 6 * 4 * (3 * 3 * 3) / 1e9);
  for (const PartCost& c : costs) {
    CHECK(c.forward >= 1e-9);
    CHECK(c.backward_input >= 1e-9);
    CHECK(c.backward_weight >= 1e-9);
    CHECK(c.output > 0);
    CHECK(c.halo == 0);
  }
  CHECK(costs.back().output == 5 * 8 * 4);
  const auto faster = count_costs(chain, parameters, x, 2e9);
  CHECK(faster[0].forward == costs[0].forward / 2);
  CHECK(parameters.values().to_vector() == values);
  CHECK(parameters.buffers()[0].tensor.to_vector() == mean);
  CHECK(!has_grad(parameters.entries()[0].tensor));
}

TEST_CASE("operations of products are those of their shapes") {
  const auto operations = [](const Tensor& c, const Tensor& a, const Tensor& b, MatMulOptions o) {
    double all = 0;
    const LaunchWatch watch([&](const LaunchWatch::Call& call) { all += operations_of(call); }, true);
    launch<kernel::MatMul>(c, a, b, o);
    return all;
  };
  const auto t = [](const Shape& shape) { return Tensor::empty(shape); };
  CHECK(operations(t({3, 7}), t({3, 5}), t({5, 7}), {}) == 2 * 3 * 5 * 7);
  CHECK(operations(t({3, 7}), t({5, 3}), t({7, 5}), {true, true}) == 2 * 3 * 5 * 7);
  CHECK(operations(t({4, 3, 7}), t({4, 3, 5}), t({4, 5, 7}), {}) == 2 * 4 * 3 * 5 * 7);
  CHECK(operations(t({4, 3, 7}), t({3, 5}), t({4, 5, 7}), {}) == 2 * 4 * 3 * 5 * 7);
}

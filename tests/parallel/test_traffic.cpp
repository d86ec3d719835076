// What a dry run over shapes finds: what parts cost, and what they send; and that a step sends what its plan says.
#include <mutex>

#include "framework/autograd/tape.h"
#include "framework/layers/recompute.h"
#include "kernels/contracts/matmul.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/part_costs.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/training.h"

using namespace trireme;
using namespace trireme::test;

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

namespace {

std::string text(const Traffic& traffic) {
  std::string all;
  for (auto& [axis, count] : traffic) all += fmt::format("{} {} calls {} bytes; ", axis, count.calls, count.bytes);
  return all;
}

/// What differs between plan and communicators over some steps, on any rank, as text; "": nothing. Throws what a
/// strategy refuses.
std::string unequal(const Setup& s, const Arrangement& how, const Strategy& strategy, const StepOptions& options,
                    TrafficCount& counted) {
  std::mutex mutex;
  std::string found;
  World::threads(how.ranks(), [&](World& world) {
    Module model = s.model();
    initialize(model, 1);
    convert(model, s.dtype);
    Mesh mesh(world, how.mesh);
    Step step(model, s.loss, s.recipe, mesh, strategy, options);
    Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape)),
                  {.batch = s.batch, .shard = step.shard(), .workers = 0, .dtype = s.dtype});
    for (auto& [x, y] : loader) {
      (void)step(x, y);
      // one_weird_trick's messages depend on the rows of other ranks, which no rank knows by itself.
      if (!strategy.split.one_weird_trick.empty() && x.batch()->global_batch % (how.ranks() * how.microbatches) != 0)
        continue;
      const StepTraffic traffic = step.traffic();
      const std::lock_guard lock(mutex);
      for (auto& [axis, count] : traffic.counted) counted += count;
      if (traffic.planned != traffic.counted)
        found += fmt::format("{}, rank {}: planned {}, counted {}\n", how.text(), world.rank(), text(traffic.planned),
                             text(traffic.counted));
    }
  });
  return found;
}

Module normed() {
  return Sequential{Conv2d(1, 4, 3, {.bias = false}),
                    BatchNorm(4),
                    relu,
                    MaxPool(2),
                    Stash{"before"},
                    Conv2d(4, 4, 3, {.pad = 1}),
                    AddStashed("before"),
                    Recompute(Sequential{Conv2d(4, 4, 3, {.pad = 1}), BatchNorm(4), relu}),
                    flatten,
                    Linear(36, 8),
                    relu,
                    Dropout(0.5),
                    Linear(8, 5)};
}
/// The last of three batches is short: micro-batches and ranks have different numbers of rows.
Setup setup() {
  return {.model = normed,
          .loss = cross_entropy_with({.ignore_index = 3}),
          .recipe = Adam{.lr = 0.01},
          .dtype = DType::f32,
          .samples = 55,
          .batch = 24,
          .shape = {8, 8, 1}};
}

/// Every strategy and every pair on its smallest mesh, and every strategy by itself on 2 to 4 ranks.
std::vector<Arrangement> table() {
  std::vector<Arrangement> all;
  for (auto& a : strategy_texts()) {
    for (int ranks = 2; ranks <= 4 && !a.axis.empty(); ++ranks)
      all.push_back({{{a.axis, ranks}}, a.text, a.microbatches});
    for (auto& b : strategy_texts()) all.push_back(smallest(a, b));
  }
  return all;
}

}  // namespace

TEST_CASE("every strategy, pair and schedule sends what its plan says, on every rank") {
  if (threads_only()) return;
  const StepOptions options{.optimizer = {.clip_norm = 1}};
  for (const NormScope scope : {NormScope::global, NormScope::group, NormScope::local}) {
    int equal = 0, refused = 0;
    std::string wrong;
    for (const Arrangement& how : table()) {
      TrafficCount counted;
      try {
        Strategy strategy = parse_strategy(how.strategy);
        strategy.norm_scope = scope, strategy.norm_group = 2;
        const std::string found = unequal(setup(), how, strategy, options, counted);
        equal += found.empty(), wrong += found;
        if (how.ranks() > 1 && counted.bytes == 0) wrong += how.text() + ": nothing was counted\n";
      } catch (const std::exception& e) {
        ++refused;
        const bool known =
            !known_refusal(e.what()).empty() || std::string(e.what()).find("do not divide") != std::string::npos;
        if (!known) wrong += how.text() + ": " + e.what() + "\n";
      }
    }
    CHECK(wrong == "");
    WARN(static_cast<int>(scope) << ": " << equal << " equal, " << refused << " refused");
  }
}

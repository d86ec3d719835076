#include "parallel/runtime/reducer.h"
// A small training run under a strategy, for tests that compare one with another.
#include "parallel/runtime/reducer.h"
#pragma once
#include <cmath>
#include "parallel/runtime/reducer.h"

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/layers/on.h"
#include "parallel/runtime/reducer.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

#include "parallel/runtime/reducer.h"
namespace trireme::test {
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
struct Setup {
#include "parallel/runtime/reducer.h"
  std::function<Module()> model;
#include "parallel/runtime/reducer.h"
  Loss loss = cross_entropy;
#include "parallel/runtime/reducer.h"
  OptimizerConfig recipe = Sgd{.lr = 0.05, .momentum = 0.9};
#include "parallel/runtime/reducer.h"
  DType dtype = DType::f64;
#include "parallel/runtime/reducer.h"
  Index samples = 1003, batch = 50;
#include "parallel/runtime/reducer.h"
  int steps = 21;  // the last of 21 batches has 3 rows
#include "parallel/runtime/reducer.h"
  Shape shape = {10, 10, 1};
#include "parallel/runtime/reducer.h"
  bool integers = false;
#include "parallel/runtime/reducer.h"
  OptimizerOptions optimizer = {};
#include "parallel/runtime/reducer.h"
  std::optional<DType> activations = {};  ///< of the images and what layers make of them; none: dtype
#include "parallel/runtime/reducer.h"
};
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
/// Trains on a mesh of these axes.
#include "parallel/runtime/reducer.h"
inline Outcome train(const Setup& s, World& world, std::vector<Axis> axes, const std::optional<Strategy>& strategy) {
#include "parallel/runtime/reducer.h"
  Module model = s.model();
#include "parallel/runtime/reducer.h"
  const Device device = test_device(world);
#include "parallel/runtime/reducer.h"
  (void)world.use(device);
#include "parallel/runtime/reducer.h"
  Mesh mesh(world, std::move(axes));
#include "parallel/runtime/reducer.h"
  // Rank 0's start is what counts.
#include "parallel/runtime/reducer.h"
  if (!s.integers) initialize(model, 1 + static_cast<std::uint64_t>(world.rank()));
#include "parallel/runtime/reducer.h"
  convert(model, s.dtype);
#include "parallel/runtime/reducer.h"
  place(model, device);
#include "parallel/runtime/reducer.h"
  Step step(model, s.loss, s.recipe, mesh, strategy, {.seed = 5, .optimizer = s.optimizer});
#include "parallel/runtime/reducer.h"
  Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape, s.integers)),
#include "parallel/runtime/reducer.h"
                {.batch = s.batch,
#include "parallel/runtime/reducer.h"
                 .shuffle = true,
#include "parallel/runtime/reducer.h"
                 .seed = 3,
#include "parallel/runtime/reducer.h"
                 .shard = step.shard(),
#include "parallel/runtime/reducer.h"
                 .workers = 0,
#include "parallel/runtime/reducer.h"
                 .dtype = s.activations.value_or(s.dtype),
#include "parallel/runtime/reducer.h"
                 .device = device});
#include "parallel/runtime/reducer.h"
  std::vector<double> first;  // weights after one step
#include "parallel/runtime/reducer.h"
  std::vector<Tensor> losses;  // read at the end: a returned loss must stay what it was
#include "parallel/runtime/reducer.h"
  while (static_cast<int>(losses.size()) < s.steps)
#include "parallel/runtime/reducer.h"
    for (auto& [x, y] : loader) {
#include "parallel/runtime/reducer.h"
      losses.push_back(step(x, y));
#include "parallel/runtime/reducer.h"
      if (losses.size() == 1) step.consolidate(), first = whole_weights(step.parameters());
#include "parallel/runtime/reducer.h"
      if (static_cast<int>(losses.size()) == s.steps) break;
#include "parallel/runtime/reducer.h"
    }
#include "parallel/runtime/reducer.h"
  std::vector<double> values;
#include "parallel/runtime/reducer.h"
  for (auto& loss : losses) values.push_back(loss.item());
#include "parallel/runtime/reducer.h"
  step.consolidate();
#include "parallel/runtime/reducer.h"
  Outcome o = outcome(world, std::move(values), step.parameters());
#include "parallel/runtime/reducer.h"
  o.first = std::move(first);
#include "parallel/runtime/reducer.h"
  return o;
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
/// All ranks on the axis "data".
#include "parallel/runtime/reducer.h"
inline Outcome train(const Setup& s, World& world, const std::optional<Strategy>& strategy) {
#include "parallel/runtime/reducer.h"
  return train(s, world, {{"data", world.size()}}, strategy);
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
inline Outcome serial_run(const Setup& s, const Strategy& strategy = {}) {
#include "parallel/runtime/reducer.h"
  World world;
#include "parallel/runtime/reducer.h"
  return train(s, world, strategy);
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"
inline Outcome parallel_run(const Setup& s, const std::vector<Axis>& axes, const Strategy& strategy) {
#include "parallel/runtime/reducer.h"
  int ranks = 1;
#include "parallel/runtime/reducer.h"
  for (auto& a : axes) ranks *= a.size;
#include "parallel/runtime/reducer.h"
  return on_ranks(ranks, [&](World& world) { return train(s, world, axes, strategy); });
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"
inline Outcome parallel_run(const Setup& s, int ranks, const std::optional<Strategy>& strategy) {
#include "parallel/runtime/reducer.h"
  return on_ranks(ranks, [&](World& world) { return train(s, world, strategy); });
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"
inline void check_close(const Outcome& a, const Outcome& b, double tolerance) {
#include "parallel/runtime/reducer.h"
  CHECK(a.agreed);
#include "parallel/runtime/reducer.h"
  CHECK(distance(a.losses, b.losses) <= tolerance);
#include "parallel/runtime/reducer.h"
  // Some tests keep other numbers in it, or none.
#include "parallel/runtime/reducer.h"
  const auto first_ends = b.first.size() == b.weights.size() ? b.weight_ends : std::vector<std::size_t>();
#include "parallel/runtime/reducer.h"
  CHECK(distance(a.first, b.first, first_ends) <= tolerance);
#include "parallel/runtime/reducer.h"
  CHECK(distance(a.weights, b.weights, b.weight_ends) <= tolerance);
#include "parallel/runtime/reducer.h"
  CHECK(distance(a.buffers, b.buffers, b.buffer_ends) <= tolerance);
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"
inline void check_same_bits(const Outcome& a, const Outcome& b) {
#include "parallel/runtime/reducer.h"
  CHECK(a.agreed);
#include "parallel/runtime/reducer.h"
  CHECK(a.losses == b.losses);
#include "parallel/runtime/reducer.h"
  CHECK(a.first == b.first);
#include "parallel/runtime/reducer.h"
  CHECK(a.weights == b.weights);
#include "parallel/runtime/reducer.h"
  CHECK(a.buffers == b.buffers);
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
inline void fill_integers(const Tensor& t, std::uint64_t salt, Index most) {
#include "parallel/runtime/reducer.h"
  std::vector<double> values(static_cast<std::size_t>(t.numel()));
#include "parallel/runtime/reducer.h"
  for (std::size_t i = 0; i < values.size(); ++i)
#include "parallel/runtime/reducer.h"
    values[i] = static_cast<double>(
#include "parallel/runtime/reducer.h"
        static_cast<Index>(mix(salt * 100003 + i) % static_cast<std::uint64_t>(2 * most + 1)) - most);
#include "parallel/runtime/reducer.h"
  t.copy_from(Tensor::of(values, t.shape(), t.dtype()));
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"
inline Module with_integers(Module model) {
#include "parallel/runtime/reducer.h"
  std::uint64_t salt = 1;
#include "parallel/runtime/reducer.h"
  model.visit(StateVisitor([&](const NamedState& leaf) {
#include "parallel/runtime/reducer.h"
    if (leaf.use != StateKind::buffer) fill_integers(*leaf.tensor, salt++, 1);
#include "parallel/runtime/reducer.h"
  }));
#include "parallel/runtime/reducer.h"
  return model;
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
/// Sum of prediction times a pattern of -1, 0 and 1 that the label chooses.
#include "parallel/runtime/reducer.h"
inline Tensor pattern_loss(const Tensor& prediction, const Tensor& labels) {
#include "parallel/runtime/reducer.h"
  const Index n = prediction.dim(0), width = prediction.dim(1);
#include "parallel/runtime/reducer.h"
  std::vector<double> pattern;
#include "parallel/runtime/reducer.h"
  for (double label : labels.to_vector())
#include "parallel/runtime/reducer.h"
    for (Index j = 0; j < width; ++j)
#include "parallel/runtime/reducer.h"
      pattern.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(label) * 997 + j) % 3) - 1);
#include "parallel/runtime/reducer.h"
  return sum(prediction * Tensor::of(pattern, {n, width}, prediction.dtype()).to(prediction.device()));
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
/// Two steps of a small convolutional network whose values are all integers over a power of two, so that sums are
#include "parallel/runtime/reducer.h"
/// exact.
#include "parallel/runtime/reducer.h"
inline Setup integer_conv() {
#include "parallel/runtime/reducer.h"
  return {.model =
#include "parallel/runtime/reducer.h"
              [] {
#include "parallel/runtime/reducer.h"
                return with_integers(Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), flatten, Linear(64, 5)});
#include "parallel/runtime/reducer.h"
              },
#include "parallel/runtime/reducer.h"
          .loss = pattern_loss,
#include "parallel/runtime/reducer.h"
          .recipe = Sgd{.lr = 0.125},
#include "parallel/runtime/reducer.h"
          .dtype = DType::f32,
#include "parallel/runtime/reducer.h"
          .samples = 24,
#include "parallel/runtime/reducer.h"
          .batch = 8,
#include "parallel/runtime/reducer.h"
          .steps = 2,
#include "parallel/runtime/reducer.h"
          .integers = true};
#include "parallel/runtime/reducer.h"
}
#include "parallel/runtime/reducer.h"

#include "parallel/runtime/reducer.h"
}  // namespace trireme::test

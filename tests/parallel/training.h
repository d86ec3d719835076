// A small training run under a strategy, for tests that compare one with another.
#pragma once
#include <cmath>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/layers/on.h"
#include "parallel/runtime/reducer.h"
#include "parallel/runtime/step_probe.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace trireme::test {

struct Setup {
  std::function<Module()> model;
  Loss loss = cross_entropy;
  OptimizerConfig optimizer_config = Sgd{.lr = 0.05, .momentum = 0.9};
  DType dtype = DType::f64;
  Index samples = 1003, batch = 50;
  int steps = 21;  // the last of 21 batches has 3 rows
  Shape shape = {10, 10, 1};
  bool integers = false;
  OptimizerOptions optimizer = {};
  std::optional<DType> activations = {};  ///< of the images and what layers make of them; none: dtype
};

/// Trains on a mesh of these axes.
inline Outcome train(const Setup& s, World& world, std::vector<Axis> axes, const std::optional<Strategy>& strategy) {
  Module model = s.model();
  const Device device = test_device(world);
  (void)world.use(device);
  Mesh mesh(world, std::move(axes));
  // Rank 0's start is what counts.
  if (!s.integers) initialize(model, 1 + static_cast<std::uint64_t>(world.rank()));
  convert(model, s.dtype);
  place(model, device);
  Step step(model, s.loss, s.optimizer_config, mesh, strategy, {.seed = 5, .optimizer = s.optimizer});
  Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape, s.integers)),
                {.batch = s.batch,
                 .shuffle = true,
                 .seed = 3,
                 .shard = step.shard(),
                 .workers = 0,
                 .dtype = s.activations.value_or(s.dtype),
                 .device = device});
  std::vector<double> first;   // weights after one step
  std::vector<Tensor> losses;  // read at the end: a returned loss must stay what it was
  while (static_cast<int>(losses.size()) < s.steps)
    for (auto& [x, y] : loader) {
      losses.push_back(step(x, y));
      if (losses.size() == 1) {
        StepProbe(step).consolidate();
        first = whole_weights(step.parameters());
      }
      if (static_cast<int>(losses.size()) == s.steps) break;
    }
  std::vector<double> values;
  for (auto& loss : losses) values.push_back(loss.item());
  StepProbe(step).consolidate();
  Outcome o = outcome(world, std::move(values), step.parameters());
  o.first = std::move(first);
  return o;
}

/// All ranks on the axis "data".
inline Outcome train(const Setup& s, World& world, const std::optional<Strategy>& strategy) {
  return train(s, world, {{"data", world.size()}}, strategy);
}

inline Outcome serial_run(const Setup& s, const Strategy& strategy = {}) {
  World world;
  return train(s, world, strategy);
}
inline Outcome parallel_run(const Setup& s, const std::vector<Axis>& axes, const Strategy& strategy,
                            bool virtual_time = false) {
  int ranks = 1;
  for (auto& a : axes) ranks *= a.size;
  return on_ranks(
      ranks, [&](World& world) { return train(s, world, axes, strategy); }, virtual_time);
}
inline Outcome parallel_run(const Setup& s, int ranks, const std::optional<Strategy>& strategy) {
  return on_ranks(ranks, [&](World& world) { return train(s, world, strategy); });
}
inline void check_close(const Outcome& a, const Outcome& b, double tolerance) {
  CHECK(a.agreed);
  CHECK(distance(a.losses, b.losses) <= tolerance);
  // Some tests keep other numbers in it, or none.
  const auto first_ends = b.first.size() == b.weights.size() ? b.weight_ends : std::vector<std::size_t>();
  CHECK(distance(a.first, b.first, first_ends) <= tolerance);
  CHECK(distance(a.weights, b.weights, b.weight_ends) <= tolerance);
  CHECK(distance(a.buffers, b.buffers, b.buffer_ends) <= tolerance);
}
inline void check_same_bits(const Outcome& a, const Outcome& b) {
  CHECK(a.agreed);
  CHECK(a.losses == b.losses);
  CHECK(a.first == b.first);
  CHECK(a.weights == b.weights);
  CHECK(a.buffers == b.buffers);
}

inline void fill_integers(const Tensor& t, std::uint64_t salt, Index most) {
  std::vector<double> values(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(
        static_cast<Index>(mix(salt * 100003 + i) % static_cast<std::uint64_t>(2 * most + 1)) - most);
  t.copy_from(Tensor::of(values, t.shape(), t.dtype()));
}
inline Module with_integers(Module model) {
  std::uint64_t salt = 1;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    if (leaf.kind != StateKind::buffer) fill_integers(*leaf.tensor, salt++, 1);
  }));
  return model;
}

/// Sum of prediction times a pattern of -1, 0 and 1 that the label chooses.
inline Tensor pattern_loss(const Tensor& prediction, const Tensor& labels) {
  const Index n = prediction.dim(0), width = prediction.dim(1);
  std::vector<double> pattern;
  for (double label : labels.to_vector())
    for (Index j = 0; j < width; ++j)
      pattern.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(label) * 997 + j) % 3) - 1);
  return sum(prediction * Tensor::of(pattern, {n, width}, prediction.dtype()).to(prediction.device()));
}

/// Two steps of a small convolutional network whose values are all integers over a power of two, so that sums are
/// exact.
inline Setup integer_conv() {
  return {.model =
              [] {
                return with_integers(Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), flatten, Linear(64, 5)});
              },
          .loss = pattern_loss,
          .optimizer_config = Sgd{.lr = 0.125},
          .dtype = DType::f32,
          .samples = 24,
          .batch = 8,
          .steps = 2,
          .integers = true};
}

}  // namespace trireme::test

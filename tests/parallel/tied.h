// Small models in which layers far apart share weights, for tests of plans and steps.
#pragma once
#include "framework/layers/embedding.h"
#include "framework/layers/lm_head.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/schedules.h"
#include "tests/parallel/training.h"

namespace trireme::test {

constexpr Index vocabulary = 7;

/// Images [N, 3, 2, 1] of numbers from 0 to 1 as ids [N, 6] of a vocabulary.
inline Tensor ids_of(const Tensor& x) {
  std::vector<double> ids = x.to_vector();
  for (double& v : ids) v = v >= 0 && v <= 1 ? std::floor(v * (static_cast<double>(vocabulary) - 0.01)) : 0;
  const Tensor all = Tensor::of(ids, {x.dim(0), 6}, DType::i64).to(x.device());
  return x.batch() ? all.with_batch(*x.batch()) : all;
}

/// An embedding whose weight is the last layer's too: 9 parts. head_bias: the last part has a weight of its own.
inline Sequential tied_model(bool head_bias = true) {
  const Embedding wte(vocabulary, 4);
  return {ids_of,
          wte,
          flatten,
          Linear(24, 4),
          relu,
          LayerNorm(4),
          Linear(4, 5),
          Linear(5, 4),
          relu,
          Linear(4, 4),
          LmHead(wte.weight, head_bias ? Tensor::zeros({vocabulary}) : Tensor())};
}
/// The same with a linear layer, weight and bias, that stands in it three times: 12 parts.
inline Sequential twice_tied_model() {
  const Embedding wte(vocabulary, 4);
  const Linear same(4, 4);
  return {ids_of,       wte,  flatten, Linear(24, 4), LayerNorm(4), same,         Linear(4, 6),
          Linear(6, 4), same, relu,    LayerNorm(4),  same,         Linear(4, 4), LmHead(wte.weight)};
}

inline Setup tied_setup(std::function<Module()> model,
                        OptimizerConfig optimizer_config = Sgd{.lr = 0.05, .momentum = 0.9}) {
  return {.model = std::move(model),
          .optimizer_config = std::move(optimizer_config),
          .samples = 37,
          .batch = 12,
          .steps = brief() ? 3 : 5,
          .shape = {3, 2, 1},
          .optimizer = {.clip_norm = 0.3}};
}

struct TiedModel {
  const char* name;
  std::function<Module()> make;
};
inline const std::vector<TiedModel> tied_models = {{"embedding and head", [] { return tied_model(); }},
                                                   {"a head without weights", [] { return tied_model(false); }},
                                                   {"two layers in five parts", [] { return twice_tied_model(); }}};

/// A step of a plan, with the model of a setup.
struct TiedRun {
  TiedRun(const Setup& s, World& world, std::vector<Axis> axes, const Strategy& strategy, StepOptions options = {})
      : model(s.model()), mesh(world, std::move(axes)) {
    initialize(model, 1);
    convert(model, s.dtype);
    options.seed = 5;
    options.optimizer = s.optimizer;
    step.emplace(model, s.loss, s.optimizer_config, mesh, strategy, options);
  }
  void feed(const Setup& s, int steps) {
    Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape, s.integers)),
                  {.batch = s.batch, .seed = 3, .shard = step->shard(), .workers = 0, .dtype = s.dtype});
    for (int done = 0; done < steps;)
      for (auto& [x, y] : loader) {
        if (done++ == steps) break;
        (*step)(x, y);
      }
  }
  /// What this rank holds of what it updates, 0 elsewhere, without bringing weights together.
  std::vector<double> held() {
    std::vector<double> all(static_cast<std::size_t>(step->parameters().size()));
    for (const Slice& s : StepProbe(*step).updated()) {
      const auto values = step->parameters().values().rows(s.begin, s.end).to_vector();
      std::ranges::copy(values, all.begin() + s.begin);
    }
    return all;
  }

  Module model;
  Mesh mesh;
  std::optional<Step> step;
};

}  // namespace trireme::test

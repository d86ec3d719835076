// Training runs of language models, for tests that compare one with another.
#pragma once
#include <random>
#include <string>

#include "datasets/text/tokens.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"

namespace trireme::test {

/// Words of a small language, one after another, so that a model has something to learn: n characters of 30.
inline std::string some_text(std::size_t n, unsigned seed = 4) {
  std::mt19937 random(seed);
  std::vector<std::string> words(200);
  for (std::string& word : words)
    for (auto left = 1 + random() % 9; left > 0; --left)
      word += static_cast<char>('a' + std::min(random() % 26, random() % 26));
  std::string text;
  while (text.size() < n)
    text += words[std::min(random() % 200, random() % 200)] + (random() % 9 > 0   ? " "
                                                               : random() % 3 > 0 ? ".\n"
                                                                                  : ", ");
  return text.substr(0, n);
}

/// nanoGPT's rule of training: AdamW of (0.9, 0.99), weight decay 0.1 of matrices and embeddings, a ramp of so many
/// steps, then half a cosine to a tenth.
inline AdamW nano_adamw(double lr, std::int64_t warm, std::int64_t steps) {
  return {.lr = linear(lr / static_cast<double>(warm + 1), lr, warm).then(warm, cosine(lr, steps - warm, lr / 10)),
          .beta1 = 0.9,
          .beta2 = 0.99,
          .weight_decay = 0.1};
}

/// A run over batches of tokens.
struct TextSetup {
  std::function<Module()> model;
  std::function<Dataset()> data;
  Loss loss = cross_entropy;
  OptimizerConfig optimizer_config = nano_adamw(0.01, 5, 40);
  OptimizerOptions optimizer = {.clip_norm = 0.3, .decay_biases = false};
  DType dtype = DType::f64;
  Index batch = 8;
  int steps = 20;
  bool shuffle = true;
  StepOptions::KeepOutputs keep_outputs = {};
};

/// Trains on a mesh of these axes, from the start of seed 1. Outcome::first has the gradient's norm of each step, where
/// gradients are clipped.
inline Outcome train_text(const TextSetup& s, World& world, std::vector<Axis> axes, const Strategy& strategy) {
  Module model = s.model();
  initialize(model, 1 + static_cast<std::uint64_t>(world.rank()));  // rank 0's counts
  convert(model, s.dtype);
  Mesh mesh(world, std::move(axes));
  Step step(model, s.loss, s.optimizer_config, mesh, strategy,
            {.seed = 5, .optimizer = s.optimizer, .keep_outputs = s.keep_outputs});
  Loader loader(s.data(), {.batch = s.batch, .shuffle = s.shuffle, .seed = 3, .shard = step.shard(), .workers = 0});
  std::vector<double> losses, norms;
  while (static_cast<int>(losses.size()) < s.steps)
    for (auto& [x, y] : loader) {
      losses.push_back(step(x, y).item());
      if (s.optimizer.clip_norm > 0) norms.push_back(StepProbe(step).grad_norm());
      if (static_cast<int>(losses.size()) == s.steps) break;
    }
  StepProbe(step).consolidate();
  Outcome o = outcome(world, std::move(losses), step.parameters());
  o.first = std::move(norms);
  return o;
}
inline Outcome train_text(const TextSetup& s, const std::vector<Axis>& axes, const Strategy& strategy) {
  return on_ranks(ranks_of(axes), [&](World& world) { return train_text(s, world, axes, strategy); });
}
inline Outcome train_text(const TextSetup& s) { return train_text(s, {}, Strategy()); }

}  // namespace trireme::test

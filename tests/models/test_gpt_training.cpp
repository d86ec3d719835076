// The character GPT of nanoGPT's configuration for CPUs trains as PyTorch trains it, on any number of threads.
#include <future>

#include "kernels/core/runtime.h"
#include "parallel/runtime/step_probe.h"
#include "tests/models/text_runs.h"
#include "tests/support/oracle.h"

namespace test_gpt_training {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A model with nanoGPT's options, and for how long it trains, on what.
struct Training {
  Index layers, heads, width, context, batch;
  int steps, warm, decay;  ///< steps of the run, of the ramp, until the least learning rate
  double lr = 1e-3;

  Sequential model(Index vocabulary, double dropout = 0) const {
    return gpt2({.layers = layers,
                 .heads = heads,
                 .width = width,
                 .positions = context,
                 .vocabulary = vocabulary,
                 .dropout = dropout,
                 .bias = false,
                 .activation = "gelu"});
  }
  /// Random windows of the training split.
  Dataset windows(const std::string& text) const {
    return Tokens({.text = text, .split = "train", .characters = true, .context = context, .per_epoch = steps * batch});
  }
  std::string arguments(const char* type) const {
    return fmt::format("{} {} {} {} {} {} {}", layers, heads, type, steps, lr, warm, decay);
  }
};
/// models/recipes/shakespeare_char.toml.
const Training nano{
    .layers = 4, .heads = 4, .width = 128, .context = 64, .batch = 12, .steps = 150, .warm = 100, .decay = 2000};

/// The batches that a Loader draws, x and y [steps, N, T].
struct Batches {
  Tensor x, y;
};
Batches batches_of(const Dataset& data, const Training& t) {
  const Shape all{t.steps, t.batch, t.context};
  Batches b{Tensor::empty(all, DType::i64), Tensor::empty(all, DType::i64)};
  Loader loader(data, {.batch = t.batch, .shuffle = true, .seed = 1337});
  for (auto& batch : loader) {
    const Index at = batch.index * t.batch * t.context;
    std::ranges::copy(batch.x.view().span<const std::int64_t>(), b.x.data<std::int64_t>() + at);
    std::ranges::copy(batch.y.view().span<const std::int64_t>(), b.y.data<std::int64_t>() + at);
  }
  return b;
}

struct Run {
  std::vector<double> losses, norms, weights;
  std::vector<std::size_t> ends = {};
};
/// Trains a copy of the model, its weights being of a type.
Run train(const Module& start, DType dtype, const Batches& b, const Training& t) {
  Module model = start.clone();
  convert(model, dtype);
  World world;
  Step step(model, cross_entropy, nano_adamw(t.lr, t.warm, t.decay), world, {},
            {.seed = 5, .optimizer = {.clip_norm = 1, .decay_biases = false}});
  Run run;
  const auto of_step = [&](const Tensor& all, int i) { return all.rows(i, i + 1).reshape({t.batch, t.context}); };
  for (int i = 0; i < t.steps; ++i) {
    const Tensor ids = of_step(b.x, i).with_batch({.seed = 5, .step = static_cast<std::uint64_t>(i)});
    run.losses.push_back(step(ids, of_step(b.y, i)).item());
    run.norms.push_back(StepProbe(step).grad_norm());
  }
  for (const auto& e : step.parameters().entries()) {
    for (const double v : e.tensor.to_vector()) run.weights.push_back(v);
    run.ends.push_back(run.weights.size());
  }
  return run;
}

/// The largest difference of two curves.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (const double d = std::abs(a[i] - b[i]); !(d <= most)) most = d;  // NaN stays
  return most;
}

/// The first n numbers.
std::vector<double> first(const std::vector<double>& all, int n) { return {all.begin(), all.begin() + n}; }

/// Hands a start and batches to PyTorch.
void put(const Oracle& torch, const Parameters& start, const Batches& b) {
  torch.put("x", b.x);
  torch.put("y", b.y);
  for (const auto& e : start.entries()) torch.put(e.name, e.tensor);
}

}  // namespace

TEST_CASE("the first 150 losses of the character GPT are PyTorch's from one start and the same batches") {
  const Dataset data = nano.windows(some_text(200000));
  const Batches b = batches_of(data, nano);
  Module model = nano.model(data->classes());
  initialize(model, 1337);
  const Oracle torch;
  put(torch, Parameters(model), b);

  Training part = nano;
  part.steps = 60;  // f64 takes seven times as long
  const int all = threads();
  std::future<std::pair<Run, Run>> ours = std::async(std::launch::async, [&] {  // while PyTorch trains
    set_threads(all);
    return std::pair(train(model, DType::f32, b, nano), train(model, DType::f64, b, part));
  });
  const bool there = torch.run("torch_gpt_training.py", nano.arguments("float32"));
  const auto [f32, f64] = ours.get();
  CHECK(apart(first(f32.losses, part.steps), f64.losses) <= 2e-6);
  CHECK(f32.losses.back() < 0.85 * f32.losses.front());  // it learns
  if (!there) return;
  const auto losses = torch.get("losses.float32");
  CHECK(apart(f32.losses, losses) <= 2e-6);
  CHECK(apart(first(losses, part.steps), f64.losses) <= 2e-6);
  CHECK(distance(f32.norms, torch.get("norms.float32")) < 1e-5);
}

TEST_CASE("a small GPT in f64 trains as in PyTorch: losses, norms of gradients, weights") {
  const Training small{.layers = 2,
                       .heads = 2,
                       .width = 24,
                       .context = 16,
                       .batch = 5,
                       .steps = 40,
                       .warm = 10,
                       .decay = 30,
                       .lr = 3e-3};
  const Dataset data = small.windows(some_text(5000));
  const Batches b = batches_of(data, small);
  Module model = small.model(data->classes());
  initialize(model, 7);
  const Oracle torch;
  put(torch, Parameters(model), b);
  if (!torch.run("torch_gpt_training.py", small.arguments("float64"))) return;
  const Run ours = train(model, DType::f64, b, small);
  CHECK(apart(ours.losses, torch.get("losses.float64")) < 1e-12);
  CHECK(distance(ours.norms, torch.get("norms.float64")) < 1e-11);
  std::size_t begin = 0, i = 0;
  const Parameters start(model);
  for (const auto& e : start.entries()) {
    INFO(e.name);
    const auto at = [&](std::size_t n) { return ours.weights.begin() + static_cast<std::ptrdiff_t>(n); };
    CHECK(distance({at(begin), at(ours.ends[i])}, torch.get(e.name + ".float64")) < 1e-10);
    begin = ours.ends[i++];
  }
}

TEST_CASE("steps of the character GPT have the same bits on 1, 2 and 3 threads") {
  Training few = nano;
  few.steps = 3;
  const Dataset data = few.windows(some_text(20000));
  const Batches b = batches_of(data, few);
  for (const double dropout : {0.0, 0.2})
    for (const DType dtype : {DType::f32, DType::f64}) {
      INFO("dropout " << dropout << ", " << name_of(dtype));
      Module model = few.model(data->classes(), dropout);
      initialize(model, 2);
      std::vector<Run> runs;
      for (const int count : {1, 2, 3})
        runs.push_back(std::async(std::launch::async,
                                  [&] {  // the number is a thread's
                                    set_threads(count);
                                    return train(model, dtype, b, few);
                                  })
                           .get());
      for (const Run& other : runs) {
        CHECK(other.losses == runs[0].losses);
        CHECK(other.norms == runs[0].norms);
        CHECK(other.weights == runs[0].weights);
      }
    }
}

}  // namespace test_gpt_training

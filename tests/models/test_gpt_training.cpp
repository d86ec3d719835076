// The character GPT of nanoGPT's configuration for CPUs trains as PyTorch trains it, on any number of threads.
#include <thread>

#include "tests/datasets/texts.h"
#include "tests/models/text_runs.h"
#include "tests/support/oracle.h"

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index batch = 12, context = 64;
constexpr int curve = 150, exact_steps = 12;

/// Random windows of the training split.
Dataset windows(const std::string& text) {
  return Tokens({.text = text, .split = "train", .characters = true, .context = context, .per_epoch = curve * batch});
}
/// models/recipes/shakespeare_char.toml's.
Sequential nano_gpt(Index vocabulary, double dropout = 0) {
  return gpt2({.layers = 4,
               .heads = 4,
               .width = 128,
               .positions = context,
               .vocabulary = vocabulary,
               .dropout = dropout,
               .bias = false,
               .activation = "gelu"});
}
const OptimizerOptions rule{.clip_norm = 1, .decay_biases = false};

struct Run {
  std::vector<double> losses, norms, weights;
  std::vector<std::size_t> ends = {};
};
/// Steps over batches [steps, N, T] of tokens, from a model's start; weights of a type.
Run train(Module model, DType dtype, const Tensor& x, const Tensor& y, int steps) {
  convert(model, dtype);
  World world;
  Step step(model, cross_entropy, nano_adamw(1e-3, 100, 2000), world, {}, {.seed = 5, .optimizer = rule});
  Run run;
  const auto of_step = [](const Tensor& all, int i) { return reshape(all.rows(i, i + 1), {batch, context}); };
  for (int i = 0; i < steps; ++i) {
    const Tensor ids = of_step(x, i).with_batch({.seed = 5, .step = i});
    run.losses.push_back(step(ids, of_step(y, i)).item());
    run.norms.push_back(step.grad_norm());
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

/// The batches that a Loader draws, x and y [steps, N, T].
std::pair<Tensor, Tensor> batches_of(const Dataset& data, int steps) {
  std::pair all{Tensor::empty({steps, batch, context}, DType::i64), Tensor::empty({steps, batch, context}, DType::i64)};
  Loader loader(data, {.batch = batch, .shuffle = true, .seed = 1337});
  for (auto& b : loader) {
    if (b.index == steps) break;
    const Index at = b.index * batch * context;
    std::ranges::copy(b.x.view().span<const std::int64_t>(), all.first.data<std::int64_t>() + at);
    std::ranges::copy(b.y.view().span<const std::int64_t>(), all.second.data<std::int64_t>() + at);
  }
  return all;
}

}  // namespace

TEST_CASE("the first 150 losses of the character GPT are PyTorch's from one start and the same batches") {
  std::string text = tinyshakespeare();
  if (text.empty()) text = some_text(200000);  // the same bars hold
  const Dataset data = windows(text);
  const auto [x, y] = batches_of(data, curve);
  Module model = nano_gpt(data->classes());
  initialize(model, 1337);

  const Oracle torch;
  torch.put("x", x), torch.put("y", y);
  const Parameters parameters(model);
  for (const auto& e : parameters.entries()) torch.put(e.name, e.tensor);
  if (!torch.run("torch_gpt_training.py", fmt::format("4 4 float32 {} 1e-3 100 2000", curve))) return;
  REQUIRE(torch.run("torch_gpt_training.py", fmt::format("4 4 float64 {} 1e-3 100 2000", exact_steps)));

  const Run f32 = train(model.clone(), DType::f32, x, y, curve), f64 = train(model.clone(), DType::f64, x, y, curve);
  const auto theirs = torch.get("losses.float32");
  CHECK(apart(f32.losses, theirs) <= 2e-6);
  CHECK(apart(f32.losses, f64.losses) <= 2e-6);
  CHECK(apart(theirs, f64.losses) <= 2e-6);
  CHECK(f64.losses.back() < 0.75 * f64.losses.front());  // it learns
  CHECK(distance(f32.norms, torch.get("norms.float32")) < 1e-5);

  const Run exact = train(model.clone(), DType::f64, x, y, exact_steps);
  CHECK(apart(exact.losses, torch.get("losses.float64")) < 1e-12);
  CHECK(apart(exact.norms, torch.get("norms.float64")) < 1e-11);
  std::vector<double> weights;
  for (const auto& e : parameters.entries())
    for (const double v : torch.get(e.name + ".float64")) weights.push_back(v);
  CHECK(distance(exact.weights, weights, exact.ends) < 1e-9);
}

TEST_CASE("steps of the character GPT have the same bits on 1, 2 and 3 threads") {
  const Dataset data = windows(some_text(20000));
  const auto [x, y] = batches_of(data, 4);
  for (const double dropout : {0.0, 0.2})
    for (const DType dtype : {DType::f32, DType::f64}) {
      INFO("dropout " << dropout << ", " << dtype);
      Module model = nano_gpt(data->classes(), dropout);
      initialize(model, 2);
      std::vector<Run> runs(3);
      for (int count : {1, 2, 3})
        std::jthread([&] {  // the number is a thread's
          set_threads(count);
          runs[static_cast<std::size_t>(count - 1)] = train(model.clone(), dtype, x, y, 3);
        }).join();
      for (const Run& other : runs) {
        CHECK(other.losses == runs[0].losses);
        CHECK(other.norms == runs[0].norms);
        CHECK(other.weights == runs[0].weights);
      }
    }
}

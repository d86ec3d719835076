// Times training steps of a language model or a ViT on made-up tokens or images, and prints one JSON line: for
// bench/text.
//   text_step [--model gpt2] [--layers L] [--heads H] [--width C] [--context T] [--vocabulary V] [--batch B] [--steps
//   N]
//   [--warmup N] [--threads T] [--bias 0|1] [--activation NAME] [--dtype f32|bf16]
//   --decode P: times new tokens instead, after a prompt of P tokens. N are counted.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "bench/measure.h"
#include "kernels/core/random.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

/// Billions of multiply-adds twice, per second, of one large product: what the machine can do.
double product_rate(DType dtype) {
  const Index n = 1536;
  const Tensor a = Tensor::full({n, n}, 0.5, dtype), b = Tensor::full({n, n}, 0.25, dtype);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    (void)matmul(a, b);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2e-9 * static_cast<double>(n * n * n) / seconds);
  }
  return best;
}

/// Greedy tokens after a prompt, one by one.
void decode(Module& model, const std::vector<Index>& prompt, Index warmup, Index steps, Index context, double base) {
  std::vector<double> times;
  auto start = Clock::now();
  std::uint64_t sum = 0;
  generate(model, {prompt}, {.tokens = 1 + warmup + steps, .temperature = 0, .context = context}, [&](Index, Index id) {
    times.push_back(milliseconds(start));
    start = Clock::now();
    sum += static_cast<std::uint64_t>(id);
    return true;
  });
  times.erase(times.begin(), times.begin() + 1 + warmup);
  std::sort(times.begin(), times.end());
  std::printf("{\"median_ms\": %.3f, \"min_ms\": %.3f, \"ids\": %llu, \"peak_mb\": %.1f, \"base_mb\": %.1f}\n",
              median(times), times[0], static_cast<unsigned long long>(sum), peak_megabytes(), base);
}

}  // namespace

int text_step_main(int argc, char** argv) {
  std::map<std::string, std::string> o{
      {"--model", "gpt2"},       {"--layers", "0"},    {"--heads", "0"},   {"--width", "0"},  {"--context", "1024"},
      {"--vocabulary", "50257"}, {"--batch", "1"},     {"--steps", "10"},  {"--warmup", "2"}, {"--threads", "0"},
      {"--bias", "-1"},          {"--activation", ""}, {"--dtype", "f32"}, {"--decode", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name) { return static_cast<Index>(std::stoll(o.at(name))); };
  const Index batch = number("--batch"), tokens = number("--context"), vocabulary = number("--vocabulary");
  const bool half = o["--dtype"] == "bf16";
  World world(argc, argv);
  if (number("--threads") > 0) set_threads(static_cast<int>(number("--threads")));
  const double base = peak_megabytes();
  const ModelRow& row = model_row(o["--model"]);
  ModelOptions options = row.usual;
  options.arch = {.layers = number("--layers"),
                  .heads = number("--heads"),
                  .width = number("--width"),
                  .bias = number("--bias"),
                  .activation = o["--activation"]};
  if (row.text) {
    options.input = {tokens};
    options.classes = vocabulary;
    options.arch.dropout = 0;
  }  // as its peer
  if (half) options.dtype = DType::bf16;
  Module model = make_model(row.name, options);
  initialize(model, 1);
  Tensor x, y;
  const Philox random{7};
  const auto ids = [&](const Shape& shape, Index most, std::uint64_t stream) {
    const Tensor t = Tensor::empty(shape, DType::i64);
    for (Index i = 0; i < t.numel(); ++i)
      t.data<std::int64_t>()[i] = static_cast<Index>(random(stream, static_cast<std::uint64_t>(i))[0]) % most;
    return t;
  };
  if (row.text) {
    x = ids({batch, tokens}, vocabulary, 0);
    y = ids({batch, tokens}, vocabulary, 1);
  } else {
    x = Tensor::full({batch, options.input[0], options.input[1], 3}, 0.1);
    y = ids({batch}, options.classes, 1);
  }
  if (half && !row.text) x = x.to(DType::bf16);
  if (number("--decode") > 0) {
    decode(model, {x.data<std::int64_t>(), x.data<std::int64_t>() + number("--decode")}, number("--warmup"),
           number("--steps"), tokens, base);
    return 0;
  }
  Step step(model, cross_entropy, AdamW{.lr = 1e-3, .beta2 = 0.99, .weight_decay = 0.1}, world, Strategy{},
            {.optimizer = {.clip_norm = 1}});
  std::vector<double> times;
  double loss = 0;
  for (Index i = 0; i < number("--warmup") + number("--steps"); ++i) {
    const auto start = Clock::now();
    loss = step(x, y).item();
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (i >= number("--warmup")) times.push_back(took);
  }
  const double peak = peak_megabytes();
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"median_ms\": %.3f, \"min_ms\": %.3f, \"loss\": %.5f, \"peak_mb\": %.1f, \"base_mb\": %.1f, \"parameters\": "
      "%lld, \"gflops\": %.1f}\n",
      times[times.size() / 2], times[0], loss, peak, base, static_cast<long long>(step.parameters().count()),
      product_rate(half ? DType::bf16 : DType::f32));
  return 0;
}

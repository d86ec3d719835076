// Times training steps under a strategy, and prints one JSON line: for bench/strategies.
//   strategy_step [--strategy S] [--mesh M] [--batch B] [--size S] [--steps N] [--warmup N] [--threads T]
//       a compute-bound CNN on S x S images
//   strategy_step --tokens T [...]                           GPT-2 124M on T tokens a sample
//   strategy_step --overhead 1 [--steps N] [--batch B]      MNIST CNN: a serial plan beside the loop written by hand
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "bench/measure.h"
#include "framework/layers/init.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

/// Eight convolutions with equal work in each: it divides well, and its messages are small beside it.
Sequential even_cnn(Index size) {
  Sequential model{Conv2d(3, 64, 3, {.pad = 1}), relu};
  for (int i = 0; i < 8; ++i) model.add(Conv2d(64, 64, 3, {.pad = 1})).add(relu);
  return model.add(MaxPool(4)).add(flatten).add(Linear(size / 4 * (size / 4) * 64, 10));
}

int overhead(int steps, Index batch) {
  World world;
  Module planned = mnist_cnn(), plain = mnist_cnn();
  initialize(planned, 1);
  initialize(plain, 1);
  const Sgd sgd{.lr = 0.01, .momentum = 0.9};
  Step step(planned, cross_entropy, sgd, world, Strategy{}, {.checks = {.finite = false}});
  Parameters parameters(plain);
  Optimizer optimizer(parameters, sgd);
  std::vector<double> ratios, ours, hand;
  Loader loader(Synthetic({.size = 4096, .shape = {28, 28, 1}}), {.batch = batch, .shuffle = true});
  while (static_cast<int>(ratios.size()) < steps + 3)
    for (auto& [x, y] : loader) {
      auto by_plan = [&] {
        const Clock::time_point start = Clock::now();
        step(x, y).item();
        ours.push_back(milliseconds(start));
      };
      auto by_hand = [&] {
        const Clock::time_point start = Clock::now();
        const Tensor loss = cross_entropy(plain(x), y);
        loss.backward();
        optimizer.step();
        loss.item();
        hand.push_back(milliseconds(start));
      };
      // Whoever comes second finds the batch in the cache.
      if (ratios.size() % 2 == 0) {
        by_plan();
        by_hand();
      } else {
        by_hand();
        by_plan();
      }
      ratios.push_back(ours.back() / hand.back());
      if (static_cast<int>(ratios.size()) == steps + 3) break;
    }
  for (auto* v : {&ratios, &ours, &hand}) v->erase(v->begin(), v->begin() + 3);
  std::printf("{\"plan_ms\": %.3f, \"hand_ms\": %.3f, \"ratio\": %.4f}\n", median(ours), median(hand), median(ratios));
  return 0;
}

}  // namespace

int strategy_step_main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--strategy", "serial"}, {"--mesh", ""},      {"--batch", "64"},
                                             {"--steps", "5"},         {"--warmup", "1"},   {"--threads", "0"},
                                             {"--size", "32"},         {"--overhead", "0"}, {"--tokens", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const int steps = std::stoi(options["--steps"]), warmup = std::stoi(options["--warmup"]);
  const Index batch = std::stoi(options["--batch"]), size = std::stoi(options["--size"]);
  if (options["--overhead"] == "1") return overhead(steps, batch);
  World world(argc, argv);
  if (options["--threads"] != "0") set_threads(std::stoi(options["--threads"]));
  Mesh mesh(world,
            options["--mesh"].empty() ? std::vector<Axis>{{"data", world.size()}} : parse_mesh(options["--mesh"]));

  const Index tokens = std::stoi(options["--tokens"]);
  Tensor example, ids;
  if (tokens > 0) {
    const std::vector<double> drawn = uniform({64 * batch * tokens}, 0, 50257, 1).to_vector();
    ids = Tensor::of(drawn, {64 * batch, tokens}, DType::i64);
    example = ids.rows(0, 1);
  } else {
    example = uniform({std::max<Index>(1, batch / 8), size, size, 3}, -1, 1, 1);
  }
  Step step(tokens > 0 ? Module(gpt2({.dropout = 0})) : Module(even_cnn(size)), cross_entropy,
            Sgd{.lr = 0.01, .momentum = 0.9}, mesh, parse_strategy(options["--strategy"]),
            {.profile = {.example = example}});
  Runtime& memory = runtime(DeviceKind::cpu);
  const std::size_t before = memory.in_use();
  const Dataset data = tokens > 0 ? TensorDataset(ids, ids) : Synthetic({.size = 64 * batch, .shape = {size, size, 3}});
  Loader loader(data, {.batch = batch, .shard = step.shard()});
  std::vector<double> times;
  int count = 0;
  for (auto& [x, y] : loader) {
    if (count == warmup) memory.reset_peak();
    const Clock::time_point start = Clock::now();
    step(x, y).item();
    if (count++ >= warmup) times.push_back(milliseconds(start));
    if (count == warmup + steps) break;
  }
  // The heaviest rank's tensors beyond weights and optimizer state.
  const Tensor peak =
      Tensor::of(std::vector<double>{static_cast<double>(memory.peak() - before) / 1e6}, {1}, DType::f64);
  world.comm().all_reduce(peak, ReduceOp::max).wait();
  if (world.main())
    std::printf("{\"median_ms\": %.3f, \"min_ms\": %.3f, \"peak_mb\": %.1f}\n", median(times),
                *std::min_element(times.begin(), times.end()), peak.item());
  return 0;
}

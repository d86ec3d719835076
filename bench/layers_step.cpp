// Times forward and backward of a layer, or a training step of a model, on synthetic data, and prints one JSON line:
// for bench/layers, whose other half is layers_torch.py.
//   layers_step NAME [STEPS]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "bench/measure.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

/// One turn, to be timed; whatever it needs lives in the function.
using Turn = std::function<void()>;

Turn layer(Module module, Tensor x, const Shape& out) {
  auto parameters = std::make_shared<Module>(module);
  for (const NamedState& t : named_tensors(*parameters)) t.tensor->require_grad();
  if (is_float(x.dtype())) x.require_grad();
  const Tensor seed = normal(out, 0, 1, 9);
  return [=] {
    (*parameters)(x).backward(seed);
    for (const NamedState& t : named_tensors(*parameters)) t.tensor->clear_grad();
    if (x.requires_grad()) x.clear_grad();
  };
}
/// Sgd on cross-entropy, or on the square of the output.
Turn training(Module model, const Tensor& x, const Tensor& labels) {
  initialize(model, 1);
  auto parameters = std::make_shared<Parameters>(model);
  auto optimizer = std::make_shared<Optimizer>(*parameters, Sgd{.lr = 0.01, .momentum = 0.9});
  return [=, held = parameters] {  // by the optimizer's reference
    const Tensor y = model(x);
    const Tensor loss = labels ? cross_entropy(y, labels) : mean(square(y));
    loss.backward();
    optimizer->step();
    (void)loss.item();
  };
}

const std::map<std::string, std::function<Turn()>> cases{
    {"group_norm",
     [] {
       return layer(GroupNorm(32, 128), normal({32, 28, 28, 128}, 0, 1, 1), {32, 28, 28, 128});
     }},
    {"group_norm_large",
     [] {
       return layer(GroupNorm(8, 32), normal({4, 128, 128, 32}, 0, 1, 1), {4, 128, 128, 32});
     }},
    {"rms_norm",
     [] {
       return layer(RMSNorm(768), normal({4096, 768}, 0, 1, 1), {4096, 768});
     }},
    {"conv_transpose",
     [] {
       return layer(ConvTranspose2d(128, 64, 2, {.stride = 2}), normal({8, 28, 28, 128}, 0, 1, 1), {8, 56, 56, 64});
     }},
    {"conv_transpose_4",
     [] {
       return layer(ConvTranspose2d(64, 32, 4, {.stride = 2, .pad = 1}), normal({8, 32, 32, 64}, 0, 1, 1),
                    {8, 64, 64, 32});
     }},
    {"bilinear",
     [] {
       return layer(Upsample({.scale = 2, .mode = ResampleMode::linear}), normal({8, 28, 28, 64}, 0, 1, 1),
                    {8, 56, 56, 64});
     }},
    {"nearest",
     [] {
       return layer(Upsample({.scale = 2}), normal({8, 28, 28, 64}, 0, 1, 1), {8, 56, 56, 64});
     }},
    {"trilinear",
     [] {
       return layer(Upsample({.scale = 2, .mode = ResampleMode::linear}), normal({2, 16, 16, 16, 32}, 0, 1, 1),
                    {2, 32, 32, 32, 32});
     }},
    {"embedding",
     [] {
       return layer(Embedding(20000, 256), floor(uniform({32, 256}, 0, 20000, 1)).to(DType::i64), {32, 256, 256});
     }},
    {"adaptive_avg_pool",
     [] {
       return layer(AdaptiveAvgPool({7, 7}), normal({16, 30, 30, 128}, 0, 1, 1), {16, 7, 7, 128});
     }},
    {"mobilenet_v2",
     [] {
       return training(mobilenet_v2(), normal({8, 224, 224, 3}, 0, 1, 1), remainder(arange(8), 1000));
     }},
    {"unet",
     [] {
       return training(unet(), normal({2, 128, 128, 3}, 0, 1, 1), {});
     }},
    {"unet_3d",
     [] {
       return training(unet({.input = {32, 32, 32, 1}, .classes = 2}, 16), normal({1, 32, 32, 32, 1}, 0, 1, 1), {});
     }},
};

}  // namespace

int layers_step_main(int argc, char** argv) {
  const auto found = argc > 1 ? cases.find(argv[1]) : cases.end();
  if (found == cases.end()) {
    std::fprintf(stderr, "usage: layers_step NAME [STEPS]; names:");
    for (const auto& [name, make] : cases) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const int steps = argc > 2 ? std::max(1, std::atoi(argv[2])) : 10;
  const double base = peak_megabytes();
  const Turn turn = found->second();
  std::vector<double> times;
  for (int i = -2; i < steps; ++i) {
    const auto start = Clock::now();
    turn();
    if (i >= 0) times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"median_ms\": %.4f, \"min_ms\": %.4f, \"peak_mb\": %.1f, \"base_mb\": %.1f}\n",
              times[times.size() / 2], times[0], peak_megabytes(), base);
  return 0;
}

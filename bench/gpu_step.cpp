// Times training steps or inference on a GPU, on one batch that stays there, and prints one JSON line: for bench/gpu.
//   gpu_step [--model resnet50|mnist_cnn] [--mode train|infer] [--dtype f32|tf32|bf16|f16] [--batch B] [--steps N]
//   [--runs R] [--warmup W] [--size PX] [--graphs true|false] [--deterministic true|false]
// A run is N steps without a word to the host, then one wait: R of them are timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "framework/layers/inference.h"
#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;
using Clock = std::chrono::steady_clock;

int main(int argc, char** argv) {
  std::map<std::string, std::string> o{{"--model", "resnet50"}, {"--mode", "train"}, {"--dtype", "bf16"},
                                       {"--batch", "256"},      {"--steps", "20"},   {"--runs", "7"},
                                       {"--warmup", "20"},      {"--size", "224"},   {"--deterministic", "true"},
                                       {"--graphs", "true"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const int steps = std::stoi(o["--steps"]), runs = std::stoi(o["--runs"]);
  const Index batch = std::stoi(o["--batch"]), size = std::stoi(o["--size"]);
  const std::string name = o["--model"], kind = o["--dtype"];
  const DType dtype = kind == "bf16" ? DType::bf16 : kind == "f16" ? DType::f16 : DType::f32;
  if (kind == "tf32") set_f32_product(MatmulPrecision::tf32);
  set_deterministic(o["--deterministic"] == "true");
  const bool mnist = name == "mnist_cnn";
  const Shape image = mnist ? Shape{28, 28, 1} : Shape{size, size, 3};
  const Index classes = mnist ? 10 : 1000;

  World world(argc, argv);
  Module model = make_model(name, {.input = image, .classes = classes});
  initialize(model, 1);
  place(model, cuda());
  Loader loader(Synthetic({.size = batch, .shape = image, .classes = classes}),
                {.batch = batch, .workers = 0, .dtype = dtype, .device = cuda()});
  auto first = loader.begin();
  const auto& [x, y] = *first;
  Runtime& device = runtime(DeviceKind::cuda);
  std::vector<double> times;
  double last = 0;
  const auto time = [&](const std::function<Tensor()>& step) {
    for (int i = 0; i < std::stoi(o["--warmup"]); ++i) last = step().to_vector()[0];
    device.reset_peak();
    for (int r = 0; r < runs; ++r) {
      const auto start = Clock::now();
      Tensor result;
      for (int i = 0; i < steps; ++i) result = step();
      last = result.to_vector()[0];
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count() / steps);
    }
  };
  if (o["--mode"] == "infer") {
    const Inference inference;
    time([&] { return model(x); });
  } else {
    Step step(model, cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4}, world, {},
              {.check_finite = false,
               .loss_scale = dtype == DType::f16 ? 1024.0 : 0.0,
               .cuda_graphs = o["--graphs"] == "true"});
    time([&] { return step(x, y); });
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"median_ms\": %.4f, \"min_ms\": %.4f, \"loss\": %.5f, \"peak_mb\": %.1f, \"base_mb\": 0}\n",
              times[times.size() / 2], times[0], last, static_cast<double>(device.peak()) / (1 << 20));
}

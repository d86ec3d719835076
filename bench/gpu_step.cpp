// Times training steps or inference on a GPU, on one batch that stays there, and prints one JSON line: for bench/gpu.
//   gpu_step [--model resnet50|mnist_cnn|gpt2|...] [--mode train|infer] [--dtype f32|tf32|bf16|f16] [--batch B]
//   [--steps N] [--runs R] [--warmup W] [--size PX] [--context T] [--vocabulary V] [--graphs true|false]
//   [--deterministic true|false] [--device cuda|cpu]
//   gpu_step --same FOLDER [--steps N] ...: leaves initial weights and batch there, and prints the losses of N steps
// A run is N steps without synchronisation, then one wait; R runs are timed. Sizes: of images, or of a text.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "bench/measure.h"
#include "framework/io/weights.h"
#include "framework/layers/inference.h"
#include "kernels/core/backend.h"
#include "kernels/core/random.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;
using Options = std::map<std::string, std::string>;

namespace {

struct Batch {
  Tensor x, y;
};

Tensor ids(const Shape& shape, Index classes, std::uint64_t stream) {
  const Philox random{7};
  const Tensor t = Tensor::empty(shape, DType::i64);
  for (Index i = 0; i < t.numel(); ++i)
    t.data<std::int64_t>()[i] = static_cast<Index>(random(stream, static_cast<std::uint64_t>(i))[0]) % classes;
  return t;
}

/// Of images that suit the model, x in dtype; or of token ids.
Batch make_batch(const ModelRow& row, const ModelOptions& model, Index batch, DType dtype, Device device) {
  if (row.text)
    return {ids({batch, model.input[0]}, model.classes, 0).to(device),
            ids({batch, model.input[0]}, model.classes, 1).to(device)};
  Loader loader(Synthetic({.size = batch, .shape = model.input, .classes = model.classes}),
                {.batch = batch, .workers = 0, .dtype = dtype, .device = device});
  const auto first = loader.begin();
  return {first->x, first->y};
}

/// Weights in PyTorch's layout and names, images as PyTorch has them: [N, C, H, W].
void save_start(const std::string& folder, const Parameters& parameters, const Batch& b) {
  write_safetensors(folder + "/weights.safetensors", export_weights(parameters));
  const Tensor x = b.x.rank() == 4 ? permute(b.x.to(cpu()).to(DType::f32), {0, 3, 1, 2}) : b.x.to(cpu());
  write_safetensors(folder + "/batch.safetensors", {{"x", x}, {"y", b.y.to(cpu())}});
}

}  // namespace

int gpu_step_main(int argc, char** argv) {
  Options o{{"--model", "resnet50"}, {"--mode", "train"}, {"--dtype", "bf16"},      {"--batch", "256"},
            {"--steps", "20"},       {"--runs", "7"},     {"--warmup", "20"},       {"--size", "224"},
            {"--context", "1024"},   {"--same", ""},      {"--graphs", "true"},     {"--deterministic", "true"},
            {"--device", "cuda"},    {"--layers", "0"},   {"--vocabulary", "50304"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name) { return static_cast<Index>(std::stoll(o.at(name))); };
  const int steps = static_cast<int>(number("--steps")), runs = static_cast<int>(number("--runs"));
  const Index batch = number("--batch"), size = number("--size");
  const std::string kind = o["--dtype"], folder = o["--same"];
  const DType dtype = kind == "bf16" ? DType::bf16 : kind == "f16" ? DType::f16 : DType::f32;
  if (kind == "tf32") set_f32_product(MatmulPrecision::tf32);
  set_deterministic(o["--deterministic"] == "true");
  const Device place_of_all = o["--device"] == "cpu" ? cpu() : cuda();

  World world(argc, argv);
  const ModelRow& row = model_row(o["--model"]);
  ModelOptions options = row.usual;
  if (row.text) {
    options.input = {number("--context")};
    options.classes = number("--vocabulary");
    options.arch.dropout = 0;
    if (number("--layers") > 0) options.arch.layers = number("--layers");
    if (dtype != DType::f32) options.dtype = dtype;
  } else if (row.name != "mnist_cnn") {
    options.input = {size, size, 3};
    options.classes = 1000;
  }
  Module model = make_model(row.name, options);
  initialize(model, 1);
  place(model, place_of_all);
  const auto [x, y] = make_batch(row, options, batch, dtype, place_of_all);

  Runtime& device = runtime(place_of_all.kind);
  std::vector<double> times;
  double last = 0;
  const auto time = [&](const std::function<Tensor()>& step) {
    for (Index i = 0; i < number("--warmup"); ++i) last = step().to_vector()[0];
    device.reset_peak();
    for (int r = 0; r < runs; ++r) {
      const auto start = Clock::now();
      Tensor result;
      for (int i = 0; i < steps; ++i) result = step();
      last = result.to_vector()[0];
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count() / steps);
    }
  };
  Index parameters = 0;
  if (o["--mode"] == "infer") {
    const Inference inference;
    time([&] { return model(x); });
  } else {
    // nanoGPT's settings for text, torchvision's recipe for images.
    const OptimizerConfig optimizer_config =
        row.text ? OptimizerConfig(AdamW{.lr = 6e-4, .beta2 = 0.95, .weight_decay = 0.1})
                 : OptimizerConfig(Sgd{.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
    Step step(model, cross_entropy, optimizer_config, world, {},
              {.optimizer = {.clip_norm = row.text ? 1.0 : 0.0},
               .checks = {.finite = false},
               .loss_scale = dtype == DType::f16 ? 1024.0 : 0.0,
               .cuda_graphs = o["--graphs"] == "true"});
    parameters = step.parameters().count();
    if (!folder.empty()) {
      save_start(folder, step.parameters(), {x, y});
      std::printf("{\"losses\": [");
      for (int i = 0; i < steps; ++i) std::printf("%s%.9g", i > 0 ? ", " : "", step(x, y).item());
      std::printf("]}\n");
      return 0;
    }
    time([&] { return step(x, y); });
  }
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"median_ms\": %.4f, \"min_ms\": %.4f, \"loss\": %.5f, \"peak_mb\": %.1f, \"base_mb\": 0, \"parameters\": "
      "%lld}\n",
      times[times.size() / 2], times[0], last, static_cast<double>(device.peak()) / (1 << 20),
      static_cast<long long>(parameters));
  return 0;
}

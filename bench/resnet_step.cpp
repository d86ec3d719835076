// Times ResNet training steps or inference on synthetic images, and prints one JSON line: for bench/resnet.
//   resnet_step [--mode train|infer|vendor|norm] [--model resnet50] [--steps N] [--warmup N] [--batch B] [--size PX]
//   [--threads T] [--norm global|local] [--dtype f32|bf16]
// vendor: bare oneDNN calls of the same training step, in its order, beside it (interleaved): convolutions alone, and
// with batch norm (ReLU and add fused as its flags allow).
// norm: under mpiexec, steps whose batch norms see the rows of all ranks and steps whose see each rank's, in turn.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "bench/measure.h"
#include "bench/vendor_calls.h"
#include "framework/layers/inference.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {
double processor_milliseconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return of(use.ru_utime) + of(use.ru_stime);
}
struct Contender {
  Module model;
  Step step;
  std::vector<double> times = {}, processor = {};

  Contender(const std::string& name, Index size, World& world, NormScope scope)
      : model(make_model(name, {.input = {size, size, 3}, .classes = 1000})),
        step((initialize(model, 1), model), cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4},
             world, world.size() > 1 ? data_parallel({.norm_scope = scope}) : Strategy{}) {}
};

/// Neighbours in time are compared: what else the machine does meets both.
int compare_norms(const std::string& name, Index size, const Tensor& x, const Tensor& y, int warmup, int steps,
                  World& world) {
  Contender global(name, size, world, NormScope::global), local(name, size, world, NormScope::local);
  std::vector<double> ratios, busy;
  for (int i = 0; i < warmup + steps; ++i) {
    Contender* order[] = {&global, &local};
    if (i % 2) std::swap(order[0], order[1]);
    for (Contender* now : order) {
      world.comm().barrier();
      const double before = processor_milliseconds();
      const auto start = Clock::now();
      (void)now->step(x, y).item();
      if (i < warmup) continue;
      now->times.push_back(milliseconds(start));
      now->processor.push_back(processor_milliseconds() - before);
    }
    if (i < warmup) continue;
    ratios.push_back(global.times.back() / local.times.back());
    busy.push_back(global.processor.back() / local.processor.back());
  }
  if (!world.main()) return 0;
  std::sort(ratios.begin(), ratios.end());
  std::printf(
      "{\"global_ms\": %.2f, \"local_ms\": %.2f, \"global_min_ms\": %.2f, \"local_min_ms\": %.2f, \"ratio\": %.4f, "
      "\"ratio_low\": %.4f, \"ratio_high\": %.4f, \"processor_ratio\": %.4f}\n",
      median(global.times), median(local.times), *std::min_element(global.times.begin(), global.times.end()),
      *std::min_element(local.times.begin(), local.times.end()), median(ratios), ratios[ratios.size() / 4],
      ratios[ratios.size() * 3 / 4], median(busy));
  return 0;
}

}  // namespace

int resnet_step_main(int argc, char** argv) {
  std::map<std::string, std::string> o{{"--mode", "train"}, {"--model", "resnet50"}, {"--steps", "10"},
                                       {"--warmup", "2"},   {"--batch", "16"},       {"--size", "224"},
                                       {"--threads", "0"},  {"--norm", "global"},    {"--dtype", "f32"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const int steps = std::stoi(o["--steps"]), warmup = std::stoi(o["--warmup"]);
  const Index batch = std::stoi(o["--batch"]), size = std::stoi(o["--size"]);
  World world(argc, argv);
  if (int t = std::stoi(o["--threads"]); t > 0) set_threads(t);
  const double base = peak_megabytes();

  Module model = make_model(o["--model"], {.input = {size, size, 3}, .classes = 1000});
  initialize(model, 1);
  // One batch over and over, as the counterpart in PyTorch does: nothing of the data is timed.
  Dataset data = Synthetic({.size = batch * world.size(), .shape = {size, size, 3}, .classes = 1000});
  Loader loader(data, {.batch = batch * world.size(), .shard = world, .workers = 0});
  auto first = loader.begin();
  const auto& [images, y] = *first;
  const Tensor x = o["--dtype"] == "bf16" ? images.to(DType::bf16) : images;
  if (o["--mode"] == "norm") return compare_norms(o["--model"], size, x, y, warmup, steps, world);
  std::vector<double> times, convs, all;
  double loss = 0, peak = 0;
  if (o["--mode"] == "infer") {
    Parameters parameters(model);
    Inference inference;
    for (int i = 0; i < warmup + steps; ++i) {
      auto start = Clock::now();
      loss = model(x).to_vector()[0];
      if (i >= warmup) times.push_back(milliseconds(start));
    }
    peak = peak_megabytes();
  } else {
    Step step(model, cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4}, world,
              world.size() > 1
                  ? data_parallel({.norm_scope = o["--norm"] == "local" ? NormScope::local : NormScope::global})
                  : Strategy{});
    VendorCalls vendor;
    for (int i = 0; i < warmup + steps; ++i) {
      const auto start = Clock::now();
      loss = step(x, y).item();
      const double took = milliseconds(start);
      peak = peak_megabytes();
      if (i >= warmup) times.push_back(took);
      if (o["--mode"] != "vendor") continue;
      if (!vendor) vendor = resnet50_calls(batch, size);
      const auto [conv, norm] = vendor.run();
      if (i >= warmup) {
        convs.push_back(conv);
        all.push_back(conv + norm);
      }
    }
  }
  if (!world.main()) return 0;
  std::printf("{\"median_ms\": %.2f, \"min_ms\": %.2f, \"loss\": %.5f, \"peak_mb\": %.1f, \"base_mb\": %.1f",
              median(times), *std::min_element(times.begin(), times.end()), loss, peak, base);
  if (!all.empty()) {
    std::vector<double> over_conv, over_all;
    for (std::size_t i = 0; i < times.size(); ++i) {
      over_conv.push_back(times[i] / convs[i]);
      over_all.push_back(times[i] / all[i]);
    }
    std::printf(
        ", \"convs_ms\": %.2f, \"convs_and_norms_ms\": %.2f, \"over_convs\": %.3f, \"over_convs_and_norms\": %.3f",
        median(convs), median(all), median(over_conv), median(over_all));
  }
  std::printf("}\n");
  return 0;
}

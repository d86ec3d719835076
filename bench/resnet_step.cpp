// Times ResNet training steps or inference on synthetic images, and prints one JSON line: for bench/resnet.
//   resnet_step [--mode train|infer|vendor] [--model resnet50] [--steps N] [--warmup N] [--batch B] [--size PX]
//   [--threads T]
// vendor: bare oneDNN calls of the same training step, in its order, beside it (interleaved): convolutions alone, and
// with batch norm (ReLU and add fused as its flags allow).
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "bench/vendor_calls.h"
#include "kernels/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;
using Clock = std::chrono::steady_clock;

namespace {
double milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
double peak_megabytes() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) / 1024;
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> o{{"--mode", "train"}, {"--model", "resnet50"}, {"--steps", "10"},
                                       {"--warmup", "2"},   {"--batch", "16"},       {"--size", "224"},
                                       {"--threads", "0"}};
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
  const auto& [x, y] = *first;
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
    Step step(model, cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9, .decay = 1e-4}, world,
              world.size() > 1 ? data_parallel() : Strategy{});
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
      if (i >= warmup) convs.push_back(conv), all.push_back(conv + norm);
    }
  }
  if (!world.main()) return 0;
  std::printf("{\"median_ms\": %.2f, \"min_ms\": %.2f, \"loss\": %.5f, \"peak_mb\": %.1f, \"base_mb\": %.1f",
              median(times), *std::min_element(times.begin(), times.end()), loss, peak, base);
  if (!all.empty()) {
    std::vector<double> over_conv, over_all;
    for (std::size_t i = 0; i < times.size(); ++i)
      over_conv.push_back(times[i] / convs[i]), over_all.push_back(times[i] / all[i]);
    std::printf(
        ", \"convs_ms\": %.2f, \"convs_and_norms_ms\": %.2f, \"over_convs\": %.3f, \"over_convs_and_norms\": %.3f",
        median(convs), median(all), median(over_conv), median(over_all));
  }
  std::printf("}\n");
}

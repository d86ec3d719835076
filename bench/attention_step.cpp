// Times attention, causal, of heads of 64 elements, forward alone or with its backward, and prints one JSON line: for
// bench/attention, whose other half is attention_torch.py.
//   attention_step SAMPLES HEADS TOKENS f32|bf16 forward|both [STEPS] [cpu|cuda]
// On a GPU a step is 20 calls without synchronisation, then one wait.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/measure.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;

int attention_step_main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: attention_step SAMPLES HEADS TOKENS f32|bf16 forward|both [STEPS] [cpu|cuda]\n");
    return 2;
  }
  const Shape shape{std::atoll(argv[1]), std::atoll(argv[3]), std::atoll(argv[2]), 64};
  const DType type = std::string(argv[4]) == "bf16" ? DType::bf16 : DType::f32;
  const bool both = std::string(argv[5]) == "both";
  const int steps = argc > 6 ? std::max(1, std::atoi(argv[6])) : 10;
  const Device device = argc > 7 && std::string(argv[7]) == "cuda" ? cuda() : cpu();
  const int calls = device.kind == DeviceKind::cuda ? 20 : 1;
  Tensor in[3];
  for (std::uint64_t i = 0; i < 3; ++i) in[i] = normal(shape, 0, 1, i + 1).to(type).to(device);
  const Tensor seed = normal(shape, 0, 1, 4).to(type).to(device);
  if (both)
    for (Tensor& t : in) t.require_grad();
  std::vector<double> times;
  for (int i = -3; i < steps; ++i) {
    const auto start = Clock::now();
    for (int call = 0; call < calls; ++call) {
      const Tensor y = attention(in[0], in[1], in[2], {.causal = true});
      if (!both) continue;
      y.backward(seed);
      for (Tensor& t : in) t.clear_grad();
    }
    runtime(device.kind).synchronize(device);
    if (i >= 0) times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count() / calls);
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"median_ms\": %.4f, \"min_ms\": %.4f}\n", times[times.size() / 2], times[0]);
  return 0;
}

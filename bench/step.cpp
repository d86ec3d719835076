// Step time over the bare oneDNN calls of the same step. This program defines dnnl_primitive_execute itself, in front
// of the library's, and adds up the time that the step spends inside oneDNN; the rest is ours: dispatch, tape, own
// kernels, optimizer, data.
//   step [--model vgg|mnist] [--steps N] [--batch B]
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "trireme/trireme.h"
using namespace trireme;
using Clock = std::chrono::steady_clock;

namespace {
struct Vendor {
  double milliseconds = 0, reorders = 0;
  long calls = 0;
} vendor;

double milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
}  // namespace

extern "C" dnnl_status_t DNNL_API dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int n,
                                                         const dnnl_exec_arg_t* args) {
  static auto* real = reinterpret_cast<decltype(&dnnl_primitive_execute)>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  const_dnnl_primitive_desc_t desc = nullptr;
  dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
  dnnl_primitive_get_primitive_desc(primitive, &desc);
  dnnl_primitive_desc_query(desc, dnnl_query_primitive_kind, 0, &kind);
  Clock::time_point start = Clock::now();
  dnnl_status_t status = real(primitive, stream, n, args);
  (kind == dnnl_reorder ? vendor.reorders : vendor.milliseconds) += milliseconds(start);
  ++vendor.calls;
  return status;
}

namespace {
/// A mid-size CNN: six convolutions on 32x32 colour images, 64 to 256 channels.
Sequential vgg() {
  auto conv = [](Index in, Index out) { return Conv2d(in, out, 3, {.pad = 1}); };
  return {conv(3, 64),    relu,    conv(64, 64),      relu,           MaxPool(2),     conv(64, 128),  relu,
          conv(128, 128), relu,    MaxPool(2),        conv(128, 256), relu,           conv(256, 256), relu,
          MaxPool(2),     flatten, Linear(4096, 256), relu,           Linear(256, 10)};
}
}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--model", "vgg"}, {"--steps", "15"}, {"--batch", "64"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  bool mnist = options["--model"] == "mnist";
  World world;
  Step step(mnist ? Module(mnist_cnn()) : Module(vgg()), cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9}, world,
            Strategy{});
  Loader loader(Synthetic({.size = 4096, .shape = mnist ? Shape{28, 28, 1} : Shape{32, 32, 3}}),
                {.batch = std::stoi(options["--batch"]), .shuffle = true});

  struct Sample {
    double step, vendor, reorders;
  };
  std::vector<Sample> samples;
  int wanted = std::stoi(options["--steps"]) + 3;
  for (auto& [x, y] : loader) {
    vendor = {};
    Clock::time_point start = Clock::now();
    step(x, y).item();
    samples.push_back({milliseconds(start), vendor.milliseconds, vendor.reorders});
    if (static_cast<int>(samples.size()) == wanted) break;
  }
  samples.erase(samples.begin(), samples.begin() + 3);
  auto median = [&](auto f) {
    std::vector<double> v;
    for (const Sample& s : samples) v.push_back(f(s));
    std::sort(v.begin(), v.end());
    return std::tuple(v[v.size() / 2], v.front(), v.back());
  };
  auto [total, low, high] = median([](auto& s) { return s.step; });
  auto [bare, b0, b1] = median([](auto& s) { return s.vendor; });
  auto [reorder, r0, r1] = median([](auto& s) { return s.reorders; });
  auto [ratio, ratio_low, ratio_high] = median([](auto& s) { return s.step / s.vendor; });
  std::printf("%s, batch %s: step %.2f ms [%.2f, %.2f]; inside oneDNN %.2f ms in %ld calls, of reorders %.2f ms\n",
              options["--model"].c_str(), options["--batch"].c_str(), total, low, high, bare, vendor.calls, reorder);
  std::printf("step / oneDNN calls without reorders: %.3f [%.3f, %.3f] (median of per-step ratios)\n", ratio, ratio_low,
              ratio_high);
}

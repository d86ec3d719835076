// A training step over the sum of its kernels' isolated best times. Each kernel of the step is run again, several times
// on the operands that it has there, and its best time counts; for a convolution oneDNN's own time, with layouts of its
// choice and no reorders, if that is less. What the ratio is above 1 is ours: dispatch, tape, memory, caches that a
// kernel finds cold. Rounds of steps and of kernels alternate.
//   step [--model vgg|resnet50|mnist] [--batch B] [--rounds N] [--steps N] [--repeats N] [--threads N] [--clock
//   wall|cpu]
// --clock cpu: one thread, and the processor's time that it takes, for machines that others use as well.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "framework/tensor/launch.h"
#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"
#include "kernels/cpu/dnnl.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {

bool processor_time = false;

/// Milliseconds since some moment: by the clock, or those that this thread has run.
double now() {
  timespec t{};
  clock_gettime(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

/// A mid-size CNN: six convolutions on 32x32 colour images, 64 to 256 channels.
Sequential vgg() {
  auto conv = [](Index in, Index out) { return Conv2d(in, out, 3, {.pad = 1}); };
  return {conv(3, 64),    relu,    conv(64, 64),      relu,           MaxPool(2),     conv(64, 128),  relu,
          conv(128, 128), relu,    MaxPool(2),        conv(128, 256), relu,           conv(256, 256), relu,
          MaxPool(2),     flatten, Linear(4096, 256), relu,           Linear(256, 10)};
}

/// One of oneDNN's convolutions, on blocks of its own.
class VendorConv {
 public:
  /// op: "conv", "conv_backward_input" or "conv_backward_weight"; x, w, y: shapes of the three tensors.
  VendorConv(const std::string& op, const Shape& x, const Shape& w, const Shape& y) {
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const Index k = w[1], stride = (x[1] + y[1] / 2) / y[1];
    Index pad = 0;
    while (pad < k && (x[1] + 2 * pad - k) / stride + 1 != y[1]) ++pad;
    const memory::dims strides{stride, stride}, dense{0, 0}, pads{pad, pad};
    const memory::desc xd({x[0], x[3], x[1], x[2]}, f32, memory::format_tag::nhwc),
        yd({y[0], y[3], y[1], y[2]}, f32, memory::format_tag::nhwc),
        wd({w[0], w[3], k, k}, f32, memory::format_tag::any);
    const dnnl::primitive_attr attr;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto f = onednn::describe<dnnl::convolution_forward>(attr, dnnl::prop_kind::forward_training, direct, xd, wd,
                                                               yd, strides, dense, pads, pads);
    if (op == "conv") {
      use(dnnl::convolution_forward(f), f.weights_desc(), {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}, xd, yd);
    } else if (op == "conv_backward_input") {
      const auto b = onednn::describe_backward<dnnl::convolution_backward_data>(attr, f, direct, xd, wd, yd, strides,
                                                                                dense, pads, pads);
      use(dnnl::convolution_backward_data(b), b.weights_desc(),
          {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST}, xd, yd);
    } else {
      const auto b = onednn::describe_backward<dnnl::convolution_backward_weights>(attr, f, direct, xd, wd, yd, strides,
                                                                                   dense, pads, pads);
      use(dnnl::convolution_backward_weights(b), b.diff_weights_desc(),
          {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}, xd, yd);
    }
  }
  double run() {
    const double start = now();
    primitive_.execute(stream_, args_);
    stream_.wait();
    return now() - start;
  }

 private:
  void use(dnnl::primitive primitive, const dnnl::memory::desc& w, const int (&names)[3], const dnnl::memory::desc& x,
           const dnnl::memory::desc& y) {
    primitive_ = std::move(primitive);
    const dnnl::memory::desc descs[] = {x, w, y};
    for (int i = 0; i < 3; ++i) {
      dnnl::memory block(descs[i], onednn::engine());
      std::fill_n(static_cast<char*>(block.get_data_handle()), descs[i].get_size(), char{0});
      args_.insert({names[i], block});
    }
  }
  dnnl::stream stream_{onednn::engine()};
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> args_;
};

/// One kernel call of a step.
struct KernelTime {
  std::string op;
  double best = HUGE_VAL, vendor = HUGE_VAL;  // milliseconds
  Shape x, w, y;                              // of a convolution
};

}  // namespace

int step_main(int argc, char** argv) {
  std::map<std::string, std::string> o{{"--model", "vgg"}, {"--batch", "0"},   {"--rounds", "5"},  {"--steps", "5"},
                                       {"--repeats", "3"}, {"--threads", "0"}, {"--clock", "wall"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const std::string name = o["--model"];
  const bool resnet = name == "resnet50";
  const int rounds = std::stoi(o["--rounds"]), steps = std::stoi(o["--steps"]), repeats = std::stoi(o["--repeats"]);
  Index batch = std::stoi(o["--batch"]);
  if (batch == 0) batch = resnet ? 16 : name == "mnist" ? 128 : 64;
  const Shape shape = resnet ? Shape{224, 224, 3} : name == "mnist" ? Shape{28, 28, 1} : Shape{32, 32, 3};
  const Index classes = resnet ? 1000 : 10;

  World world;
  processor_time = o["--clock"] == "cpu";
  if (const int count = processor_time ? 1 : std::stoi(o["--threads"]); count > 0) set_threads(count);
  Module model = resnet            ? make_model(name, {.input = shape, .classes = classes})
                 : name == "mnist" ? Module(mnist_cnn())
                                   : Module(vgg());
  // Learning rate 0: kernels that are run again, the update among them, leave the weights as they are.
  Step step(model, cross_entropy, Sgd{.lr = 0, .momentum = 0.9}, world, Strategy{});
  Loader loader(Synthetic({.size = batch, .shape = shape, .classes = classes}), {.batch = batch, .workers = 0});
  auto first = loader.begin();
  const auto& [x, y] = *first;

  std::vector<KernelTime> kernels;
  const auto isolate = [&] {
    std::size_t at = 0;
    const LaunchWatch watch([&](const LaunchWatch::Call& call) {
      if (at == kernels.size()) {
        KernelTime& k = kernels.emplace_back();
        const auto shapes = [&](int x, int w, int y) {
          const auto of = [&](int i) { return call.operands[static_cast<std::size_t>(i)].shape; };
          k.x = of(x);
          k.w = of(w);
          k.y = of(y);
        };
        k.op = call.op;
        if (k.op == "conv") shapes(1, 2, 0);
        if (k.op == "conv_backward_input") shapes(0, 2, 1);
        if (k.op == "conv_backward_weight") shapes(2, 0, 3);
      }
      KernelTime& k = kernels[at++];
      for (int i = 0; i < repeats; ++i) {
        const double start = now();
        call.kernel();
        k.best = std::min(k.best, now() - start);
      }
    });
    step(x, y).item();
  };
  std::vector<double> all, medians;
  step(x, y).item();
  step(x, y).item();
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
      const double start = now();
      step(x, y).item();
      times.push_back(now() - start);
    }
    std::sort(times.begin(), times.end());
    medians.push_back(times[times.size() / 2]);
    isolate();
    for (KernelTime& k : kernels)
      if (k.x.rank() == 4) {
        VendorConv vendor(k.op, k.x, k.w, k.y);
        for (int i = 0; i < repeats; ++i) k.vendor = std::min(k.vendor, vendor.run());
      }
  }
  double sum = 0, convs = 0;
  int from_vendor = 0;
  for (const KernelTime& k : kernels) {
    const double best = std::min(k.best, k.vendor);
    sum += best;
    from_vendor += k.vendor < k.best;
    if (k.x.rank() == 4) convs += best;
  }
  std::sort(medians.begin(), medians.end());
  const auto middle = medians[medians.size() / 2];
  std::printf("%s, %s, threads: %d, time of the %s\n", cpu_name().c_str(), cpu_library().c_str(), threads(),
              processor_time ? "processor" : "clock");
  std::printf(
      "%s, batch %d: step %.2f ms [%.2f, %.2f]; its %zu kernels alone %.2f ms (convolutions %.2f; %d of them by "
      "oneDNN)\n",
      name.c_str(), static_cast<int>(batch), middle, medians.front(), medians.back(), kernels.size(), sum, convs,
      from_vendor);
  std::printf("step / kernels' isolated best times: %.3f [%.3f, %.3f] (median of %d rounds)\n", middle / sum,
              medians.front() / sum, medians.back() / sum, rounds);
  return 0;
}

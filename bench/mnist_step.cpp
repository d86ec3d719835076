// Times training steps of the MNIST CNN, and prints one JSON line: for bench/peers.
//   mnist_step [--steps N] [--warmup N] [--batch B] [--threads T]     under mpiexec: the batch is per rank
#include <sys/resource.h>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "bench/measure.h"
#include "kernels/core/runtime.h"
#include "trireme/trireme.h"
using namespace trireme;

namespace {
/// Seconds since the kernel started this process, to the clock tick (10 ms).
double since_start() {
  std::ifstream stat("/proc/self/stat");
  std::string field;
  for (int i = 0; i < 22 && stat >> field; ++i) {}
  double up = 0;
  std::ifstream("/proc/uptime") >> up;
  return up - std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
}  // namespace

int mnist_step_main(int argc, char** argv) {
  std::map<std::string, int> options{{"--steps", 30}, {"--warmup", 5}, {"--batch", 128}, {"--threads", 0}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = std::atoi(argv[i + 1]);
  World world(argc, argv);
  if (options["--threads"] > 0) set_threads(options["--threads"]);

  Dataset data = Mnist("train");
  double before = peak_megabytes();
  Step step(mnist_cnn(), cross_entropy, Sgd{.lr = 0.05, .momentum = 0.9}, world,
            world.size() > 1 ? data_parallel() : Strategy{});
  Loader loader(data, {.batch = options["--batch"] * world.size(), .shuffle = true, .shard = world});
  std::vector<double> times;
  double first = 0, loss = 0;
  int count = 0, warmup = options["--warmup"], wanted = options["--steps"] + warmup;
  while (count < wanted) {
    Clock::time_point start = Clock::now();
    for (auto& [x, y] : loader) {
      loss = step(x, y).item();
      if (count == 0) first = since_start();
      Clock::time_point now = Clock::now();
      if (count++ >= warmup) times.push_back(std::chrono::duration<double, std::milli>(now - start).count());
      start = now;
      if (count == wanted) break;
    }
  }
  std::sort(times.begin(), times.end());
  double total = 0;
  for (double t : times) total += t;
  if (world.main())
    std::printf(
        "{\"median_ms\": %.3f, \"mean_ms\": %.3f, \"min_ms\": %.3f, \"first_step_s\": %.2f, \"loss\": %.4f, "
        "\"peak_mb\": %.1f, \"base_mb\": %.1f}\n",
        times[times.size() / 2], total / static_cast<double>(times.size()), times[0], first, loss, peak_megabytes(),
        before);
  return 0;
}

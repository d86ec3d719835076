#include "tools/training/banner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include "framework/io/json.h"
#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"
#include "parallel/comm/world/compare.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/version.h"

namespace trireme {

void tell(const Banner& b, Console& console) {
  const TrainerOptions& options = b.options;
  console.log(
      fmt::format("model     {}, {} parameters, {}", options.model, b.step.parameters().count(), options.dtype));
  console.log(fmt::format("data      {}: {} training, {}{} test samples", b.train->name(), b.train->size(),
                          b.validation ? fmt::format("{} validation, ", b.validation->size()) : "", b.test->size()));
  if (options.data.name == "imagenet" && b.test->name() == options.data.root)
    console.log(
        fmt::format("warning   {0} has no {0}/train: the test samples are the training samples; sort the pictures into "
                    "{0}/train and {0}/val to test on other ones",
                    options.data.root));
  const std::string place = b.device.kind == DeviceKind::cpu
                                ? fmt::format("{} thread{}", threads(), threads() == 1 ? "" : "s")
                                : open_backend(b.device.kind).names.at(static_cast<std::size_t>(b.device.index));
  console.log(fmt::format("ranks     {} ({}), {} each; global batch {}; {}", b.world.size(), b.world.transport(), place,
                          options.data.batch, b.strategy.name()));
  if (!b.cpus.empty()) console.log(fmt::format("bound     rank {} to {}", b.world.rank(), b.cpus));
  if (const VirtualClock* simulated = b.world.clock())
    console.log(fmt::format("time      virtual: {} ranks on cluster {}, simulated seconds", b.world.size(),
                            simulated->cluster().name));
  if (const std::string rows = StepProbe(b.step).batch_norm(); !rows.empty()) console.log("batch norm: " + rows);
  if (const std::string weights = StepProbe(b.step).evaluated_weights(); !weights.empty())
    console.log(fmt::format("weights   evaluated and saved: {}", weights));
  if (!b.staged.empty()) console.log("messages  through the host: " + b.staged);
  if (const char* cuda = std::getenv("TRIREME_CUDA_PLUGIN"))
    console.log(fmt::format("plugin    {} (TRIREME_CUDA_PLUGIN)", cuda));
  if (!options.parallel.plugin.empty()) console.log("plugin    " + options.parallel.plugin);
  console.log(fmt::format("optimizer {}, {} epochs of {} steps, seed {}", b.optimizer, options.epochs, b.batches,
                          options.seed));
  if (b.resuming.empty() && !options.weights.empty())
    console.log(
        fmt::format("weights   {}{}{}", options.weights,
                    b.redrawn.empty() ? "" : "; at random, because of another shape: ", fmt::join(b.redrawn, ", ")));
  if (!b.resuming.empty()) console.log("resuming  " + b.resuming);
  if (!b.directory.empty()) console.log("run       " + b.directory);
}

Json environment(const Banner& b) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string processor;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; processor.empty() && std::getline(file, line);)
    if (line.starts_with("model name")) processor = line.substr(std::min(line.size(), line.find(':') + 2));
  const auto distinct = [&](const std::string& own) {
    const std::vector<std::string> all = gather_texts(b.world.comm(), own);
    const std::set<std::string> different(all.begin(), all.end());
    return fmt::format("{}", fmt::join(different, ", "));
  };
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  std::array<char, 32> started{};
  std::strftime(started.data(), started.size(), "%Y-%m-%dT%H:%M:%SZ", &date);
  return {{"started", started.data()},
          {"ranks", b.world.size()},
          {"transport", b.world.transport()},
          {"hosts", distinct(name.data())},
          {"processors", distinct(processor)},
          {"device", to_string(b.device)},
          {"threads", threads()},
          {"library", distinct(cpu_library())},
          {"MPI", mpi_version()},
          {"data", std::filesystem::path(b.train->name()).filename().string()},
          {"strategy", b.strategy.name()},
          {"parameters", b.step.parameters().count()},
          {"version", library_version}};
}

}  // namespace trireme

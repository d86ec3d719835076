#include "tools/training/banner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"

namespace trireme {

void tell(const Banner& b, Console& console) {
  const TrainerOptions& options = b.options;
  console.log(
      fmt::format("model     {}, {} parameters, {}", options.model, b.step.parameters().count(), options.dtype));
  console.log(
      fmt::format("data      {}: {} training, {} test samples", b.train->name(), b.train->size(), b.test->size()));
  const std::string place = b.device.kind == DeviceKind::cpu
                                ? fmt::format("{} thread{}", threads(), threads() == 1 ? "" : "s")
                                : open_backend(b.device.kind).names.at(static_cast<std::size_t>(b.device.index));
  console.log(fmt::format("ranks     {} ({}), {} each; global batch {}; {}", b.world.size(), b.world.transport(), place,
                          options.data.batch, b.strategy.name()));
  if (const VirtualClock* simulated = b.world.clock())
    console.log(fmt::format("time      virtual: {} ranks on cluster {}, simulated seconds", b.world.size(),
                            simulated->cluster().name));
  if (const std::string rows = b.step.batch_norm(); !rows.empty()) console.log("batch norm: " + rows);
  if (const std::string weights = b.step.evaluated_weights(); !weights.empty())
    console.log(fmt::format("weights   evaluated and saved are {}", weights));
  if (!b.staged.empty()) console.log("messages  through the host: " + b.staged);
  if (const char* cuda = std::getenv("TRIREME_CUDA_PLUGIN"))
    console.log(fmt::format("plugin    {} (TRIREME_CUDA_PLUGIN)", cuda));
  if (!options.parallel.plugin.empty()) console.log("plugin    " + options.parallel.plugin);
  console.log(fmt::format("optimizer {}, {} epochs of {} steps, seed {}", b.optimizer, options.epochs, b.batches,
                          options.seed));
  if (b.resuming.empty() && !options.weights.empty())
    console.log(
        fmt::format("weights   {}{}{}", options.weights,
                    b.redrawn.empty() ? "" : "; of another shape, so drawn anew: ", fmt::join(b.redrawn, ", ")));
  if (!b.resuming.empty()) console.log("resuming  " + b.resuming);
  if (!b.directory.empty()) console.log("run       " + b.directory);
}

}  // namespace trireme

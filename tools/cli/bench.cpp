// trireme bench: images per second of a model on synthetic images, and the time by layer and by kind of work.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "datasets/formats/synthetic.h"
#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"
#include "framework/tensor/launch.h"
#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"
#include "parallel/runtime/step.h"
#include "tools/cli/commands.h"
#include "tools/cli/profile.h"
#include "tools/training/from_options.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

/// Seconds of each run, the shortest first.
template <class F>
std::vector<double> timed(int runs, F&& run) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::ranges::sort(times);
  return times;
}

void print_tables(const Profile& profile, double step, int runs) {
  const auto milliseconds = [runs](double seconds) { return seconds * 1e3 / runs; };
  fmt::print("\n{:<24} {:>9} {:>8} {:>10} {:>10} {:>12}\n", "work", "ms", "share", "GB/s", "GFLOP/s", "of its floor");
  std::vector<std::pair<std::string, Profile::Kind>> kinds(profile.kinds().begin(), profile.kinds().end());
  kinds.push_back({"outside kernels", {.seconds = std::max(0.0, step * runs - profile.seconds())}});
  std::sort(kinds.begin(), kinds.end(), [](auto& a, auto& b) { return a.second.seconds > b.second.seconds; });
  for (auto& [name, kind] : kinds) {
    const auto rate = [&](double amount) {
      return amount > 0 ? fmt::format("{:.0f}", amount / kind.seconds / 1e9) : "";
    };
    fmt::print("{:<24} {:>9.2f} {:>6.1f} % {:>10} {:>10} {:>12}\n", name, milliseconds(kind.seconds),
               100 * kind.seconds / runs / step, rate(kind.bytes), rate(kind.operations),
               kind.floor > 0 ? fmt::format("{:.0f} %", 100 * kind.floor / kind.seconds) : "");
  }

  fmt::print("\n{:<32} {:>10} {:>11} {:>7} {:>9}\n", "layer", "forward ms", "backward ms", "share", "GFLOP/s");
  for (const Profile::Row& row : profile.layers()) {
    const double seconds = row.cost.forward + row.cost.backward;
    const std::string rate = row.cost.operations > 0 ? fmt::format("{:.0f}", row.cost.operations / seconds / 1e9) : "";
    fmt::print("{:<32} {:>10.2f} {:>11.2f} {:>5.1f} % {:>9}\n", row.name, milliseconds(row.cost.forward),
               milliseconds(row.cost.backward), 100 * seconds / runs / step, rate);
  }
}

/// Work of a step over all ranks, for example "images", 32.
struct Amount {
  const char* unit;
  Index count;
};

/// Times run(), which is one step or one evaluation of `amount`.
template <class F>
void report(const World& world, const Parameters& parameters, Device device, DType dtype, int runs, Amount amount,
            F&& run) {
  Runtime& memory = runtime(device.kind);
  run();
  run();  // first call: allocates and prepares everything
  memory.reset_peak();
  const std::vector<double> plain = timed(runs, run);
  const std::size_t peak = memory.peak();
  const Ceilings ceilings = measure_ceilings(device, dtype);
  Profile profile(parameters, ceilings);
  const std::vector<double> watched = timed(runs, run);
  if (!world.main()) return;
  const double total = std::accumulate(watched.begin(), watched.end(), 0.0), median = plain[plain.size() / 2];
  fmt::print("{:<15}{:.2f} (median of {}: {:.2f} ms [{:.2f}, {:.2f}])\n", fmt::format("{}/s", amount.unit),
             static_cast<double>(amount.count) / median, runs, median * 1e3, plain.front() * 1e3, plain.back() * 1e3);
  if (profile.vendor_seconds() > 0)
    fmt::print("library calls  {:.2f} ms in {}\n", profile.vendor_seconds() * 1e3 / runs, cpu_library());
  fmt::print("peak memory    {:.0f} MB of tensors\n", static_cast<double>(peak) / (1 << 20));
  fmt::print("ceilings       {:.0f} GB/s copied, {:.0f} GFLOP/s of {} products, measured here\n", ceilings.bytes / 1e9,
             ceilings.operations / 1e9, name_of(dtype));
  // Profiling of a device times kernels one by one. The table compares them with the step's time without profiling.
  print_tables(profile, device.kind == DeviceKind::cpu ? total / runs : median, runs);
}

void bench(const TrainerOptions& config, const BenchOptions& options, World& world) {
  check(options.steps >= 1, "bench", "steps is {}, it must be at least 1", options.steps);
  const std::string cpus = use_threads(config, world);
  const ModelOptions shape = usual_options(config);
  const Device device = make_device(config, world);
  Module model = make_model(config, shape, device);
  const Index batch = config.data.batch;
  const Dataset data = synthetic_data(config, shape, batch);
  const DType dtype = make_dtype(config);
  if (world.main())
    fmt::print("{}, {}, batch {} of {}, {}, {} rank{} of {} thread{} on {}\n", config.model,
               options.infer ? "inference" : "training step", batch, shape.input, config.dtype, world.size(),
               world.size() == 1 ? "" : "s", threads(), threads() == 1 ? "" : "s",
               open_backend(device.kind)
                   .names.at(static_cast<std::size_t>(device.kind == DeviceKind::cpu ? 0 : device.index)));
  if (world.main() && !cpus.empty()) fmt::print("rank 0 is bound to {}\n", cpus);

  const bool text = model_row(config.model).text;
  const Amount amount{text ? "tokens" : "images", text ? batch * shape.input[0] : batch};
  Mesh mesh = make_mesh(config, world);
  LoaderOptions from{.batch = batch,
                     .shard = RankShare{mesh.index("data"), mesh.size("data")},
                     .workers = 0,
                     .dtype = dtype,
                     .device = device};
  Loader loader(data, from);
  auto iterator = loader.begin();
  if (options.infer) {
    Parameters parameters(model);
    const Inference inference;
    return report(world, parameters, device, dtype, options.steps, amount,
                  [&] { (void)model(iterator->x).to_vector(); });
  }
  Step step(model, make_loss(config), make_optimizer(config, 1000), mesh, make_strategy(config, world.size()),
            {.seed = static_cast<std::uint64_t>(config.seed),
             .loss_scale = config.dtype == "f16" ? config.loss_scale : 0,
             .profile = {.example = iterator->x},
             .keep_outputs = step_options(config).keep_outputs});
  from.shard = step.shard();  // a parameter server has none
  Loader own(data, from);
  auto batch_of_rank = own.begin();
  report(world, step.parameters(), device, dtype, options.steps, amount,
         [&] { (void)step(batch_of_rank->x, batch_of_rank->y).item(); });
}

}  // namespace

int bench_command(int argc, char** argv, const TrainerOptions& config, const BenchOptions& options) {
  const TrainerOptions::Parallel& layout = config.parallel;
  const int ranks = make_ranks(config);
  if (options.infer &&
      (!layout.strategy.empty() || (!layout.mesh.empty() && size_along(parse_mesh(layout.mesh), "data") != ranks)))
    throw OptionError(fmt::format(
        "bench: --infer runs the whole model on each rank, but strategy '{}' and mesh '{}' are given; leave out "
        "--infer, or give only --ranks",
        layout.strategy, layout.mesh));
  return World::run(argc, argv, ranks, [&](World& world) {
    world.use_all_reduce(config.parallel.allreduce);
    bench(config, options, world);
  });
}

}  // namespace trireme

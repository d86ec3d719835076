// trireme bench --machine: measures this machine, to predict runs on similar machines.
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <ctime>

#include "datasets/formats/synthetic.h"
#include "kernels/core/runtime.h"
#include "kernels/core/vendor.h"
#include "parallel/analysis/draw.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/world.h"
#include "parallel/profile/measure.h"
#include "parallel/runtime/version.h"
#include "tools/cli/commands.h"
#include "tools/cli/described_plan.h"
#include "tools/doctor/proc_files.h"
#include "tools/training/from_options.h"
#include "tools/training/machine_file.h"
#include "tools/training/strategy_search.h"

namespace trireme {
namespace {

double now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

std::map<std::string, std::string> about_here(const World& world, Device device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {{"date", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
          {"host", host.data()},
          {"processor", value_in("/proc/cpuinfo", "model name")},
          {"clock_mhz", value_in("/proc/cpuinfo", "cpu MHz")},
          {"cores", fmt::format("{}", cores())},
          {"device", to_string(device)},
          {"transport", world.transport()},
          {"library", cpu_library()},
          {"version", library_version}};
}

/// Seconds per byte to write files in the directory and sync them.
Measured measure_disk(const std::string& directory, int runs) {
  const std::string path = fmt::format("{}/.trireme_profile_{}", directory, ::getpid());
  const std::vector<char> block(std::size_t{16} << 20, 'x');
  std::vector<double> seconds;
  for (int run = -1; run < runs; ++run) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(file >= 0, ErrorKind::file, "profile", "cannot write {}; give another directory with --disk", path);
    const double begun = now();
    const bool whole = ::write(file, block.data(), block.size()) == std::ssize(block) && ::fsync(file) == 0;
    const double took = now() - begun;
    ::close(file);
    ::unlink(path.c_str());
    check(whole, ErrorKind::file, "profile", "cannot write {} MB to {}; give another directory with --disk",
          block.size() >> 20, path);
    if (run >= 0) seconds.push_back(took / static_cast<double>(block.size()));
  }
  return measured(seconds);
}

/// Seconds per sample of this rank's loader alone, with its own rows and workers.
Measured measure_loader(const TrainerOptions& config, World& world, Device device) {
  const Dataset data = make_dataset(config, "train");
  LoaderOptions options = loader_options(config, {world.rank(), world.size()}, device);
  Loader loader(data, options);
  std::vector<double> seconds;
  world.comm().barrier();
  double begun = now();
  for (const Batch& batch : loader) {
    if (batch.x.dim(0) == 0) break;
    seconds.push_back((now() - begun) / static_cast<double>(batch.x.dim(0)));
    if (seconds.size() == 40) break;
    begun = now();
  }
  check(!seconds.empty(), ErrorKind::data, "profile",
        "the data set has less than a batch per rank; use a smaller --data.batch");
  return measured(seconds);
}

std::vector<Index> rows_of(const TrainerOptions& config, const ProfileOptions& options, int ranks) {
  if (!options.rows.empty()) return options.rows;
  const Index most = std::max<Index>(1, config.data.batch / ranks);
  std::vector<Index> rows;
  for (Index r = std::max<Index>(1, most / 8); r < most; r *= 2) rows.push_back(r);
  rows.push_back(most);
  return rows;
}

ModelProfile profile_model(const TrainerOptions& config, const ProfileOptions& options, World& world, Device device) {
  ModelProfile profile = measure_whole(config, usual_options(config), device, world.comm(), world.size(),
                                       rows_of(config, options, world.size()), options.runs);
  profile.optimizer = config.optim.name;
  profile.arch = settings_of_model(config);
  return profile;
}

std::string in_words(const MachineProfile& m) {
  std::string text;
  for (const auto& [key, value] : m.about) text += fmt::format("{:<12} {}\n", key, value);
  for (const ModelProfile& p : m.models) {
    text += fmt::format(
        "\n{}, {} rank{} at the same time, {} thread{} each; medians, and half the distance of the quartiles\n{:>8} "
        "{:>18} {:>18} {:>18} {:>18}\n",
        p.model, p.ranks, p.ranks == 1 ? "" : "s", p.threads, p.threads == 1 ? "" : "s", "rows", "forward", "backward",
        "loss", "between steps");
    const auto cell = [](const Measured& x) {
      return fmt::format("{} +-{:.1f} %", time_text(x.value), 100 * x.spread);
    };
    for (const ModelProfile::Size& s : p.sizes)
      text += fmt::format("{:>8} {:>18} {:>18} {:>18} {:>18}\n", s.rows, cell(s.forward), cell(s.backward),
                          cell(s.loss), cell(s.between));
    text += fmt::format("update of {} parameters ({}): {}\n", p.parameters, p.optimizer,
                        cell({p.update.value * static_cast<double>(p.parameters), p.update.spread}));
  }
  if (!m.calls.empty())
    text += fmt::format("\n{:<16} {:>6} {:>12} {:>12} {:>12}\n", "call", "ranks", "bytes", "time", "GB/s");
  for (const MeasuredCall& c : m.calls)
    text += fmt::format("{:<16} {:>6} {:>12} {:>12} {:>12.2f}\n", name_of(c.kind), c.ranks, c.bytes,
                        time_text(c.seconds), c.seconds > 0 ? static_cast<double>(c.bytes) / c.seconds / 1e9 : 0.0);
  text += fmt::format("\njitter       {:.1f} % (standard deviation of a computation's time)\n", 100 * m.jitter);
  if (const std::string busy = busy_in_words(m); !busy.empty())
    text += fmt::format("busy         {}: predictions from these numbers are as uncertain\n", busy);
  if (m.load.value > 0) text += fmt::format("loader       {} a sample and rank\n", time_text(m.load.value));
  const auto rate = [](const Measured& per_byte) { return per_byte.value > 0 ? 1e-6 / per_byte.value : 0; };
  return text + fmt::format(
                    "mixing       {:.0f} MB/s of weights, each elementwise operation\n"
                    "checkpoint   {:.0f} MB/s to the disk\n",
                    rate(m.vector_op), rate(m.checkpoint));
}

}  // namespace

int profile_command(int argc, char** argv, const TrainerOptions& config, const ProfileOptions& options) {
  const int ranks = config.parallel.ranks > 1 ? static_cast<int>(config.parallel.ranks) : cores();
  return World::run(argc, argv, ranks, [&](World& world) {
    set_threads(std::max<int>(1, static_cast<int>(config.parallel.threads)));
    const Device device = make_device(config, world);
    MachineProfile m;
    const double load = load_per_core();
    m.about = about_here(world, device);
    m.about["load_average"] = fmt::format("{:.2f}", load);
    if (!config.model.empty()) m.models.push_back(profile_model(config, options, world, device));
    std::vector<Index> bytes;
    for (Index b = 8; b <= Index{64} << 20; b = b < 4096 ? 4096 : b * 4) bytes.push_back(b);
    m.calls = measure_calls(world.comm(), bytes, options.runs);
    std::ranges::stable_sort(m.calls, {}, [](const MeasuredCall& c) { return std::pair(c.kind, c.ranks); });
    if (!config.data.name.empty() && options.load) m.load = measure_loader(config, world, device);
    m.fresh = measure_fresh(world.comm(), options.runs);
    m.vector_op = measure_vector_ops(world.comm(), Index{1} << 20, options.runs);
    if (world.main()) m.checkpoint = measure_disk(options.disk, 5);
    std::vector<double> jitter;
    for (const ModelProfile& p : m.models) jitter.push_back(jitter_of(p));
    if (!jitter.empty()) m.jitter = measured(jitter).value;
    if (!world.main()) return 0;
    fmt::print("{}", in_words(m));
    if (!options.to.empty()) write_file(options.to, machine_toml(m));
    return 0;
  });
}

}  // namespace trireme

#include "tools/training/auto_strategy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/profile/measure.h"
#include "tools/training/console.h"
#include "tools/training/from_options.h"
#include "tools/training/resume.h"
#include "tools/training/strategy_search.h"

namespace trireme {
namespace {

constexpr double slow_operations = 2e10;  // operations per second of a rank: the slowest machine considered
constexpr double most_seconds = 5;        // upper bound of the measurement's time

struct Choice {
  std::string mesh, strategy;
  std::vector<std::string> said = {};
};

/// The choice of the resumed run, if it has the same number of ranks and no other mesh is asked for.
std::optional<Choice> kept_choice(const TrainerOptions& options, int ranks) {
  const std::string path = options.run.dir + "/config.toml";
  if (!goes_on(options) || !std::filesystem::exists(path)) return {};
  const auto kept = read_own_toml(read_text(path, std::size_t{1} << 20));
  const auto text = [&](const char* name) { return parse_json(kept.at(name)).get<std::string>(); };
  Choice choice{text("parallel.mesh"), text("parallel.strategy")};
  if (choice.strategy == "auto" || choice.mesh.empty() || ranks_of(parse_mesh(choice.mesh)) != ranks) return {};
  const std::string& asked = options.parallel.mesh;
  if (!asked.empty() && parse_mesh(asked) != parse_mesh(choice.mesh)) return {};
  choice.said = {fmt::format("strategy  auto: the run's own, mesh {}, {}", choice.mesh, choice.strategy)};
  return choice;
}

/// Bytes of this host's memory per rank; 0 (unknown) on GPUs.
Index memory_here(const World& world, Device device) {
  if (device.kind != DeviceKind::cpu) return 0;
  return static_cast<Index>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / world.local_size();
}

/// Sets the nodes of a cluster to the hosts of the ranks, and measures its links: between ranks of a host, and between
/// hosts. If hosts have unequal numbers of ranks, or ranks do not fill them one after the other, all ranks count as on
/// one host. A collective call.
void describe_hosts(World& world, Device device, Cluster& cluster) {
  const int ranks = world.size();
  const std::int64_t mine[] = {world.local_size(), world.local_rank()};
  const std::vector<std::int64_t> all = gather_numbers(world.comm(), mine);
  int host = world.local_size();
  bool equal = ranks % host == 0;
  for (int r = 0; r < ranks; ++r) equal = equal && all[2 * r] == all[0] && all[2 * r + 1] == r % all[0];
  if (!equal) host = ranks;
  cluster.nodes = {{.count = ranks / host, .devices = host, .source = Source::measured}};
  if (ranks == 1) return;
  const auto measured = [](Communicator& comm) {
    return measure_calls(comm, std::vector<Index>{8, 4096, Index{1} << 18, Index{4} << 20}, 5);
  };
  const auto as_link = [&](const std::vector<MeasuredCall>& calls) {
    Link link = link_of(calls);
    link.source = device.kind == DeviceKind::cpu ? Source::measured : Source::assumed;
    return link;
  };
  std::vector<MeasuredCall> calls = measured(world.comm());
  cluster.inside = cluster.between = as_link(calls);
  if (host == 1 || host == ranks) return;
  cluster.inside = as_link(measured(*world.comm().split(world.rank() / host, world.rank())));
  std::erase_if(calls, [](const MeasuredCall& c) { return c.kind == CallKind::send; });  // within a host
  std::ranges::copy(measured(*world.comm().split(world.rank() % host, world.rank())), std::back_inserter(calls));
  cluster.between = as_link(calls);
}

/// Number of parts of a strategy.
int pieces_of(const SearchCandidate& c) {
  return (c.split > 0) + (c.stages > 1) + (c.micro > 1) + (c.zero > 0) + (c.shard > 1) + !c.reshard;
}

Choice searched(StrategySearch& search, const TrainerOptions& options, const StrategyQuestion& q) {
  const SearchResult found = search.search(q);
  check(found.candidates > 0, "parallel.strategy auto", "{}",
        [&] { return none_in_words(options, search.space(), q); });
  check(!found.ranked.empty(), ErrorKind::out_of_memory, "parallel.strategy auto",
        "no strategy fits; the closest needs {:.2f} GB of a rank's {:.2f}; use more ranks or a smaller batch",
        found.nearest ? static_cast<double>(found.nearest->memory.total()) / 1e9 : 0.0,
        static_cast<double>(q.memory) / 1e9);
  const RankedStrategy& first = found.ranked.front();
  const RankedStrategy& best =
      *std::min_element(found.ranked.begin(), found.ranked.begin() + found.alike,
                        [](const auto& a, const auto& b) { return pieces_of(a.candidate) < pieces_of(b.candidate); });
  Choice choice{to_string(best.mesh), best.strategy};
  choice.said.push_back(fmt::format("strategy  auto: --mesh {} --strategy \"{}\"", choice.mesh, choice.strategy));
  choice.said.push_back(fmt::format(
      "          predicted step {:.3f} ms{}; {}; {} of {} candidates simulated{}", 1e3 * best.seconds,
      &best == &first
          ? ""
          : fmt::format(", of the fastest {:.3f}: the simplest of similar ones is used", 1e3 * first.seconds),
      margin_in_words(found, q), found.simulated, found.candidates,
      found.best_is_known ? "" : fmt::format(", the others take at least {:.3f} ms", 1e3 * found.least_left)));
  choice.said.push_back(fmt::format(
      "          parts {}{}",
      q.profile
          ? "measured on all ranks at the same time"
          : fmt::format("counted from shapes at {:.3g} operations and {:.3g} bytes of memory per second, because a "
                        "measurement would take long",
                        q.cluster.rates().flops, q.cluster.rates().memory_bandwidth),
      q.ranks == 1                                  ? ""
      : q.cluster.inside.source == Source::measured ? ", calls between ranks measured here"
                                                    : ", calls between ranks measured on the host, not on devices"));
  return choice;
}

}  // namespace

void choose_strategy(TrainerOptions& options, const TrainerInput& given, World& world) {
  if (options.parallel.strategy != "auto") return;
  check(!world.clock(), "parallel.strategy",
        "auto measures real ranks; for virtual ranks use trireme plan search --cluster FILE");
  check(!given.model, "parallel.strategy",
        "auto builds the model again, which is not possible with a program's own model; give a strategy");
  check(!given.strategy, "parallel.strategy", "auto, but the program gives its own strategy; leave out one of them");
  compare_ranks(world.comm(), "settings", common_settings(options));
  Json agreed;
  const auto agree = [&](const Json& mine) {
    return agreed = parse_json(broadcast_text(world.comm(), json_text(mine), 0));
  };
  const auto adopt = [&] {
    check(!agreed.contains("error"), ErrorKind{agreed.value("kind", 0)}, "parallel.strategy auto", "{}",
          [&] { return agreed["error"].get<std::string>(); });
    options.parallel.mesh = agreed["mesh"];
    options.parallel.strategy = agreed["strategy"];
  };
  const auto as_json = [&](const std::function<Choice()>& make) {
    try {
      Choice choice = make();
      Console console(false, options.run.progress, options.run.log_seconds, options.run.log_format == "json");
      for (const std::string& line : choice.said) console.log(line);
      return Json{{"mesh", choice.mesh}, {"strategy", choice.strategy}};
    } catch (const Error& e) { return Json{{"error", e.what()}, {"kind", static_cast<int>(e.kind())}}; }
  };
  if (const auto kept = world.main() ? kept_choice(options, world.size()) : std::nullopt;
      agree(kept ? as_json([&] { return *kept; }) : Json{}).contains("mesh"))
    return adopt();
  if (options.parallel.threads > 0) set_threads(static_cast<int>(options.parallel.threads));
  const Device device = make_device(options, world.local_rank());
  const ModelOptions shape = options_for(given.train ? *given.train : *make_dataset(options, "train"));
  compare_ranks(world.comm(), "data", fmt::format("{}, {} classes", to_string(shape.input), shape.classes));
  StrategySearch search(options, shape, device);
  StrategyQuestion q{
      .ranks = world.size(), .memory = memory_here(world, device), .recompute = {options.recompute == "true"}};
  describe_hosts(world, device, q.cluster);
  if (world.size() > 1) q.fresh = measure_fresh(world.comm(), 5).value;
  q.cluster.overlaps = device.kind != DeviceKind::cpu;
  const Index share = std::max<Index>(1, options.data.batch / world.size());
  constexpr int passes = 3 * (5 + 2);  // both sizes, by parts and as a whole, with warm-up
  if (search.operations(share) * passes / slow_operations < most_seconds) {
    q.profile = measure_whole(options, shape, device, world.comm(), world.size());
    q.costs = Source::measured;
  }
  if (search.has_running_statistics()) q.micro = {1};
  if (!options.parallel.mesh.empty()) q.mesh = parse_mesh(options.parallel.mesh);
  check(q.mesh.empty() || ranks_of(q.mesh) == world.size(), "parallel.strategy auto",
        "parallel.mesh {} has {} ranks, but there are {}; leave it out", options.parallel.mesh, ranks_of(q.mesh),
        world.size());
  agree(world.main() ? as_json([&] { return searched(search, options, q); }) : Json{});
  adopt();
}

}  // namespace trireme

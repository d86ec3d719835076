// trireme plan search: ranks the strategies that take the least time for a number of ranks on a described cluster.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "framework/io/json.h"
#include "kernels/core/runtime.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/analysis/draw.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/comm/world/world.h"
#include "tools/cli/described_plan.h"
#include "tools/cli/simulate_basis.h"
#include "tools/training/machine_file.h"
#include "tools/training/strategy_search.h"

namespace trireme {

Index bytes_of_memory(const std::string& text) {
  const auto refuse = [&] {
    throw OptionError(
        fmt::format("--memory is '{}', expected bytes per rank, for example 16e9, 16GB or 16GiB", shortened(text)));
  };
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) { refuse(); }
  std::string unit = text.substr(end);
  std::erase(unit, ' ');
  if (unit.ends_with("B")) unit.pop_back();
  const bool binary = unit.ends_with("i");
  if (binary) unit.pop_back();
  const std::string prefixes = "kMGT";
  if (unit == "K") unit = "k";
  const auto at = unit.size() == 1 ? prefixes.find(unit[0]) : std::string::npos;
  if ((!unit.empty() && at == std::string::npos) || (unit.empty() && binary)) refuse();
  if (!unit.empty()) number *= std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(at + 1));
  if (!std::isfinite(number) || number < 1 || number > 1e18) refuse();
  return static_cast<Index>(number);
}

namespace {

std::string gigabytes(Index bytes) { return fmt::format("{:.3f} GB", static_cast<double>(bytes) / 1e9); }

int ranks_asked(const TrainerOptions& config) {
  if (!config.parallel.strategy.empty() && config.parallel.strategy != "auto")
    throw OptionError(
        fmt::format("parallel.strategy is {}, but plan search finds one; leave it out, or use trireme plan simulate",
                    config.parallel.strategy));
  const TrainerOptions::Parallel& p = config.parallel;
  if (p.allreduce != "default")
    throw OptionError(fmt::format("parallel.allreduce is {}, but plan search assumes rings; use default", p.allreduce));
  if (p.mesh.empty()) return static_cast<int>(p.ranks);
  const int ranks = ranks_of(parse_mesh(p.mesh));
  if (p.ranks != 1 && p.ranks != ranks)
    throw OptionError(
        fmt::format("parallel.mesh: {} has {} ranks, but --ranks is {}; use equal numbers, or leave out one of them",
                    p.mesh, ranks, p.ranks));
  return ranks;
}

struct Asked {
  StrategyQuestion question;
  std::string costs, memory;  // described in words
};

Asked asked(const TrainerOptions& config, const SearchCommand& command) {
  Asked a;
  StrategyQuestion& q = a.question;
  q.ranks = ranks_asked(config);
  q.top = command.top;
  if (!config.parallel.mesh.empty()) q.mesh = parse_mesh(config.parallel.mesh);
  const bool given = !config.parallel.cluster.empty();
  q.cluster = cluster_of(config, q.ranks);
  if (q.cluster.devices() < q.ranks)
    throw OptionError(fmt::format("{} ranks on {}, which has {} device{}; use fewer ranks, or a larger cluster",
                                  q.ranks, config.parallel.cluster, q.cluster.devices(),
                                  q.cluster.devices() == 1 ? "" : "s"));
  if (command.cost == "measured") {
    World alone;
    q.profile = measure_whole(config, usual_options(config), make_device(config), alone.comm(), q.ranks);
    q.costs = Source::measured;
    a.costs = "measured here on one rank";
  } else if (command.cost == "equal") {
    q.equal = true;
    a.costs = "all alike";
  } else if (command.cost == "counted") {
    a.costs = fmt::format("counted from shapes, at {:.3g} operations and {:.3g} bytes of memory per second",
                          q.cluster.rates().flops, q.cluster.rates().memory_bandwidth);
  } else {
    const MachineProfile machine = read_machine(command.cost);
    q.profile = model_in(machine, config, 0);
    q.costs = Source::measured;
    q.fresh = machine.fresh.value;
    if (!given && !machine.calls.empty()) {
      q.cluster.inside = q.cluster.between = link_of(machine.calls);
      q.cluster.overlaps = false;
      if (q.ranks > std::ranges::max(machine.calls, {}, &MeasuredCall::ranks).ranks)
        q.cluster.inside.source = q.cluster.between.source = Source::assumed;
    }
    a.costs = "of " + command.cost;
  }
  // The speed of a described device relative to the measured one is a number of the cluster file.
  if (given && q.profile)
    for (const NodeGroup& g : q.cluster.nodes) q.costs = std::max(q.costs, g.source);
  q.memory = command.memory.empty() ? memory_of(q.cluster, q.ranks) : bytes_of_memory(command.memory);
  a.memory = q.memory == 0 ? "memory of a rank is not limited (--memory, or memory of the cluster's nodes)"
                           : fmt::format("a rank may hold {}{}", gigabytes(q.memory),
                                         command.memory.empty() ? ", as the cluster file says" : "");
  if (config.recompute == "true" || q.memory > 0) q.recompute = {false, true};
  return a;
}

/// Quoted for a shell, as one word.
std::string quoted(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n()|$`\"'\\;&<>*?#~!{}[]") == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

/// The command line for all settings that differ from the defaults.
std::string command_of(const TrainerOptions& config) {
  TrainerOptions now = config, usual;
  const auto table = option_table(now), before = option_table(usual);
  std::string text = "trireme train " + config.model;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string value = value_text(table[i]);
    if (table[i].name == "model" || table[i].name == "parallel.cluster" || value == value_text(before[i])) continue;
    const std::string name =
        table[i].alias.empty() || table[i].alias.find('-') != std::string::npos ? table[i].name : table[i].alias;
    text += fmt::format(" --{} {}", name, quoted(value));
  }
  return text;
}

void print_ranking(const SearchResult& found, Index batch) {
  fmt::print("\n{:>3} {:>12} {:>12} {:>8} {:>12} {:>12}  {:<12} {}\n", "", "step", "samples/s", "bubble", "exposed",
             "memory", "most for", "mesh and strategy");
  int place = 0;
  for (const RankedStrategy& r : found.ranked) {
    fmt::print("{:>3} {:>12} {:>12.1f} {:>6.1f} % {:>12} {:>12}  {:<12} --mesh {} --strategy \"{}\"{}{}\n", ++place,
               time_text(r.seconds), static_cast<double>(batch) / r.seconds, 100 * r.bubble, time_text(r.exposed),
               gigabytes(r.memory.total()), largest_use(r.memory).first, to_string(r.mesh), r.strategy,
               r.candidate.recompute ? " --recompute true" : "", r.partition.empty() ? "" : "  stages " + r.partition);
  }
}

void print_left_out(const SearchResult& found) {
  fmt::print("\n{} candidates, {} simulated\n", found.candidates, found.simulated);
  for (const auto& [why, count] : found.dropped) fmt::print("{:>10} not considered: {}\n", count, why);
  if (found.complete) return;
  fmt::print("the search was not complete: the rest takes at least {}; {}\n", time_text(found.least_left),
             found.best_is_known ? "the first is the fastest; the order of the others is not certain"
                                 : "something may be faster than the first");
}

Json json_of(const RankedStrategy& r) {
  return {{"mesh", to_string(r.mesh)},
          {"strategy", r.strategy},
          {"recompute", r.candidate.recompute},
          {"partition", r.partition},
          {"seconds", r.seconds},
          {"least_seconds", r.least},
          {"bubble", r.bubble},
          {"exposed_seconds", r.exposed},
          {"memory_bytes", r.memory.total()},
          {"largest_use", {{"name", largest_use(r.memory).first}, {"bytes", largest_use(r.memory).second}}}};
}

Json json_of(const TrainerOptions& config, const Asked& a, const SearchResult& found) {
  Json all{{"model", config.model},
           {"ranks", a.question.ranks},
           {"batch", config.data.batch},
           {"costs", a.costs},
           {"memory_bytes", a.question.memory},
           {"candidates", found.candidates},
           {"simulated", found.simulated},
           {"left_out", found.dropped},
           {"complete", found.complete},
           {"best_is_known", found.best_is_known},
           {"least_left_seconds", found.least_left},
           {"weakest_source", to_string(found.weakest)},
           {"band", found.band},
           {"margin", std::isfinite(found.margin) ? Json(found.margin) : Json()},
           {"alike", found.alike},
           {"ranked", Json::array()}};
  for (const RankedStrategy& r : found.ranked) all["ranked"].push_back(json_of(r));
  if (found.nearest) all["nearest"] = json_of(*found.nearest);
  return all;
}

}  // namespace

int plan_search(int argc, char** argv, const TrainerOptions& config, const SearchCommand& command) {
  const int usual = threads();
  set_threads(std::max(1, static_cast<int>(config.parallel.threads)));  // a device is one core
  const auto begun = std::chrono::steady_clock::now();
  const Asked a = asked(config, command);
  const StrategyQuestion& q = a.question;
  if (command.run && q.ranks > cores())
    throw OptionError(
        fmt::format("--run: {} ranks need one core each, but this machine has {}; use fewer ranks", q.ranks, cores()));
  TrainerOptions base = config;
  if (base.recompute == "true") base.recompute = "false";
  StrategySearch search(base, usual_options(config), make_device(config));
  const SearchResult found = search.search(q);
  if (found.candidates == 0) throw OptionError(none_in_words(config, search.space(), q));
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  fmt::print("{}{} of {} devices\n{}, {} parameters, {} samples a step; costs of parts {}; {}\n",
             q.cluster.name.empty() ? "" : q.cluster.name + ": ",
             q.ranks == 1 ? "1 rank" : fmt::format("{} ranks", q.ranks), q.cluster.devices(), config.model,
             search.parameters(), config.data.batch, a.costs, a.memory);
  if (q.cluster.jitter > 0)
    fmt::print("jitter {} is not considered; trireme plan simulate considers it\n", q.cluster.jitter);
  if (config.data.batch < q.ranks)
    fmt::print("fewer samples than ranks: at most {} ranks on axis data; raise --data.batch to use more\n",
               config.data.batch);
  if (!found.ranked.empty()) {
    print_ranking(found, config.data.batch);
    fmt::print("\n{}\n", margin_in_words(found, q));
  }
  print_left_out(found);
  const bool divided = std::ranges::any_of(found.ranked, [](const auto& r) { return r.candidate.micro > 1; });
  if (search.has_running_statistics() && divided)
    fmt::print("with micro-batches, batch norm sees each micro-batch, not the whole batch\n");
  fmt::print("searched in {:.1f} s\n", took);
  if (!command.json.empty())
    write_file(command.json, json_text(json_of(config, a, found), NotUtf8::replaced, 2) + "\n");
  if (found.ranked.empty()) {
    check(found.nearest.has_value(), "search", "no candidate is possible; the table above shows why");
    const RankedStrategy& r = *found.nearest;
    const auto [use, bytes] = largest_use(r.memory);
    fail(ErrorKind::out_of_memory, "search",
         "nothing fits: the closest, --mesh {} --strategy \"{}\"{}, needs {} bytes per rank, {} too many; the largest "
         "part is {} ({} bytes)",
         to_string(r.mesh), r.strategy, r.candidate.recompute ? " --recompute true" : "", r.memory.total(),
         r.memory.total() - q.memory, use, bytes);
  }
  TrainerOptions best = with_strategy(base, found.ranked.front());
  best.parallel.cluster.clear();
  fmt::print("\n{}\n", command_of(best));
  if (!command.run) return 0;
  set_threads(usual);  // as in the printed command
  return train_command(argc, argv, best, false);
}

}  // namespace trireme

// trireme plan verify: compares a strategy with the serial run, reports the first differing tensor, and checks claims.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "parallel/analysis/verify_claims.h"
#include "parallel/runtime/plugin.h"
#include "tools/cli/commands.h"
#include "tools/training/from_options.h"

namespace trireme {
namespace {

/// Reads consecutive global batches, from the start again at the end of the data set.
std::vector<std::pair<Tensor, Tensor>> read_batches(const Dataset& data, const TrainerOptions& config, Device device,
                                                    int count) {
  Loader loader(data, {.batch = config.data.batch, .workers = 0, .dtype = make_dtype(config), .device = device});
  std::vector<std::pair<Tensor, Tensor>> batches;
  while (static_cast<int>(batches.size()) < count)
    for (auto& batch : loader) {
      batches.emplace_back(batch.x.clone(), batch.y.clone());
      if (static_cast<int>(batches.size()) == count) break;
    }
  return batches;
}

/// Claims of the settings' strategies other than exactness.
std::vector<ClaimedText> claims_in(const TrainerOptions& config) {
  if (config.parallel.strategy.empty()) return {};
  const std::string& plugin = config.parallel.plugin;
  return claims_of(config.parallel.strategy, plugin.empty() ? std::vector<StrategyRow>() : load_strategies(plugin));
}

int compare_claims(int argc, char** argv, const TrainerOptions& config, const VerifyCommand& command) {
  check(command.steps >= 1, "verify", "steps is {}, it must be at least 1", command.steps);
  const int ranks = make_ranks(config);
  const Strategy strategy = make_strategy(config, ranks);
  ModelOptions shape = usual_options(config);
  const Dataset data = config.data.name == "synthetic"
                           ? synthetic_data(config, shape, config.data.batch * command.steps)
                           : make_dataset(config, "train");
  if (config.data.name != "synthetic") shape = options_for(*data);
  if (!(command.tolerance >= 0) || !std::isfinite(command.tolerance))
    throw OptionError(fmt::format("--tolerance is {}, expected a number of at least 0", command.tolerance));
  const double tolerance = command.tolerance > 0 ? command.tolerance : config.dtype == "f64" ? 1e-11 : 1e-4;
  const std::vector<ClaimedText> claims = claims_in(config);
  const bool exact = strategy.claim(false) == Claim::exact || claims.empty();
  std::atomic<bool> differs = false;
  const int status = World::run(argc, argv, ranks, [&](World& world) {
    (void)use_threads(config, world);
    world.use_all_reduce(config.parallel.allreduce);
    const Device device = make_device(config, world);
    const auto batches = read_batches(data, config, device, command.steps);
    const Subject subject{.model = [&] { return make_model(config, shape, device); },
                          .loss = make_loss(config),
                          .optimizer_config = make_optimizer(config, command.steps),
                          .batch = [&](int step) { return batches[static_cast<std::size_t>(step)]; }};
    Mesh mesh = make_mesh(config, world);
    std::string against;
    VerifyOptions options{
        .steps = command.steps,
        .tolerance = tolerance,
        .step = {.seed = static_cast<std::uint64_t>(config.seed),
                 .optimizer = {.clip_norm = config.optim.clip_norm, .decay_biases = config.optim.decay_biases}}};
    // Layers are divided as in training.
    if (strategy.split.any()) options.step.profile.example = batches[0].first;
    const auto difference = verify(subject, mesh, strategy, options, &against);
    const auto parse = [&](const std::string& text) {
      TrainerOptions other = config;
      other.parallel.strategy = text;
      return make_strategy(other, ranks);
    };
    const std::vector<ClaimResult> measured = verify_claims(subject, mesh, claims, parse, options);
    if ((difference && exact) || !std::ranges::all_of(measured, &ClaimResult::holds)) differs = true;
    if (!world.main()) return;
    const std::string what = fmt::format("{} under {} on {} rank{} ({}), {}", config.model, strategy.name(),
                                         world.size(), world.size() == 1 ? "" : "s", world.transport(), config.dtype);
    if (difference)
      fmt::print("differs{}: {}: from {}\n  {}\n", exact ? "" : ", as it may", what, against, difference->to_string());
    else
      fmt::print("equal: {}: {} steps within {:g} of {}\n", what, command.steps, tolerance, against);
    for (const ClaimResult& claim : measured)
      fmt::print("{}: {}\n  {}\n", claim.holds ? "ok" : "not so", claim.claim, claim.measured);
  });
  return status != 0 ? status : differs ? 1 : 0;
}

}  // namespace

int verify_command(int argc, char** argv, const TrainerOptions& config, const VerifyCommand& command) {
  return compare_claims(argc, argv, config, command);
}

}  // namespace trireme

#include "tools/training/strategy_search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "datasets/core/loader.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/part_costs.h"
#include "parallel/profile/measure.h"
#include "parallel/runtime/step_plan.h"
#include "tools/training/from_options.h"

namespace trireme {
namespace {

/// Most ranks over which layers are split: the devices of a node, but at least 8.
int most_within(const Cluster& c) { return std::clamp(c.nodes.front().devices, 8, 64); }
constexpr int most_micro = 128;
constexpr Index most_work = 1'000'000;  // bound of actions in all plans; one core builds, checks and simulates about
                                        // 300,000 actions per second

/// Builds a model without initializing its weights.
template <class F>
auto unwritten(const F& make) {
  const SkipValues nothing;
  return make();
}

std::pair<Tensor, Tensor> made_up_batch(const TrainerOptions& c, const ModelOptions& shape, Device device, Index rows) {
  const Dataset data = synthetic_data(c, shape, rows);
  const auto first = Loader(data, {.batch = rows, .workers = 0, .dtype = make_dtype(c), .device = device}).begin();
  return {first->x, first->y};
}

}  // namespace

StrategySearch::StrategySearch(const TrainerOptions& config, const ModelOptions& shape, Device device)
    : settings_(config),
      shape_(shape),
      device_(device),
      model_(unwritten([&] { return make_undrawn_model(config, shape, device); })),
      parameters_(unwritten([&] { return Parameters(model_); })),
      optimizer_(parameters_, make_optimizer(config, 1000), step_options(config).optimizer) {
  optimizer_.keep({});
  settings_.parallel.strategy.clear();
  settings_.parallel.mesh.clear();
  buffers_ = Chain(model_).parts(parameters_).back().buffers.end;
}

std::pair<Tensor, Tensor> StrategySearch::samples(Index rows) const {
  return made_up_batch(settings_, shape_, device_, rows);
}

double StrategySearch::operations(Index rows) {
  double all = 0;
  constexpr double each = 1e12;  // numbers of nanoseconds are exact
  for (const PartCost& c : count_costs(Chain(model_), parameters_, samples(rows).first, {each}))
    all += each * (c.forward + c.backward_input + c.backward_weight);
  return all;
}

namespace {
bool has_experts(Module model) {
  bool any = false;
  model.visit(StateVisitor([&](const NamedState& s) { any = any || s.layout == FileLayout::listed; }));
  return any;
}
}  // namespace

std::vector<LayerSplit> StrategySearch::splits(ImaginedModels& models, const StrategyQuestion& q) const {
  std::vector<LayerSplit> all{{}};
  const auto wanted = [&](const std::string& axis, int size) {
    return size > 1 && size <= most_within(q.cluster) && (q.mesh.empty() || size_along(q.mesh, axis) == size);
  };
  for (const int size : divisors(q.ranks)) {
    if (!wanted("tensor", size)) continue;
    const bool inside = q.cluster.node_of(0) == q.cluster.node_of(size - 1);
    const Index rows = std::max<Index>(1, settings_.data.batch / (q.ranks / size));
    for (LayerSplit& split : tensor_splits(models, size, rows, inside ? q.cluster.inside : q.cluster.between))
      all.push_back(std::move(split));
  }
  if (model_row(settings_.model).text) {
    for (const int size : divisors(q.ranks))
      if (wanted("context", size))
        for (LayerSplit& split : context_splits(models, size)) all.push_back(std::move(split));
    if (const LayerSplit split{"experts", {}, false, true};
        has_experts(model_) && q.ranks > 1 && models(split, false, 2, 2))
      all.push_back(split);
    return all;
  }
  const std::string outermost = shape_.input.rank() == 4 ? "d" : "h";
  for (const int size : divisors(q.ranks))
    if (wanted(outermost, size) && 4 * size <= shape_.input[0]) {
      const LayerSplit split{"spatial", {{outermost, size}}};
      if (models(split, false, 2, 1)) all.push_back(split);
    }
  if (q.ranks > 1 && q.ranks <= most_within(q.cluster) && models({"one_weird_trick", {}, true}, false, 2, q.ranks))
    all.push_back({"one_weird_trick", {}, true});
  return all;
}

SearchSpace StrategySearch::space_of(ImaginedModels& models, const StrategyQuestion& q) const {
  SearchSpace space{.ranks = q.ranks,
                    .batch = settings_.data.batch,
                    .parts = models.parts(),
                    .splits = splits(models, q),
                    .micro = q.micro,
                    .most_micro = most_micro,
                    .mesh = q.mesh,
                    .host = q.cluster.cyclic ? q.ranks : q.cluster.nodes.front().devices};
  space.recompute = q.recompute;
  if (space.recompute.size() > 1 && !models.can_recompute()) space.recompute = {false};
  std::erase_if(space.mesh, [](const Axis& a) { return a.size == 1; });
  if (!q.mesh.empty() && space.mesh.empty()) space.mesh = {{"data", 1}};
  return space;
}

SearchResult StrategySearch::search(const StrategyQuestion& q) {
  if (q.cluster.devices() < q.ranks)
    throw OptionError(fmt::format("search: {} ranks, but the cluster{} has {} device{}; use fewer ranks", q.ranks,
                                  q.cluster.name.empty() ? "" : " " + q.cluster.name, q.cluster.devices(),
                                  q.cluster.devices() == 1 ? "" : "s"));
  const auto as_told = [&](const std::string& text) {
    TrainerOptions c = settings_;
    c.parallel.strategy = text;
    return make_strategy(c, q.ranks);
  };
  ImaginedModelOptions imagined{.model =
                                    [&](bool recompute) {
                                      TrainerOptions c = settings_;
                                      if (recompute || c.recompute == "true")
                                        c.recompute = recompute ? "true" : "false";
                                      return make_undrawn_model(c, shape_, device_);
                                    },
                                .samples = [&](Index rows) { return samples(rows); },
                                .loss = make_loss(settings_),
                                .keeps_outputs = step_options(settings_).keep_outputs != nullptr,
                                .strategy = as_told,
                                .rates = q.cluster.rates()};
  const auto parts = static_cast<std::size_t>(Chain(model_).size());
  const double share = static_cast<double>(std::max<Index>(1, settings_.data.batch / q.ranks));
  if (q.profile) {
    if (costs_at(*q.profile, 1).parts.size() != parts)
      throw OptionError(fmt::format(
          "search: the profile has {} parts of {}, which now has {}; measure again with trireme bench --machine",
          costs_at(*q.profile, 1).parts.size(), settings_.model, parts));
    imagined.costs = [&](Index rows) { return costs_at(*q.profile, rows).parts; };
  } else if (q.equal) {
    imagined.costs = [&](Index rows) {
      const double each = 1e-3 * static_cast<double>(rows) / share;
      return std::vector<PartCost>(parts, {each, each, each});
    };
  }
  ImaginedModels models(std::move(imagined));
  space_ = space_of(models, q);
  SearchInput in{
      .space = space_,
      .model = [&](const LayerSplit& split, bool recompute, Index rows, int data) -> std::optional<RankModel> {
        if (split.cuts_over_data() && data > most_within(q.cluster)) return {};
        return models(split, recompute, rows, data);
      },
      .machine = {.cluster = q.cluster, .element = size_of(parameters_.dtype()), .fresh = q.fresh, .step = 1},
      .numbers = {.element = size_of(parameters_.dtype()),
                  .states = static_cast<int>(optimizer_.state().size()),
                  .page = device_.kind == DeviceKind::cpu ? host_page : 1},
      .memory = q.memory,
      .costs = q.costs,
      .top = q.top,
      .work = most_work,
      .strategy = as_told,
      .finish =
          [&](Plan plan, const Strategy& strategy) {
            return with_agreements(plan, strategy, step_options(settings_), optimizer_, make_loss(settings_));
          }};
  if (q.profile) {
    in.jitter = jitter_of(*q.profile);
    in.heldout = heldout_error(*q.profile);
    in.beside = [&](SimulateOptions& machine, Index rows) {
      const StepCosts costs = costs_at(*q.profile, rows);
      machine.loss = costs.loss;
      machine.update = costs.update;
      machine.between_steps = costs.between;
    };
  }
  return trireme::search(in);
}

ModelProfile measure_whole(const TrainerOptions& config, const ModelOptions& shape, Device device, Communicator& comm,
                           int ranks, std::vector<Index> rows, int runs) {
  const Index share = std::max<Index>(1, config.data.batch / ranks);
  if (rows.empty()) rows = share > 1 ? std::vector{std::max<Index>(1, share / 4), share} : std::vector{share};
  ModelProfile profile = measure_model(comm, {.model = [&] { return make_model(config, shape, device); },
                                              .loss = make_loss(config),
                                              .optimizer = make_optimizer(config, 1000),
                                              .step = step_options(config),
                                              .batch = [&](Index n) { return made_up_batch(config, shape, device, n); },
                                              .rows = std::move(rows),
                                              .runs = runs});
  profile.model = config.model;
  return profile;
}

Index memory_of(const Cluster& cluster, int ranks) {
  double least = 0;
  Index before = 0;
  for (const NodeGroup& g : cluster.nodes) {
    if ((cluster.cyclic || before < ranks) && g.memory > 0) least = least > 0 ? std::min(least, g.memory) : g.memory;
    before += static_cast<Index>(g.count) * g.devices;
  }
  return static_cast<Index>(least);
}

TrainerOptions with_strategy(TrainerOptions c, const RankedStrategy& r) {
  c.parallel.mesh = to_string(r.mesh);
  c.parallel.strategy = r.strategy;
  c.parallel.ranks = ranks_of(r.mesh);
  if (r.candidate.recompute) c.recompute = "true";
  if (c.recompute == "false") c.recompute_offload = false;
  return c;
}

std::string margin_in_words(const SearchResult& found, const StrategyQuestion& q) {
  const bool links = found.weakest != q.costs;
  const std::string weakest = links       ? "links and speeds"
                              : q.profile ? "costs of parts"
                              : q.equal   ? "costs all alike"
                                          : "costs counted from shapes";
  const auto ranked = std::ssize(found.ranked);
  const std::string alike = ranked < 2              ? "nothing else is ranked"
                            : found.alike == 1      ? "the first is faster than the others beyond that"
                            : found.alike == ranked ? fmt::format("all {} are alike", ranked)
                                                    : fmt::format("the first {} are alike", found.alike);
  return fmt::format("{}band +-{:.0f} % ({}: {}): {}",
                     ranked < 2 ? "" : fmt::format("margin {:.1f} % to the next, ", 100 * found.margin),
                     100 * found.band, to_string(found.weakest), weakest, alike);
}

std::string none_in_words(const TrainerOptions& c, const SearchSpace& space, const StrategyQuestion& q) {
  if (!q.mesh.empty())
    return fmt::format(
        "search: no strategy that is searched has the mesh {} (data, shard, pipe and tensor or h, in an "
        "order like pipe=2,data=4,tensor=2, with at most {} samples along data): leave it out",
        to_string(q.mesh), c.data.batch);
  return fmt::format(
      "search: {} rank{} cannot be arranged: at most {} along data (data.batch), {} along pipe (parts of {}) and {}: "
      "raise --data.batch, or take a number of ranks with other divisors",
      q.ranks, q.ranks == 1 ? "" : "s", c.data.batch, space.parts, c.model,
      space.splits.size() > 1 ? fmt::format("{} over which layers are split", most_within(q.cluster))
                              : "no layer that is split");
}

}  // namespace trireme

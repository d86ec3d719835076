#include "parallel/analysis/imagine.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "framework/autograd/step_context.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/comm/world/norm_ranks.h"
#include "parallel/model/part_memory.h"
#include "parallel/split/split.h"

namespace trireme {
namespace {

/// Ranks with coordinate 0, except along axes that cut samples, where ranks at an end have one neighbour and others
/// two.
std::set<int> ranks_to_imagine(const std::vector<Axis>& axes, const SplitOptions& split) {
  std::set<int> ranks{0};
  int stride = ranks_of(axes);
  const std::vector<std::string> cut = split.sample_axes();
  for (const Axis& axis : axes) {
    stride /= axis.size;
    if (std::ranges::find(cut, axis.name) == cut.end()) continue;
    std::set<int> more;
    for (const int at : {0, std::min(1, axis.size - 1), axis.size - 1})
      for (const int rank : ranks) more.insert(rank + at * stride);
    ranks = std::move(more);
  }
  return ranks;
}

Index bytes_of(const PartInfo& part) {
  Index bytes = 0;
  for (const auto& [pass, comms] : part.comms)
    for (const PlannedCall& c : comms) bytes += c.bytes;
  return bytes;
}

/// The ranks that share batch norm's statistics; null for one rank. Keeps their communicator alive.
std::shared_ptr<const NormRanks> norm_ranks(const Plan& plan, const Strategy& strategy, Mesh& mesh,
                                            std::unique_ptr<Communicator>& kept) {
  const std::string axis = batch_axis(plan, strategy.split);
  if (mesh.size(axis) == 1 || strategy.scope() == NormScope::local) return nullptr;
  const bool all = strategy.scope() == NormScope::global;
  kept = mesh.meter().metered(imagined_communicator(0, all ? mesh.size(axis) : strategy.norm_group), axis);
  return kept->size() > 1 ? std::make_shared<CommunicatorNormRanks>(std::vector{kept.get()}) : nullptr;
}

DryRun imagine_rank(const Plan& plan, const Strategy& strategy, const ImagineOptions& o, int rank) {
  World world;
  Mesh mesh(world, plan.axes, rank);
  std::unique_ptr<Communicator> kept, batch;
  StepContext context = StepContext::current();
  const std::string axis = batch_axis(plan, strategy.split);
  context.norm = norm_ranks(plan, strategy, mesh, kept);
  context.batch.samples = Tensor::zeros({o.x.dim(0)}, DType::i64);
  context.batch.global_batch = o.x.dim(0) * mesh.size(axis) * plan.microbatches;
  Module model = o.model();
  if (strategy.split.any()) model = split(model, mesh, strategy.split, o.x, !strategy.acts_on_updates());
  Parameters parameters(model);
  const Chain chain(model, o.keeps_outputs ? Loss() : o.loss);
  const Tensor x = o.x.with_batch(context.batch);
  const StepScope scope(std::move(context));
  return dry_run(chain, parameters, chain.parts(parameters), x,
                 {.meter = &mesh.meter(), .loss = o.loss, .labels = o.labels, .plan = &plan, .memory = true});
}

/// Takes costs of one rank's dry run if they are larger than the known ones. Keeps the types of read_as in which all
/// ranks so far agree; first: this is the first of them.
void take(PartInfo& part, const PartInfo& found, bool first) {
  if (first) part.read_as = found.read_as;
  std::erase_if(part.read_as, [&](const auto& weight) {
    const auto at = found.read_as.find(weight.first);
    return at == found.read_as.end() || at->second != weight.second;
  });
  raise_bytes(part.cost, found.cost);
  part.outputs = found.outputs;
  if (bytes_of(found) > bytes_of(part)) part.comms = found.comms;
}

}  // namespace

DType imagine(Plan& plan, const Strategy& strategy, const ImagineOptions& o) {
  DType loss = DType::f32;
  for (PartInfo& part : plan.parts) {
    const PartCost& cost = part.cost;
    part.cost = {
        .forward = cost.forward, .backward_input = cost.backward_input, .backward_weight = cost.backward_weight};
    part.comms.clear();
  }
  PartInfo front, behind;  // additional parts of split layers, before and after the model
  for (const int rank : ranks_to_imagine(plan.axes, strategy.split)) {
    const DryRun run = imagine_rank(plan, strategy, o, rank);
    loss = run.loss;
    for (const PartInfo& found : run.parts) {
      const auto known = std::ranges::find(plan.parts, found.name, &PartInfo::name);
      take(known != plan.parts.end() ? *known : &found == &run.parts.front() ? front : behind, found, rank == 0);
    }
  }
  plan.parts.front().cost = joined(front.cost, plan.parts.front().cost);
  if (behind.cost != PartCost{}) plan.parts.back().cost = joined(plan.parts.back().cost, behind.cost);
  for (const auto& [pass, comms] : front.comms) {
    auto& first = plan.parts.front().comms[pass];
    first.insert(first.begin(), comms.begin(), comms.end());
  }
  for (const auto& [pass, comms] : behind.comms) {
    auto& last = plan.parts.back().comms[pass];
    last.insert(last.end(), comms.begin(), comms.end());
  }
  return loss;
}

std::string traffic_table(const Plan& plan, const TrafficOptions& options, const std::vector<StepTraffic>& measured) {
  std::string text = fmt::format("{:<16} {:<16} {:>10} {:>14}", "a step sends", "over", "calls", "payload");
  text += measured.empty() ? "\n" : fmt::format(" {:>10} {:>14}\n", "counted", "payload");
  const auto lines = [&](const std::string& name, const Traffic& planned, const Traffic* counted) {
    Traffic all = planned;
    if (counted) all.insert(counted->begin(), counted->end());
    for (auto& [axis, ignored] : all) {
      const auto cell = [&axis = axis](const Traffic& traffic) {
        const auto at = traffic.find(axis);
        const TrafficCount count = at == traffic.end() ? TrafficCount{} : at->second;
        return fmt::format(" {:>10} {:>14}", count.calls, count.bytes);
      };
      text += fmt::format("{:<16} {:<16}{}{}\n", name, axis, cell(planned), counted ? cell(*counted) : "");
    }
    if (all.empty()) text += fmt::format("{:<16} nothing\n", name);
  };
  for (std::size_t r = 0; r < plan.programs.size() && measured.empty(); ++r) {
    const Program& program = plan.programs[r];
    lines(program.name, planned_traffic(plan, r, options), nullptr);
    for (int p = 0; p < std::ssize(program.phases); ++p) {
      const auto& [name, trigger, last, actions] = program.phases[p];
      if (trigger.runs_at(options.step) || !trigger.by_step()) continue;
      TrafficOptions alone = options;
      alone.phase = p;
      lines(fmt::format("  {} ({})", name, to_string(trigger)), planned_traffic(plan, r, alone), nullptr);
    }
    for (const ProgramPhase& phase : program.phases)
      if (phase.trigger.on_call) lines("  " + phase.name, planned_traffic(plan, r, phase.name, options), nullptr);
  }
  for (std::size_t rank = 0; rank < measured.size(); ++rank)
    lines(fmt::format("rank {}", rank), measured[rank].planned, &measured[rank].counted);
  return text + fmt::format("payload: {}\n", payload_in_words);
}

}  // namespace trireme

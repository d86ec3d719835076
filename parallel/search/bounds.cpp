#include "parallel/search/bounds.h"

#include <algorithm>
#include <numeric>

#include "parallel/comm/world/mesh.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/partition.h"
#include "parallel/strategies/rebuild.h"
#include "parallel/strategies/schedules.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

using Reach = MeshLinks::Reach;

std::string summed_axes(const SearchSpace& space, const SearchCandidate& c) {
  std::string axes = c.shard > 1 ? "data+shard" : c.data > 1 ? "data" : "";
  if (space.splits[c.split].cuts_samples())
    for (const Axis& a : space.splits[c.split].axes) axes += (axes.empty() ? "" : "+") + a.name;
  return axes;
}

std::optional<RankModel> model_of(const RankModelOf& of, const SearchSpace& space, const SearchCandidate& c) {
  std::optional<RankModel> model = of(space.splits[c.split], c.recompute, rows_of(space, c), c.data);
  if (model && c.shard > 1)  // batch norms' sums go over all ranks that share the batch
    for (PartInfo& part : model->parts)
      for (auto& [pass, comms] : part.comms)
        for (PlannedCall& comm : comms)
          if (comm.axis == "data") comm.axis = "data+shard";
  return model;
}

namespace {

/// Axes along which zero divides the updates of weights that are summed over `axes`.
std::string divided_axes(const SearchCandidate& c, const std::string& axes) { return c.shard > 1 ? "shard" : axes; }

}  // namespace

bool MeshLinks::crosses(int base, const std::vector<std::pair<int, int>>& along, int last) const {
  if (block_) return node_of_[base] != node_of_[last];
  std::vector<int> members{base};
  for (const auto& [size, stride] : along) {
    const std::size_t before = members.size();
    for (int i = 1; i < size; ++i)
      for (std::size_t k = 0; k < before; ++k) members.push_back(members[k] + i * stride);
  }
  return std::ranges::any_of(members, [&](int r) { return node_of_[r] != node_of_[base]; });
}

Reach MeshLinks::reach(const std::vector<Axis>& mesh, const std::string& along, const std::string& fixed,
                       int at) const {
  std::vector<std::pair<int, int>> line, others;
  const auto names = names_in(along);
  int stride = 1, span = 0, first = 0;
  for (auto axis = mesh.rbegin(); axis != mesh.rend(); stride *= axis->size, ++axis) {
    if (std::ranges::find(names, axis->name) != names.end()) {
      line.emplace_back(axis->size, stride);
      span += (axis->size - 1) * stride;
    } else if (axis->name == fixed)
      first = at * stride;
    else
      others.emplace_back(axis->size, stride);
  }
  bool some = false, all = true;
  int bases = 1;
  for (const auto& [size, s] : others) bases *= size;
  for (int i = 0; i < bases && (!some || all); ++i) {
    int base = first, left = i;
    for (const auto& [size, s] : others) {
      base += left % size * s;
      left /= size;
    }
    const bool far = span > 0 && crosses(base, line, base + span);
    some = some || far;
    all = all && far;
  }
  return !some ? Reach::none : all ? Reach::all : Reach::some;
}

CandidateBounds::CandidateBounds(const SearchSpace& space, const RankModelOf& model, const Cluster& cluster,
                                 const MemoryOptions& memory)
    : space_(space), model_(model), cluster_(cluster), memory_(memory), links_(node_of_, !cluster.cyclic) {
  for (int r = 0; r < space.ranks; ++r) {
    node_of_.push_back(cluster.node_of(r));
    speed_ = std::max(speed_, cluster.speed_of(r));
  }
}

/// Duration of a call of ranks of which `reach` use the link between nodes.
double CandidateBounds::call(Reach reach, CallKind kind, int ranks, Index bytes) const {
  const auto seconds = [&](const Link& link) {
    return 1e-9 * static_cast<double>(kind == CallKind::send || kind == CallKind::recv
                                          ? message_time(link, bytes)
                                          : collective_time(link, kind, ranks, bytes));
  };
  if (ranks <= 1) return 0;
  if (reach == Reach::none) return seconds(cluster_.inside);
  if (reach == Reach::all) return seconds(cluster_.between);
  return std::min(seconds(cluster_.inside), seconds(cluster_.between));
}

/// Resets the cached values that differ from the previous candidate.
void CandidateBounds::enter(const SearchCandidate& c) {
  const bool same_mesh = any_ && c.split == last_.split && c.data == last_.data && c.stages == last_.stages &&
                         c.pipe_first == last_.pipe_first && c.shard == last_.shard;
  if (!same_mesh) {
    mesh_ = mesh_of(space_, c);
    reach_.clear();
    shared_.clear();
  }
  if (!same_mesh || c.micro != last_.micro) {
    models_.clear();
    cut_.clear();
  }
  last_ = c;
  any_ = true;
}

Reach CandidateBounds::reach_of(const std::string& axes, int rank) {
  auto [at, unknown] = shared_.try_emplace({axes, rank}, Reach::none);
  if (unknown && !axes.empty()) at->second = links_.reach(mesh_, axes, "pipe", rank);
  return at->second;
}

const RankModel* CandidateBounds::model_for(const SearchCandidate& c) {
  auto [at, fresh] = models_.try_emplace(c.recompute);
  if (fresh) at->second = trireme::model_of(model_, space_, c);
  return at->second ? &*at->second : nullptr;
}

const std::vector<CandidateBounds::Stage>& CandidateBounds::stages_of(const SearchCandidate& c,
                                                                      const RankModel& model) {
  auto [at, fresh] = cut_.try_emplace({c.recompute, c.chunks});
  if (!fresh) return at->second;
  const auto& parts = model.parts;
  std::vector<int> starts{0};
  if (c.stages > 1) starts = cut_by_cost(parts, {.stages = c.stages * c.chunks});
  starts.push_back(static_cast<int>(parts.size()));
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    Stage stage{.first = starts[s]};
    for (int p = starts[s]; p < starts[s + 1]; ++p) {
      const PartCost& cost = parts[p].cost;
      const double before = stage.backward();
      stage.forward += cost.forward / speed_;
      stage.backward_input += cost.backward_input / speed_;
      stage.backward_weight += cost.backward_weight / speed_;
      stage.kept += cost.saved - cost.offloaded + cost.halo;
      for (const auto& [pass, comms] : parts[p].comms) {
        // Calls of the loss count as backward of the last stage.
        double& took = pass == ActionKind::forward           ? stage.forward
                       : pass == ActionKind::backward_weight ? stage.backward_weight
                                                             : stage.backward_input;
        for (const PlannedCall& comm : comms) {
          auto [reach, unknown] = reach_.try_emplace(comm.axis, Reach::none);
          if (unknown) reach->second = links_.reach(mesh_, comm.axis);
          took += static_cast<double>(comm.calls) * call(reach->second, comm.kind, size_along(mesh_, comm.axis),
                                                         comm.bytes / std::max<Index>(1, comm.calls));
        }
      }
      stage.backward_of.push_back(stage.backward() - before);
    }
    if (starts[s] > 0) stage.arrived = parts[starts[s] - 1].cost.output;
    stage.weights = {parts[starts[s]].slice.begin, parts[starts[s + 1] - 1].slice.end};
    at->second.push_back(stage);
  }
  return at->second;
}

int CandidateBounds::stage_of(const SearchCandidate& c, int rank, int chunk) const {
  if (c.schedule < 0) return rank;
  return trireme::stage_of(find_schedule(space_.schedules[c.schedule]), {c.stages, c.micro, c.chunks}, rank, chunk);
}

/// Sums of the rank at coordinate `rank` along pipe.
CandidateBounds::Sums CandidateBounds::sums_of(const SearchCandidate& c, const RankModel& model, int rank,
                                               const std::vector<Stage>& stages) {
  DataParallelOptions cut{.axis = summed_axes(space_, c)};
  Sums sums;
  if (size_along(mesh_, cut.axis) <= 1) return sums;
  const bool tied = std::ranges::any_of(model.parts, [](const PartInfo& p) { return !p.tied.empty(); });
  if (c.bucket > 0) {
    cut.first_bucket = std::max<Index>(1, c.bucket / 4);
    cut.bucket = c.bucket;
  }
  const bool by_units = c.zero == 3 || (tied && c.stages > 1);
  if (by_units) cut.first_bucket = cut.bucket = std::max<Index>(1, model.parameters);
  std::vector<Bucket> buckets;      // last first
  Slice first_unit{}, last_unit{};  // that zero(3) gathers
  for (int chunk = c.chunks - 1; chunk >= 0; --chunk) {
    const Slice& whole = stages[stage_of(c, rank, chunk)].weights;
    std::vector<Slice> units{whole};
    if (c.zero == 3 && c.stages == 1) {
      units.clear();
      for (const PartInfo& part : model.parts) units.insert(units.begin(), part.slice);
    }
    for (const Slice& unit : units) {
      if (unit.size() == 0) continue;
      if (last_unit.size() == 0) last_unit = unit;
      first_unit = unit;
      std::ranges::move(cut_buckets(model.parts, unit, cut), std::back_inserter(buckets));
    }
  }
  // Shared weights and chunks are cut differently; then only the time per byte is used.
  const bool exact = !(tied && by_units) && !(c.zero == 3 && c.chunks > 1);
  if (!exact && !(cluster_.inside.measured.empty() && cluster_.between.measured.empty())) return sums;
  // Of several kinds of reductions, different ranks may have the slow links.
  const bool alike =
      c.shard == 1 && std::ranges::all_of(buckets, [&](const Bucket& b) { return b.axis == buckets.front().axis; });
  const auto took = [&](CallKind kind, const std::string& axes, Index bytes) {
    const Reach reach = reach_of(axes, rank);
    return call(alike && reach == Reach::some ? Reach::all : reach, kind, size_along(mesh_, axes), bytes);
  };
  // Weights that are read in a type of 2 bytes are gathered in it (GatherLayout).
  const bool halves =
      c.zero == 3 && std::ranges::any_of(model.parts, [](const PartInfo& p) { return !p.read_as.empty(); });
  for (const auto& [slice, axes] : buckets) {
    const std::string divided = divided_axes(c, axes);
    const Index bytes = slice.size() * memory_.element;
    double reduce = took(c.zero == 0 ? CallKind::all_reduce : CallKind::reduce_scatter, divided, bytes);
    if (divided != axes)
      reduce += took(CallKind::all_reduce, axes_without(axes, divided),
                     slice.size() / size_along(mesh_, divided) * memory_.element);
    sums.reduce += reduce;
    sums.last = exact ? reduce : 0;
    if (c.zero == 0 || (c.zero == 3 && !exact)) continue;
    // Of zero(3) for forward and backward of each micro-batch, unless the pass before needs the same weights.
    const int gathers = c.zero < 3 || !c.reshard ? 1
                                                 : 2 * c.micro - (slice.overlaps(last_unit) ? c.micro : 0) -
                                                       (slice.overlaps(first_unit) ? c.micro - 1 : 0);
    const double gather = took(CallKind::all_gather, divided, halves ? bytes / 2 : bytes);
    sums.gather += gathers * gather;
    sums.first = c.stages == 1 && !by_units && uses(model.parts.front(), slice) ? gather : 0;
  }
  const auto& backward = stages[rank].backward_of;
  const int first = stages[rank].first, end = first + static_cast<int>(std::ssize(backward));
  for (int p = first; p < end && !buckets.empty() && model.parts[p].slice.end <= buckets.back().slice.begin; ++p)
    sums.behind += backward[p - first];
  return sums;
}

/// The longest time of a rank: until its first forward can begin, its computation, and the work after it.
double CandidateBounds::seconds_of(const SearchCandidate& c, const RankModel& model, const std::vector<Stage>& stages) {
  const PipelineSchedule* schedule = c.schedule < 0 ? nullptr : &find_schedule(space_.schedules[c.schedule]);
  const bool halves = schedule && schedule->name.starts_with("zb-");
  const bool measured = !cluster_.inside.measured.empty() || !cluster_.between.measured.empty();
  const double least_message = measured ? 0 : std::min(cluster_.inside.latency, cluster_.between.latency);
  double most = 0, before = 0, behind = 0;  // forwards of the stages before it, and their backwards
  for (int rank = 0; rank < c.stages; ++rank) {
    double busy = 0;
    for (int chunk = 0; chunk < c.chunks; ++chunk) busy += stages[stage_of(c, rank, chunk)].all();
    const Stage& first = stages[rank];
    const bool folds = schedule && schedule->folds;  // its last rank joins the buckets of two stages
    const Sums sums = folds ? Sums{} : sums_of(c, model, rank, stages);
    before += sums.first;
    const double computed = before + c.micro * busy;
    // The first bucket is complete in backward of the last micro-batch.
    const double ready = c.chunks > 1 ? 0 : before + (c.micro - 1) * busy + first.forward;
    double end = std::max({computed, computed - sums.behind + sums.last, ready + sums.reduce});
    if (!cluster_.overlaps && c.stages == 1 && c.zero < 2) end = std::max(end, computed + sums.reduce);
    most = std::max({most, end, sums.gather + sums.reduce});
    if (!halves) most = std::max(most, computed + behind);
    before += first.forward + least_message;
    behind += first.backward() + least_message;
  }
  // Each action is rounded to nanoseconds.
  return std::max(0.0, most * (1 - 1e-12) - 4e-9 * c.micro * static_cast<double>(model.parts.size() + stages.size()));
}

Index CandidateBounds::bytes_of(const SearchCandidate& c, const RankModel& model, int rank,
                                const std::vector<Stage>& stages) const {
  const Index all = std::max<Index>(1, model.parameters);
  const DataParallelOptions uncut{.axis = summed_axes(space_, c), .first_bucket = all, .bucket = all};
  Index weights = 0, others = 0, kept = 0;  // others: weights that other ranks update
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    const Slice& whole = stages[stage_of(c, rank, chunk)].weights;
    weights += whole.size();
    if (c.zero > 0)
      for (const auto& [slice, axes] : cut_buckets(model.parts, whole, uncut))
        others += slice.size() - slice.size() / size_along(mesh_, divided_axes(c, axes));
  }
  const Index share = weights - others;
  const auto kept_of = [&](const Stage& s) { return s.kept + s.arrived; };
  if (c.schedule < 0) {
    kept = kept_of(stages[rank]);
  } else {
    const PipelineSchedule& schedule = find_schedule(space_.schedules[c.schedule]);
    const PipelineShape shape{c.stages, c.micro, c.chunks};
    if (schedule.folds) {  // at least a micro-batch that has passed both of its stages; no message enters a turn
      kept = kept_of(stages[stage_of(c, rank, 0)]) +
             (rank + 1 == c.stages ? stages[c.stages].kept : kept_of(stages[stage_of(c, rank, 1)]));
    } else {
      const int alive = schedule.name == "zb-h1" ? std::min(c.micro, c.stages - rank) : schedule.in_flight(shape, rank);
      const int round = c.stages * c.chunks;
      for (int k = 0; k < alive; ++k) kept += kept_of(stages[k % round / c.stages * c.stages + rank]);
    }
  }
  const Index numbers = (c.zero == 3 && c.reshard ? share : weights) + model.parts.back().buffers.end +
                        (c.zero >= 2 && c.stages == 1 ? share : weights) +
                        memory_.states * (c.zero >= 1 ? share : weights);
  return numbers * memory_.element + kept;
}

std::optional<CandidateBound> CandidateBounds::of(const SearchCandidate& c) {
  enter(c);
  const RankModel* model = model_for(c);
  if (!model || static_cast<std::size_t>(c.stages * c.chunks) > model->parts.size()) return {};
  const auto& stages = stages_of(c, *model);
  CandidateBound bound{.seconds = seconds_of(c, *model, stages)};
  for (int rank = 0; rank < c.stages; ++rank) bound.bytes = std::max(bound.bytes, bytes_of(c, *model, rank, stages));
  return bound;
}

}  // namespace trireme

#include "parallel/runtime/step_ranks.h"

#include <fmt/format.h>

#include <numeric>
#include <set>

#include "parallel/async/channel_plan.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/norm_ranks.h"
#include "parallel/strategies/on_call.h"

namespace trireme {
namespace {

void compare_plans(Communicator& comm, const Plan& plan) {
  compare_ranks(comm, "step", plan.hash(), [&] {
    const std::string text = plan.to_string();  // without the first line, whose hash does not show the difference
    return text.substr(text.find('\n') + 1) + fmt::format("plan hash {:016x}", plan.hash());
  });
}

}  // namespace

StepRanks::StepRanks(const Plan& plan, Mesh& mesh, const Strategy& strategy,
                     const std::vector<std::string>& tensor_parallel_axes) {
  // If layers are split, other ranks have running statistics of other lengths.
  if (const std::string alike = all_axes(plan, tensor_parallel_axes); !alike.empty()) {
    const TrafficMeter::Pause pause(mesh.meter());
    compare_plans(mesh.comm(alike), plan);
  }
  const std::string& axis = batch_axis_ = batch_axis(plan, strategy.split);
  stage_axis_ = plan.stage_axis;
  make_communicators(plan, mesh);
  const int here = plan.program_at([&](const std::string& name) { return mesh.index(name); });
  const Program& program = plan.programs[static_cast<std::size_t>(here)];
  const Program& trains = program.serves() ? *std::ranges::find(plan.programs, false, &Program::serves) : program;
  share_ = {program.serves()         ? 0
            : groups_.contains(axis) ? group(axis, mesh).rank()
                                     : mesh.index(axis),
            plan.size(trains, axis), plan.microbatches};
  const Consistency promised = plan.consistency_along(axis);
  trains_apart_ = promised != Consistency{};
  stale_ = depends_on_arrivals(plan);
  worker_ = plan.size(trains, plan.synchronous_axes(axis));
  if (plan.has_stages()) stages_ = mesh.comm(plan.stage_axis).split(0, mesh.index(plan.stage_axis));
  // Sums during a step have a separate communicator, so that they cannot be confused with the buckets'.
  if (share_.size > 1) {
    batch_ = group(axis, mesh).split(0, share_.rank);
    make_norm_ranks(strategy);
  }
}

/// All ranks make the communicators of all programs, in the same order: making a communicator is a collective call,
/// also for stages without parameters.
void StepRanks::make_communicators(const Plan& plan, Mesh& mesh) {
  std::set<std::string> axes, shared;
  const bool ranged = std::ranges::any_of(plan.programs, [](const Program& p) { return !p.where.empty(); });
  if (ranged && mesh.size(batch_axis_) > 1) axes.insert(batch_axis_);
  for (auto& r : plan.programs) {
    for (auto& a : r.actions)
      if (mesh.size(a.peer.axis) > 1) axes.insert(a.peer.axis);
    for (auto& range : r.where) shared.insert(range.axis);
  }
  const int program = plan.program_at([&](const std::string& name) { return mesh.index(name); });
  for (auto& name : axes) {
    Communicator& all = mesh.comm(name);
    const auto names = names_in(name);
    if (std::ranges::any_of(names, [&](const std::string& n) { return shared.contains(n); }))
      groups_[name] = all.split(program, all.rank());
  }
  for (auto& r : plan.programs)
    for (auto& a : r.actions) {
      const std::vector<int>& members = a.peer.members;
      if (members.empty() || subsets_.contains({a.peer.axis, members})) continue;
      Communicator& all = mesh.comm(a.peer.axis);
      const bool member = std::ranges::find(members, all.rank()) != members.end();
      subsets_[{a.peer.axis, members}] = all.split(member ? 0 : 1, all.rank());
    }
  axes.clear();
  for (auto& r : plan.programs)
    for (auto& phase : r.phases)
      for (auto& a : phase.actions)
        if (mesh.size(a.peer.axis) > 1) axes.insert(a.peer.axis);
  for (auto& name : axes) (void)mesh.comm(name);
}

Communicator& StepRanks::group(const std::string& axis, Mesh& mesh) const {
  const auto at = groups_.find(axis);
  return at != groups_.end() ? *at->second : mesh.comm(axis);
}

Communicator& StepRanks::group(const Peer& peer, Mesh& mesh) const {
  return peer.members.empty() ? group(peer.axis, mesh) : *subsets_.at({peer.axis, peer.members});
}

Communicator& StepRanks::agreement(const std::string& axis, Mesh& mesh) const {
  if (batch_ && axis == batch_axis_) return *batch_;
  return stages_ && axis == stage_axis_ ? *stages_ : group(axis, mesh);
}

void StepRanks::make_norm_ranks(const Strategy& strategy) {
  const int ranks = strategy.norm_group;
  check(!trains_apart_ || strategy.scope() == NormScope::local, "step",
        "ranks train separately, so batch norm must use each rank's rows: set norm_scope=local");
  if (strategy.scope() == NormScope::global) norm_ = std::make_shared<CommunicatorNormRanks>(std::vector{batch_.get()});
  if (strategy.scope() != NormScope::group) return;
  check(ranks > 0 && share_.size % ranks == 0, "step",
        "batch norm groups of {} ranks do not divide {} ranks: set norm_group to a divisor", ranks, share_.size);
  if (ranks == 1) return;
  norm_group_ = batch_->split(share_.rank / ranks, share_.rank);
  norm_ = std::make_shared<CommunicatorNormRanks>(std::vector{norm_group_.get()});
}

/// Checks that the loader's share is this rank's: another share would train rows twice or not at all.
void StepRanks::check_share(const BatchContext& batch, Index rows, const RankShare& wanted) const {
  check(!batch.samples || batch.samples.numel() == rows, "step",
        "x has {} rows, but its batch names {} samples: pass the loader's x", rows,
        batch.samples ? batch.samples.numel() : 0);
  check(!batch.sliced, "step", "x holds only some rows of this rank's share of a batch: pass the loader's x");
  const RankShare got = batch.share.value_or(wanted);
  check(got.rank == wanted.rank && got.size == wanted.size, "step",
        "the loader gives share {} of {} of each batch, but this rank must get share {} of {}: give the loader .shard "
        "= step.shard()",
        got.rank, got.size, wanted.rank, wanted.size);
}

/// Numbers the rows of all ranks in rank order. Returns the number of rows of this rank's worker.
Index StepRanks::number_rows(BatchContext& batch, Index rows) const {
  const auto counts = gather_numbers(*batch_, {&rows, 1});
  const Index before = std::accumulate(counts.begin(), counts.begin() + share_.rank, Index{0});
  const Index total = std::accumulate(counts.begin(), counts.end(), Index{0});
  check(batch.global_batch == 0 || batch.global_batch == total, "step",
        "the loader's global batch has {} rows, but all ranks together passed {}: pass each sample to one rank, once",
        batch.global_batch, total);
  batch.global_batch = total;
  const auto worker = counts.begin() + share_.rank / worker_ * worker_;
  const Index together = std::accumulate(worker, worker + worker_, Index{0});
  if (batch.samples) return together;
  batch.samples = Tensor::empty({rows}, DType::i64);
  for (Index i = 0; i < rows; ++i) batch.samples.data<std::int64_t>()[i] = before + i;
  return together;
}

/// Rows of this rank's worker in a batch that a loader has divided.
Index StepRanks::worker_rows(Index global_batch) const {
  Index rows = 0;
  const int first = share_.rank / worker_ * worker_;
  for (int k = 0; k < share_.microbatches; ++k) {
    const auto [begin, end] = trireme::share(global_batch, k, share_.microbatches);
    const Index from = trireme::share(end - begin, first, share_.size).first;
    rows += trireme::share(end - begin, first + worker_ - 1, share_.size).second - from;
  }
  return rows;
}

StepContext StepRanks::context(const Tensor& x, const Tensor& y, std::uint64_t seed, std::uint64_t step,
                               std::optional<RankShare> share) {
  check(x.rank() > 0 && y.rank() > 0 && x.dim(0) == y.dim(0), "step",
        "x {} and y {} have different numbers of rows, or none: pass one row of each per sample", x.shape(), y.shape());
  const Index rows = x.dim(0);
  check(!x.batch() || !y.batch() || x.batch()->global_batch == y.batch()->global_batch, "step",
        "x is of a batch of {} rows, but y is of a batch of {} rows: pass x and y of one batch",
        x.batch() ? x.batch()->global_batch : 0, y.batch() ? y.batch()->global_batch : 0);
  StepContext context = surroundings();
  const bool training = context.batch.training;
  BatchContext& batch = context.batch = batch_of(x, y);
  batch.training = batch.training && training;
  check_share(batch, rows, share.value_or(share_));
  batch.seed = seed;
  batch.step = step;
  batch.calls = {};
  const bool numbered = batch.share && batch.global_batch > 0 && batch.samples;
  rows_ = rows;
  if (batch_ && !stale_ && !numbered)
    rows_ = number_rows(batch, rows);
  else if (worker_ > 1)
    rows_ = worker_rows(batch.global_batch);
  if (batch.global_batch == 0) batch.global_batch = rows;
  check(batch.global_batch > 0, "step", "the global batch has no rows: at least one rank must pass a row");
  check(batch_ || batch.global_batch == rows, "step",
        "the global batch has {} rows, but this rank, which must get all of them, got {}: give the loader .shard = "
        "step.shard()",
        batch.global_batch, rows);
  if (trains_apart_) batch.global_batch = std::max<Index>(1, rows_);
  return context;
}

StepContext StepRanks::surroundings() const {
  StepContext context = StepContext::current();
  if (batch_) context.norm = norm_;
  return context;
}

}  // namespace trireme

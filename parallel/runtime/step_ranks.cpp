#include "parallel/runtime/step_ranks.h"

#include <fmt/format.h>

#include <numeric>
#include <set>

#include "framework/tensor/memory_tracker.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/norm_ranks.h"

namespace trireme {
namespace {

void compare_plans(Communicator& comm, const Plan& plan) {
  compare_ranks(comm, "step", plan.hash(), [&] {
    const std::string text = plan.to_string();  // the hash of the first line says nothing of where they differ
    return text.substr(text.find('\n') + 1) + fmt::format("plan hash {:016x}", plan.hash());
  });
}

/// All ranks make the communicators of all programs, in one order: a stage without parameters sums nothing, yet the
/// others' making one is a call on it too.
void make_communicators(const Plan& plan, Mesh& mesh) {
  std::set<std::string> axes;
  for (auto& r : plan.programs)
    for (auto& a : r.actions)
      if (mesh.size(a.peer.axis) > 1) axes.insert(a.peer.axis);
  for (auto& name : axes) (void)mesh.comm(name);
}

std::unique_ptr<Communicator> split_replicas(Mesh& mesh, const std::vector<std::string>& tensor_parallel_axes) {
  int color = 0;
  for (auto& axis : tensor_parallel_axes) color = color * mesh.size(axis) + mesh.index(axis);
  return mesh.world().comm().split(color, mesh.world().rank());
}

void sum_in_place(Communicator& comm, const View& v) {
  const MemoryScope packed(MemoryKind::packed);
  const Tensor t = Tensor::empty(v.shape, v.dtype, v.device);
  copy_block(t, v);
  comm.all_reduce(t).wait();
  copy_block(v, t);
}

}  // namespace

StepRanks::StepRanks(const Plan& plan, Mesh& mesh, const Strategy& strategy,
                     const std::vector<std::string>& tensor_parallel_axes)
    : replicas_(split_replicas(mesh, tensor_parallel_axes)) {
  compare_plans(*replicas_, plan);  // where layers are split, others have running statistics of other lengths
  const std::string& axis = batch_axis_ = batch_axis(plan, strategy.split);
  stage_axis_ = plan.stage_axis;
  share_ = {mesh.index(axis), mesh.size(axis), plan.microbatches};
  make_communicators(plan, mesh);
  if (plan.programs.size() > 1) stages_ = mesh.comm(plan.stage_axis).split(0, mesh.index(plan.stage_axis));
  // The sums in the midst of a step have a communicator of their own, so that they cannot mix with the buckets'.
  if (share_.size > 1) batch_ = mesh.comm(axis).split(0, share_.rank), make_norm_ranks(strategy);
}

Communicator& StepRanks::agreement(const std::string& axis, Mesh& mesh) const {
  if (batch_ && axis == batch_axis_) return *batch_;
  return stages_ && axis == stage_axis_ ? *stages_ : mesh.comm(axis);
}

void StepRanks::make_norm_ranks(const Strategy& strategy) {
  const int ranks = strategy.norm_group;
  if (strategy.scope() == NormScope::global) norm_ = std::make_shared<CommunicatorNormRanks>(std::vector{batch_.get()});
  if (strategy.scope() != NormScope::group) return;
  check(ranks > 0 && share_.size % ranks == 0, "step",
        "batch norm groups of {} ranks do not divide {} ranks: set norm_group", ranks, share_.size);
  if (ranks == 1) return;
  norm_group_ = batch_->split(share_.rank / ranks, share_.rank);
  norm_ = std::make_shared<CommunicatorNormRanks>(std::vector{norm_group_.get()});
}

/// The loader's share must be the one that this rank is to take: a batch that is dealt otherwise would be trained with
/// rows missing or twice.
void StepRanks::check_share(const BatchContext& batch, Index rows) const {
  check(!batch.samples || batch.samples.numel() == rows, "step", "x has {} rows, but its batch names {} samples", rows,
        batch.samples ? batch.samples.numel() : 0);
  check(!batch.sliced, "step", "x holds some rows of a batch: a step takes all of this rank's share");
  const RankShare got = batch.share.value_or(share_);
  check(got.rank == share_.rank && got.size == share_.size, "step",
        "the loader deals share {} of {} of each batch, this rank is to take share {} of {}: give the loader "
        ".shard = step.shard()",
        got.rank, got.size, share_.rank, share_.size);
}

/// Rows of all ranks are the batch, in rank order.
void StepRanks::number_rows(BatchContext& batch, Index rows) const {
  const auto counts = gather_numbers(*batch_, {&rows, 1});
  const Index before = std::accumulate(counts.begin(), counts.begin() + share_.rank, Index{0});
  const Index total = std::accumulate(counts.begin(), counts.end(), Index{0});
  check(batch.global_batch == 0 || batch.global_batch == total, "step",
        "the global batch is said to have {} rows, the ranks brought {}: each sample must come to one rank, once",
        batch.global_batch, total);
  batch.global_batch = total;
  if (batch.samples) return;
  batch.samples = Tensor::empty({rows}, DType::i64);
  for (Index i = 0; i < rows; ++i) batch.samples.data<std::int64_t>()[i] = before + i;
}

StepContext StepRanks::context(const Tensor& x, const Tensor& y, std::uint64_t seed, std::uint64_t step) const {
  check(x.rank() > 0 && y.rank() > 0 && x.dim(0) == y.dim(0), "step", "x {} and y {} must have one row per sample",
        x.shape(), y.shape());
  const Index rows = x.dim(0);
  check(!x.batch() || !y.batch() || x.batch()->global_batch == y.batch()->global_batch, "step",
        "x is of a batch of {} rows, y of one of {}", x.batch() ? x.batch()->global_batch : 0,
        y.batch() ? y.batch()->global_batch : 0);
  StepContext context = surroundings();
  const bool training = context.batch.training;
  BatchContext& batch = context.batch = batch_of(x, y);
  batch.training = batch.training && training;
  check_share(batch, rows);
  batch.seed = seed;
  batch.step = step;
  batch.calls = {};
  if (batch_ && (!batch.share || batch.global_batch == 0 || !batch.samples)) number_rows(batch, rows);
  if (batch.global_batch == 0) batch.global_batch = rows;
  check(batch.global_batch > 0, "step", "the global batch has no rows");
  check(batch_ || batch.global_batch == rows, "step",
        "the global batch has {} rows, {} have come to this rank, which is to have them all: give the loader "
        ".shard = step.shard()",
        batch.global_batch, rows);
  return context;
}

StepContext StepRanks::surroundings() const {
  StepContext context = StepContext::current();
  if (!batch_) return context;
  context.sum = [comm = batch_.get()](View v) { sum_in_place(*comm, v); };
  context.norm = norm_;
  return context;
}

}  // namespace trireme

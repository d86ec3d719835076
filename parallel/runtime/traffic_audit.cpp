#include "parallel/runtime/traffic_audit.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "framework/tensor/fields.h"
#include "framework/tensor/shard_spec.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/action_kind.h"
#include "parallel/split/split.h"
#include "parallel/strategies/on_call.h"

namespace trireme {
namespace {

/// The batch with its fields, since a model's messages may depend on them.
Tensor in_shape_of(const Tensor& given, Index rows) {
  return map_fields(given, [rows](const Tensor& t) {
    Shape shape = t.shape();
    shape[0] = rows;
    return Tensor::zeros(shape, t.dtype(), t.device());  // ids and labels: valid ones
  });
}

}  // namespace

TrafficAudit::TrafficAudit(const Plan& plan, int program, const Chain& chain, Optimizer& optimizer, Loss loss,
                           const Mesh& mesh)
    : plan_(plan),
      program_(program),
      chain_(chain),
      optimizer_(optimizer),
      loss_(std::move(loss)),
      meter_(mesh.meter()) {}

void TrafficAudit::begin(const StepContext& context, const Tensor& x, const Tensor& y, std::int64_t step,
                         std::int64_t first) {
  context_ = context;
  x_ = in_shape_of(x, 0);
  y_ = in_shape_of(y, 0);
  const auto& cut = context.batch.microbatches;
  std::vector<Index> rows = plan_.microbatches > 1 ? cut : std::vector<Index>{};
  for (int k = 0; std::ssize(rows) < plan_.microbatches; ++k) {
    const auto [begin, end] = share(x.dim(0), k, plan_.microbatches);
    rows.push_back(end - begin);
  }
  const int back = most_steps_back(plan_.programs[static_cast<std::size_t>(program_)]);
  rows_.resize(std::min(rows_.size(), static_cast<std::size_t>(back * plan_.microbatches)));
  rows_.insert(rows_.begin(), rows.begin(), rows.end());
  step_ = step;
  first_ = first;
  before_ = meter_.counted();
}

DryRun TrafficAudit::dry(const StepContext& context, const Tensor& x, const Tensor& y) const {
  StepContext dry_context = context;
  BatchContext& batch = dry_context.batch;
  batch.samples = Tensor::zeros({x.dim(0)}, DType::i64);
  batch.microbatches.clear();
  batch.joined.clear();
  batch.calls = {};
  const Tensor in = x.with_batch(batch);
  const StepScope scope(std::move(dry_context));
  return dry_run(chain_, optimizer_.parameters(), plan_.parts, in,
                 {.meter = &meter_, .loss = loss_, .labels = y, .plan = &plan_});
}

std::vector<std::string> TrafficAudit::gather(Communicator& everyone, const std::string& mine) {
  std::vector<std::string> all;
  on_call(phases::saving, [&] { all = gather_texts(everyone, mine); });
  text_ = 0;
  for (const std::string& text : all) text_ += std::ssize(text);
  return all;
}

StepTraffic TrafficAudit::compare(const std::string& phase) const {
  std::map<Index, DryRun> runs;  // by rows
  std::vector<std::vector<PartInfo>> parts;
  DType loss = DType::f32;
  const bool whole = phase == phases::diagnosis, flush = phase == phases::flush;
  check((!phase.empty() && !whole) || !rows_.empty(), "traffic",
        "no step has run yet, and the traffic depends on its batch: run a step first");
  std::vector<Index> batches = phase.empty() || flush ? rows_ : std::vector<Index>{};
  const auto last = static_cast<std::ptrdiff_t>(std::min(rows_.size(), static_cast<std::size_t>(plan_.microbatches)));
  if (flush) batches.insert(batches.begin(), rows_.begin(), rows_.begin() + last);  // as in a step after it
  if (whole) batches = {std::accumulate(rows_.begin(), rows_.begin() + last, Index{0})};
  for (const Index rows : batches) {
    const auto [at, is_new] = runs.try_emplace(rows);
    if (is_new) at->second = dry(context_, in_shape_of(x_, rows), phase.empty() ? in_shape_of(y_, rows) : Tensor());
    parts.push_back(at->second.parts);
    loss = at->second.loss;
  }
  const Parameters& parameters = optimizer_.parameters();
  const auto& buffers = parameters.buffers();
  std::set<std::string> divided;
  for (const ParameterStore::Entry& e : parameters.entries())
    if (is_part(e.tensor)) divided.insert(divided_over(e.tensor));
  const TrafficOptions options{.parameters = parameters.dtype(),
                               .buffers = buffers.empty() ? DType::f32 : buffers.front().tensor.dtype(),
                               .loss = loss,
                               .step = step_ + flush,
                               .first = first_,
                               .divided = divided,
                               .norm = optimizer_.wants_norm(),
                               .states = static_cast<int>(optimizer_.state().size()),
                               .text = text_,
                               .parts = parts};
  const auto program = static_cast<std::size_t>(program_);
  if (phase.empty()) return {planned_traffic(plan_, program, options), counted_};
  const auto counted = on_call_.find(phase);
  return {planned_traffic(plan_, program, phase, options), counted == on_call_.end() ? Traffic() : counted->second};
}

}  // namespace trireme

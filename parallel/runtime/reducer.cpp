#include "parallel/runtime/reducer.h"

#include "parallel/plan/shards.h"
#include "parallel/runtime/buckets.h"

namespace trireme {

Reducer::Reducer(Parameters& parameters, World& world, DataParallelOptions options) : overlap_(options.overlap) {
  std::vector<PartInfo> parts;
  for (auto& entry : parameters.entries()) parts.push_back({.name = entry.name, .slice = entry.slice});
  if (world.size() == 1) return;
  std::vector<Slice> slices;
  for (const Bucket& b : cut_buckets(parts, {0, parameters.size()}, options)) slices.push_back(b.slice);
  buckets_ = std::make_unique<Buckets>(parameters, std::move(slices), [&world](std::size_t, const Tensor& gradients) {
    return world.comm().all_reduce(gradients);
  });
  buckets_->arm(overlap_);
}
Reducer::~Reducer() = default;

void Reducer::finish() {
  if (!buckets_) return;
  buckets_->flush();
  buckets_->finish();
  buckets_->arm(overlap_);
}

void broadcast_state(Parameters& parameters, Communicator& all) {
  if (all.size() == 1) return;
  std::vector<Work> works;
  restore_pages(parameters.values(), {0, parameters.size()});
  for (auto& block : parameters.values().blocks()) works.push_back(all.broadcast(block, 0));
  for (auto& buffer : parameters.buffers()) works.push_back(all.broadcast(buffer.tensor, 0));
  for (auto& work : works) work.wait();
}

void broadcast_state(Optimizer& optimizer, Communicator& all) {
  if (all.size() == 1) return;
  const Tensor steps = Tensor::empty({1}, DType::i64);
  *steps.data<std::int64_t>() = optimizer.steps();
  all.broadcast(steps, 0).wait();
  optimizer.set_steps(*steps.data<std::int64_t>());
  for (auto& [name, state] : optimizer.state())
    for (auto& block : state.blocks()) all.broadcast(block, 0).wait();
}

}  // namespace trireme

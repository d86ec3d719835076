#include "parallel/runtime/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "kernels/core/runtime.h"

namespace trireme {
namespace {

Index resident(const FlatBuffer& flat) {
  Index bytes = 0;
  for (const Tensor& block : flat.blocks()) {
    const View v = block.view();
    bytes += static_cast<Index>(runtime(v.device.kind).resident(v.data, static_cast<std::size_t>(v.bytes()), v.device));
  }
  return bytes;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void Recorder::clear(std::size_t actions) {
  times_.assign(actions, {0, 0});
  weights_ = gradients_ = 0;
  memory_.reset_peaks();
}

void Recorder::see(const Parameters& p) {
  Index weights = resident(p.values());
  for (auto& b : p.buffers()) weights += b.tensor.view().bytes();
  weights_ = std::max(weights_, weights), gradients_ = std::max(gradients_, resident(p.grads()));
}

void Recorder::begin(ActionId id) {
  auto& begin = times_[static_cast<std::size_t>(id)].first;
  if (begin == 0) begin = now();
}

void Recorder::end(ActionId id) { times_[static_cast<std::size_t>(id)].second = now(); }

Timeline Recorder::gather(Communicator& world, int program) const {
  const Tensor most = Tensor::full({1}, static_cast<double>(times_.size()), DType::i64);
  world.all_reduce(most, ReduceOp::max).wait();
  const Index actions = *most.data<std::int64_t>(), row = 1 + 2 * actions;
  const Tensor mine = Tensor::zeros({row}, DType::f64), all = Tensor::empty({row * world.size()}, DType::f64);
  auto* out = mine.data<double>();
  *out++ = program;
  for (auto& [begin, end] : times_) *out++ = begin, *out++ = end;
  world.all_gather(all, mine).wait();

  Timeline timeline{.measured = true};
  double zero = std::numeric_limits<double>::infinity();
  for (int r = 0; r < world.size(); ++r) {
    const double* in = all.data<double>() + r * row;
    timeline.programs.push_back(static_cast<int>(in[0]));
    for (ActionId id = 0; id < static_cast<int>(actions); ++id) {
      const double begin = in[1 + 2 * id], end = in[2 + 2 * id];
      if (begin == 0) continue;
      zero = std::min(zero, begin);
      timeline.spans.push_back({r, id, begin, end});
    }
  }
  for (Span& s : timeline.spans) s.begin -= zero, s.end -= zero;
  return timeline;
}

std::vector<RankMemory> Recorder::gather_memory(Communicator& world, Optimizer& optimizer) const {
  RankMemory m{.weights = weights_,
               .gradients = gradients_,
               .activations = memory_.peak(MemoryKind::activations),
               .halos = memory_.peak(MemoryKind::halos),
               .packed = memory_.peak(MemoryKind::packed)};
  for (auto& [name, state] : optimizer.parameters().states()) m.optimizer += state.numel() * size_of(state.dtype());
  for (auto& [name, state] : optimizer.state()) m.optimizer += state.numel() * size_of(state.dtype());
  std::vector<RankMemory> ranks(static_cast<std::size_t>(world.size()));
  constexpr Index fields = sizeof(RankMemory) / sizeof(Index);
  const Tensor mine = Tensor::empty({fields}, DType::i64), all = Tensor::empty({fields * world.size()}, DType::i64);
  std::memcpy(mine.data<char>(), &m, sizeof m);
  world.all_gather(all, mine).wait();
  std::memcpy(ranks.data(), all.data<char>(), ranks.size() * sizeof m);
  return ranks;
}

}  // namespace trireme

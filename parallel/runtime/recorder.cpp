#include "parallel/runtime/recorder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>

#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"
#include "parallel/comm/world/compare.h"

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

void Recorder::see(const Parameters& p, Index older) {
  Index weights = resident(p.values()) + older;
  for (auto& b : p.buffers()) weights += b.tensor.numel() * static_cast<Index>(size_of(b.tensor.dtype()));
  weights_ = std::max(weights_, weights);
  gradients_ = std::max(gradients_, resident(p.grads()));
}

void Recorder::begin(ActionId id) {
  auto& begin = times_[id].first;
  if (begin == 0) begin = now();
}

void Recorder::end(ActionId id) { times_[id].second = now(); }

Timeline Recorder::gather(Communicator& world, int program) const {
  std::vector<Span> mine;
  for (ActionId id = 0; id < std::ssize(times_); ++id)
    if (times_[id].first > 0) mine.push_back({world.rank(), id, times_[id].first, times_[id].second});
  Timeline timeline{.measured = true};
  const std::int64_t own = program;
  for (const std::int64_t of_rank : gather_numbers(world, {&own, 1})) timeline.programs.push_back(of_rank);
  for (const std::string& bytes :
       gather_texts(world, {reinterpret_cast<char*>(mine.data()), mine.size() * sizeof(Span)})) {
    mine.resize(bytes.size() / sizeof(Span));
    std::memcpy(mine.data(), bytes.data(), bytes.size());
    timeline.spans.insert(timeline.spans.end(), mine.begin(), mine.end());
  }
  double zero = std::numeric_limits<double>::infinity();
  for (const Span& s : timeline.spans) zero = std::min(zero, s.begin);
  for (Span& s : timeline.spans) {
    s.begin -= zero;
    s.end -= zero;
  }
  return timeline;
}

std::vector<RankMemory> Recorder::gather_memory(Communicator& world, Optimizer& optimizer) const {
  RankMemory m{.weights = weights_,
               .gradients = gradients_,
               .activations = memory_.peak(MemoryKind::activations),
               .halos = memory_.peak(MemoryKind::halos),
               .packed = memory_.peak(MemoryKind::packed),
               .offloaded = memory_.peak(MemoryKind::offloaded)};
  for (auto& [name, state] : optimizer.parameters().states()) m.optimizer += state.numel() * size_of(state.dtype());
  for (auto& [name, state] : optimizer.state()) m.optimizer += state.numel() * size_of(state.dtype());
  const auto all = gather_numbers(world, std::bit_cast<std::array<Index, sizeof m / sizeof(Index)>>(m));
  std::vector<RankMemory> ranks(world.size());
  std::memcpy(static_cast<void*>(ranks.data()), all.data(), ranks.size() * sizeof m);
  return ranks;
}

}  // namespace trireme

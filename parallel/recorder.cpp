#include "parallel/recorder.h"

#include <chrono>
#include <limits>

namespace trireme {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void Recorder::begin(ActionId id) {
  auto& begin = times_[static_cast<std::size_t>(id)].first;
  if (begin == 0) begin = now();
}

void Recorder::end(ActionId id) { times_[static_cast<std::size_t>(id)].second = now(); }

Timeline Recorder::gather(Communicator& world, int role) const {
  const Tensor most = Tensor::full({1}, static_cast<double>(times_.size()), DType::i64);
  world.all_reduce(most, ReduceOp::max).wait();
  const Index actions = *most.data<std::int64_t>(), row = 1 + 2 * actions;
  const Tensor mine = Tensor::zeros({row}, DType::f64), all = Tensor::empty({row * world.size()}, DType::f64);
  auto* out = mine.data<double>();
  *out++ = role;
  for (auto& [begin, end] : times_) *out++ = begin, *out++ = end;
  world.all_gather(all, mine).wait();

  Timeline timeline{.measured = true};
  double zero = std::numeric_limits<double>::infinity();
  for (int r = 0; r < world.size(); ++r) {
    const double* in = all.data<double>() + r * row;
    timeline.roles.push_back(static_cast<int>(in[0]));
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

}  // namespace trireme

#include "parallel/analysis/predict_split.h"

#include <algorithm>

#include "framework/autograd/step_context.h"
#include "framework/autograd/trace.h"
#include "parallel/split/windows.h"

namespace trireme {
namespace {

/// Ranks per spatial axis of x [N, spatial..., C].
std::vector<int> ranks_over(const Shape& x, const std::vector<Axis>& mesh, const SplitOptions& o) {
  std::vector<int> ranks(static_cast<std::size_t>(std::max(0, x.rank() - 2)), 1);
  for (std::size_t s = 0; s < ranks.size(); ++s)
    for (const std::string& name : o.image)  // w is the last spatial axis, h the one before, d the first of three
      if (ranks.size() - s == (name == "w" ? 1u : name == "h" ? 2u : 3u)) ranks[s] = size_along(mesh, name);
  return ranks;
}

/// The largest halo of a rank, in elements of x.
Index halo_of(const Shape& x, const std::vector<Window>& windows, const std::vector<int>& ranks) {
  Index most = 0;
  std::vector<int> at(ranks.size(), 0);
  for (bool more = true; more;) {
    Index wanted = x[0] * x[-1], own = wanted;
    for (std::size_t s = 0; s < ranks.size(); ++s) {
      const Index extent = x[static_cast<int>(s) + 1];
      const Range mine = even_share(extent, ranks[s], at[s]);
      const Range in = reads(even_share(windows[s].outputs(extent), ranks[s], at[s]), windows[s], extent).inputs;
      wanted *= in.size();
      own *= Range{std::max(in.begin, mine.begin), std::min(in.end, mine.end)}.size();
    }
    most = std::max(most, wanted - own);
    more = false;
    for (std::size_t s = 0; s < ranks.size() && !more; ++s) more = ++at[s] < ranks[s] || (at[s] = 0, false);
  }
  return most;
}

std::vector<Window> windows_of(const TracedOp& op) {
  if (auto* conv = std::any_cast<ConvOptions>(&op.detail)) return windows(op.inputs[1].shape(), *conv);
  if (auto* pool = std::any_cast<PoolOptions>(&op.detail)) return windows(op.inputs[0].rank() - 2, *pool);
  return {};
}

}  // namespace

void predict_split(std::vector<PartCost>& costs, const Chain& chain, const Tensor& x, const std::vector<Axis>& mesh,
                   const SplitOptions& o) {
  StepContext pass = StepContext::current();
  pass.recomputing = true;  // running statistics stay
  const StepScope scope(pass);
  Tensor at = x;
  Stashed stashed;
  for (int p = 0; p < chain.size(); ++p) {
    PartCost& cost = costs[static_cast<std::size_t>(p)];
    Trace trace;
    Index cut = 1;
    for (int ranks : ranks_over(at.shape(), mesh, o)) cut *= ranks;
    at = chain.run(p, at, stashed).detach();
    cost.saved /= cut, cost.output /= at.rank() > 2 ? cut : 1;
    for (const TracedOp& op : trace.ops)
      if (const auto windows = windows_of(op); !windows.empty()) {
        const Shape& in = op.inputs[0].shape();
        cost.halo += halo_of(in, windows, ranks_over(in, mesh, o)) * size_of(op.inputs[0].dtype());
      }
  }
}

}  // namespace trireme

#include "parallel/search/layer_splits.h"

#include <algorithm>
#include <tuple>

namespace trireme {
namespace {

/// A prefix of the chain: the choice of its last part, and the preceding prefix by choice and rank.
struct Beginning {
  double cost = 0;
  int before = -1, place = -1;
};
using Best = std::vector<std::vector<Beginning>>;  // by choice of the last part

}  // namespace

std::vector<LayerAssignment> best_assignments(const LayerChoices& c, int count) {
  check(count >= 1 && !c.parts.empty(), "best_assignments", "{} assignments of {} parts: both must be at least 1",
        count, c.parts.size());
  std::vector<Best> best;
  for (int p = 0; p < std::ssize(c.parts); ++p) {
    check(!c.parts[p].empty(), "best_assignments", "part {} has no choice", p);
    Best& now = best.emplace_back(c.parts[p].size());
    for (int i = 0; i < std::ssize(now); ++i) {
      const double own = c.parts[p][i].seconds + c.seconds_per_byte * static_cast<double>(c.parts[p][i].bytes);
      if (p == 0) now[i].push_back({own});
      for (int before = 0; p > 0 && before < std::ssize(best[p - 1]); ++before) {
        const double edge = c.relayout ? c.relayout(p, before, i) : 0;
        for (int place = 0; place < std::ssize(best[p - 1][before]); ++place)
          now[i].push_back({best[p - 1][before][place].cost + edge + own, before, place});
      }
      std::ranges::stable_sort(now[i], {}, &Beginning::cost);
      if (std::ssize(now[i]) > count) now[i].resize(static_cast<std::size_t>(count));
    }
  }
  std::vector<std::tuple<double, int, int>> ends;  // cost, the last part's choice, and rank
  for (int i = 0; i < std::ssize(best.back()); ++i)
    for (int place = 0; place < std::ssize(best.back()[i]); ++place)
      ends.emplace_back(best.back()[i][place].cost, i, place);
  std::ranges::sort(ends);
  if (std::ssize(ends) > count) ends.resize(static_cast<std::size_t>(count));
  std::vector<LayerAssignment> all;
  for (auto [cost, choice, place] : ends) {
    LayerAssignment& a = all.emplace_back(LayerAssignment{std::vector<int>(c.parts.size()), cost});
    for (int p = static_cast<int>(std::ssize(c.parts)) - 1; p >= 0; --p) {
      a.choices[p] = choice;
      const Beginning& b = best[p][choice][place];
      choice = b.before;
      place = b.place;
    }
  }
  return all;
}

}  // namespace trireme

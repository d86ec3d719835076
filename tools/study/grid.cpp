#include "tools/study/grid.h"

#include <cmath>
#include <limits>

namespace trireme {
namespace {

/// Level k of a parameter.
double level(const Parameter& p, int k) {
  if (p.kind == Parameter::Kind::choice) return k;
  const double share = p.levels > 1 ? static_cast<double>(k) / (p.levels - 1) : 0.5;
  if (p.kind == Parameter::Kind::integer) return p.clamped(p.low + share * (p.high - p.low));
  if (p.kind == Parameter::Kind::log_integer)
    return p.clamped(std::exp(std::log(p.low) + share * std::log(p.high / p.low)));
  return p.at(share);
}

void fill(const Space& space, Point& point, std::size_t i, std::size_t most, std::vector<Point>& found) {
  if (found.size() >= most) return;
  if (i == space.size()) {
    found.push_back(point);
    return;
  }
  point[i] = std::numeric_limits<double>::quiet_NaN();
  if (!space.applies(point, i)) return fill(space, point, i + 1, most, found);
  double before = std::numeric_limits<double>::quiet_NaN();
  for (int k = 0; k < space[i].levels; ++k) {
    point[i] = level(space[i], k);
    if (point[i] != before) fill(space, point, i + 1, most, found);  // levels of small whole numbers may coincide
    before = point[i];
  }
}

}  // namespace

std::vector<Point> GridSearch::points(const Space& space, std::int64_t most) {
  std::vector<Point> found;
  Point point(space.size(), std::numeric_limits<double>::quiet_NaN());
  fill(space, point, 0, static_cast<std::size_t>(most), found);
  return found;
}

Point GridSearch::next(int number) const { return points(space(), number).back(); }

}  // namespace trireme

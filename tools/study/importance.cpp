#include "tools/study/importance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr int trees = 64;
constexpr std::size_t least_rows = 8, least_leaf = 2;

using Rows = std::vector<std::vector<double>>;

/// A box of the unit cube on which a tree is constant.
struct LeafBox {
  std::vector<double> low, high;
  double mean;
  double length(std::size_t d) const { return high[d] - low[d]; }
  double volume() const {
    double v = 1;
    for (std::size_t d = 0; d < low.size(); ++d) v *= length(d);
    return v;
  }
};

class Tree {
 public:
  Tree(const Rows& rows, const std::vector<double>& scores, std::vector<std::size_t> sample, std::mt19937_64& random)
      : rows_(rows), scores_(scores), random_(random), dimensions_(rows[0].size()) {
    grow(std::move(sample), std::vector<double>(dimensions_, 0.0), std::vector<double>(dimensions_, 1.0));
  }
  /// Adds each coordinate's share of the tree's variance. Returns false if the variance is 0.
  bool add_shares(std::vector<double>& shares) const {
    double mean = 0, variance = 0;
    for (const LeafBox& leaf : leaves_) mean += leaf.volume() * leaf.mean;
    for (const LeafBox& leaf : leaves_) variance += leaf.volume() * (leaf.mean - mean) * (leaf.mean - mean);
    if (variance <= 0) return false;
    for (std::size_t d = 0; d < dimensions_; ++d) shares[d] += marginal_variance(d, mean) / variance;
    return true;
  }

 private:
  struct Split {
    std::size_t dimension = 0;
    double at = 0, loss = std::numeric_limits<double>::infinity();
  };

  double mean_of(const std::vector<std::size_t>& sample) const {
    double sum = 0;
    for (const std::size_t i : sample) sum += scores_[i];
    return sum / static_cast<double>(sample.size());
  }

  /// Finds the split with the least squared error along one coordinate.
  void look(std::vector<std::size_t>& sample, std::size_t d, Split& best) const {
    std::ranges::sort(sample, {}, [&](std::size_t i) { return std::pair(rows_[i][d], i); });
    double right = 0, right_squares = 0, left = 0, left_squares = 0;
    for (const std::size_t i : sample) {
      right += scores_[i];
      right_squares += scores_[i] * scores_[i];
    }
    for (std::size_t k = 1; k < sample.size(); ++k) {
      const double y = scores_[sample[k - 1]];
      left += y;
      left_squares += y * y;
      right -= y;
      right_squares -= y * y;
      const double here = rows_[sample[k - 1]][d], next = rows_[sample[k]][d];
      if (here == next || k < least_leaf || sample.size() - k < least_leaf) continue;
      const auto n = static_cast<double>(k), m = static_cast<double>(sample.size() - k);
      const double loss = left_squares - left * left / n + right_squares - right * right / m;
      if (loss < best.loss) best = {d, (here + next) / 2, loss};
    }
  }

  void grow(std::vector<std::size_t> sample, std::vector<double> low, std::vector<double> high) {
    Split best;
    std::vector<std::size_t> order(dimensions_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    const std::size_t looked = (2 * dimensions_ + 2) / 3;  // coordinates that each split considers
    for (std::size_t k = 0; k < dimensions_ && (k < looked || std::isinf(best.loss)); ++k) look(sample, order[k], best);
    if (std::isinf(best.loss) || best.loss < 0) {
      leaves_.push_back({std::move(low), std::move(high), mean_of(sample)});
      return;
    }
    std::vector<std::size_t> left, right;
    for (const std::size_t i : sample) (rows_[i][best.dimension] < best.at ? left : right).push_back(i);
    std::vector<double> middle_high = high, middle_low = low;
    middle_high[best.dimension] = middle_low[best.dimension] = best.at;
    grow(std::move(left), std::move(low), std::move(middle_high));
    grow(std::move(right), std::move(middle_low), std::move(high));
  }

  /// Variance of the tree's prediction averaged over all other coordinates.
  double marginal_variance(std::size_t d, double mean) const {
    std::set<double> cuts;
    for (const LeafBox& leaf : leaves_) cuts.insert({leaf.low[d], leaf.high[d]});
    double variance = 0;
    for (auto at = cuts.begin(), next = std::next(at); next != cuts.end(); ++at, ++next) {
      double said = 0;
      for (const LeafBox& leaf : leaves_)
        if (leaf.low[d] <= *at && leaf.high[d] >= *next) said += leaf.mean * leaf.volume() / leaf.length(d);
      variance += (*next - *at) * (said - mean) * (said - mean);
    }
    return variance;
  }

  const Rows& rows_;
  const std::vector<double>& scores_;
  std::mt19937_64& random_;
  std::size_t dimensions_;
  std::vector<LeafBox> leaves_;
};

}  // namespace

std::vector<double> importance(const Rows& rows, const std::vector<double>& scores, std::uint64_t seed) {
  check(rows.size() == scores.size(), "importance", "{} rows and {} scores", rows.size(), scores.size());
  if (rows.size() < least_rows || rows[0].empty() || std::ranges::min(scores) == std::ranges::max(scores)) return {};
  std::mt19937_64 random(seed);
  std::vector<double> shares(rows[0].size(), 0.0);
  int counted = 0;
  for (int t = 0; t < trees; ++t) {
    std::vector<std::size_t> sample(rows.size());
    for (std::size_t& i : sample) i = random() % rows.size();  // with replacement
    counted += Tree(rows, scores, std::move(sample), random).add_shares(shares) ? 1 : 0;
  }
  if (counted == 0) return {};
  for (double& share : shares) share /= counted;
  return shares;
}

}  // namespace trireme

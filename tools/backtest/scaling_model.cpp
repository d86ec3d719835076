#include "tools/backtest/scaling_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace trireme {
namespace {

constexpr int points = 512;       ///< sample points of the prior's distribution of (a, k, l)
constexpr double spread = 0.003;  ///< standard deviation of e, the run-to-run variation

double normal_quantile(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return low;
}

/// Evenly spread points of a three-dimensional standard normal distribution, by Halton's sequence (1960).
const std::vector<std::array<double, 3>>& normal_points() {
  static const std::vector<std::array<double, 3>> all = [] {
    std::vector<std::array<double, 3>> z(points);
    for (int d = 0; d < 3; ++d)
      for (int i = 0; i < points; ++i) {
        const int base = std::array{2, 3, 5}[static_cast<std::size_t>(d)];
        double p = 0, digit = 1.0 / base;
        for (int left = i + 1; left > 0; left /= base, digit /= base) p += digit * (left % base);
        z[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)] = normal_quantile(p);
      }
    return z;
  }();
  return all;
}

double latency_of(Latency kind, double n) {
  return kind == Latency::ring ? 2 * (n - 1) : kind == Latency::tree ? std::log2(n) : 0;
}

/// Distribution of Student's t for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
double student(double t, int freedom) {
  const double angle = std::atan(t / std::sqrt(freedom)), cosine = std::cos(angle), sine = std::sin(angle);
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1, sum = freedom > 1 ? term : 0;
  for (int j = odd ? 3 : 2; j <= freedom - 2; j += 2) sum += term *= cosine * cosine * (j - 1) / j;
  const double two_sided = odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
  return (1 + two_sided) / 2;
}

/// Ratios of rows 1.. to row 0 of `rows`: their covariance (up to the family's factor) as a Cholesky factor.
class Contrasts {
 public:
  Contrasts(std::vector<const ScalingRow*> rows, const ScalingForm& form, const ScalingPrior& prior)
      : rows_(std::move(rows)), form_(form), factor_(dims() * dims()) {
    const double over_n = std::exp(2 * prior.over_size), over_b = std::exp(2 * prior.over_samples);
    const auto variogram = [&](const ScalingRow& a, const ScalingRow& b) {
      const auto walk = [&](double ratio) { return std::pow(std::abs(std::log2(ratio)), form_.smoothness); };
      return over_n * walk(static_cast<double>(a.size) / b.size) + over_b * walk(a.samples / b.samples) +
             (&a == &b ? 0 : 2 * spread * spread);
    };
    const ScalingRow& first = *rows_[0];
    for (std::size_t i = 0; i < dims(); ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        const ScalingRow &p = *rows_[i + 1], &q = *rows_[j + 1];
        double sum = (variogram(p, first) + variogram(q, first) - variogram(p, q)) / 2;
        for (std::size_t m = 0; m < j; ++m) sum -= factor(i, m) * factor(j, m);
        factor(i, j) = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / factor(j, j);
        if (i == j) half_log_determinant_ += std::log(factor(i, j));
      }
  }
  std::size_t dims() const { return rows_.size() - 1; }
  double& factor(std::size_t i, std::size_t j) { return factor_[i * dims() + j]; }
  double half_log_determinant() const { return half_log_determinant_; }

  /// Log of row i's time over row 0's by the formula.
  double log_ratio(std::size_t i, const std::array<double, 3>& akl) const {
    return std::log(samples(i, akl) / samples(0, akl));
  }
  double samples(std::size_t i, const std::array<double, 3>& akl) const {
    const ScalingRow& r = *rows_[i];
    const double n = r.size;
    return r.samples + akl[0] + akl[1] * 2 * (n - 1) / n + akl[2] * latency_of(form_.latency, n);
  }
  /// Whitened residuals of the first `known` contrasts; returns their sum of squares.
  double whiten(const std::array<double, 3>& akl, std::size_t known, std::vector<double>& z) {
    double squares = 0;
    for (std::size_t i = 0; i < known; ++i) {
      double rest = std::log(rows_[i + 1]->milliseconds / rows_[0]->milliseconds) - log_ratio(i + 1, akl);
      for (std::size_t m = 0; m < i; ++m) rest -= factor(i, m) * z[m];
      z[i] = rest / factor(i, i);
      squares += z[i] * z[i];
    }
    return squares;
  }

 private:
  std::vector<const ScalingRow*> rows_;
  ScalingForm form_;
  std::vector<double> factor_;
  double half_log_determinant_ = 0;
};

std::array<double, 3> parameters_at(const std::array<double, 3>& z, const ScalingPrior& prior,
                                    const ScalingForm& form) {
  std::array<double, 3> akl;
  for (std::size_t d = 0; d < 3; ++d) akl[d] = std::exp(prior.mean[d] + prior.deviation[d] * z[d]);
  if (form.latency == Latency::none) akl[2] = 0;
  return akl;
}

std::vector<const ScalingRow*> rows_of(const ScalingFamily& family, int count) {
  std::vector<const ScalingRow*> rows;
  for (int i = 0; i < count; ++i) rows.push_back(&family.rows[static_cast<std::size_t>(i)]);
  return rows;
}

using Points = std::vector<std::array<double, 3>>;
Points points_of(const ScalingPrior& prior, const ScalingForm& form) {
  Points all;
  for (const auto& z : normal_points()) all.push_back(parameters_at(z, prior, form));
  return all;
}

/// x to the power -n / 2, n above 0.
double half_power(double x, int n) {
  double product = n % 2 == 1 ? std::sqrt(x) : 1;
  for (int i = 0; i < n / 2; ++i) product *= x;
  return 1 / product;
}

/// Log density of the first `count` rows' ratios, averaged over the points of the prior.
double log_density(const ScalingFamily& family, int count, const ScalingForm& form, const ScalingPrior& prior,
                   const Points& at) {
  Contrasts contrasts(rows_of(family, count), form, prior);
  const std::size_t k = contrasts.dims();
  const double freedom = form.tail, power = -(freedom + static_cast<double>(k)) / 2;
  std::vector<double> z(k);
  double sum = 1e-300;
  for (const auto& akl : at)
    sum += half_power(1 + contrasts.whiten(akl, k, z) / freedom, form.tail + static_cast<int>(k));
  return std::log(sum / static_cast<double>(at.size())) - contrasts.half_log_determinant() + std::lgamma(-power) -
         std::lgamma(freedom / 2) - static_cast<double>(k) / 2 * std::log(freedom * std::numbers::pi);
}

/// Number of parameters that fit_prior() learns.
constexpr std::size_t learnt = 5;
using Learnt = std::array<double, learnt>;

Learnt learnt_of(const ScalingPrior& p) { return {p.mean[0], p.mean[1], p.mean[2], p.over_size, p.over_samples}; }
ScalingPrior prior_of(const Learnt& x) {
  return {.mean = {x[0], x[1], x[2]}, .deviation = ScalingPrior{}.deviation, .over_size = x[3], .over_samples = x[4]};
}

/// Local minimum of f near `start` by compass search: steps along each coordinate, then along the direction found. The
/// step is halved if neither reduces f.
template <class F>
Learnt hooke_jeeves(const Learnt& start, const F& f) {
  const auto explore = [&](Learnt from, double& least, double step) {
    for (double& coordinate : from)
      for (const double way : {step, -step}) {
        const double before = std::exchange(coordinate, coordinate + way);
        if (const double now = f(from); now < least) {
          least = now;
          break;
        }
        coordinate = before;
      }
    return from;
  };
  Learnt base = start;
  double least = f(base);
  for (double step = 0.5; step > 0.03;) {
    double found = least;
    Learnt next = explore(base, found, step);
    if (found >= least - 1e-4) step /= 2;
    while (found < least - 1e-4) {
      Learnt ahead = next;
      for (std::size_t i = 0; i < learnt; ++i) ahead[i] += next[i] - base[i];
      base = next;
      least = found;
      found = f(ahead);
      next = explore(ahead, found, step);
    }
  }
  return base;
}

}  // namespace

std::vector<ScalingForm> scaling_forms() {
  std::vector<ScalingForm> all;
  for (const Latency latency : {Latency::none, Latency::ring, Latency::tree})
    for (const double smoothness : {1.0, 1.5}) all.push_back({latency, smoothness, 1});
  return all;
}

double log_density(const ScalingFamily& family, const ScalingForm& form, const ScalingPrior& prior) {
  return log_density(family, static_cast<int>(family.rows.size()), form, prior, points_of(prior, form));
}

/// Start: a fixed part of 20 samples, bandwidth of 6. Latency is 1/64 per message of a ring, or 2 per level of a tree.
ScalingPrior start_of(const ScalingForm& form) {
  ScalingPrior prior;
  if (form.latency == Latency::tree) prior.mean[2] = 0.7;
  return prior;
}

ScalingPrior fit_prior(std::span<const ScalingFamily* const> families, const ScalingForm& form) {
  const Learnt start = learnt_of(start_of(form)), width = {1.5, 1.5, 1.5, 1, 1};
  return prior_of(hooke_jeeves(start, [&](const Learnt& x) {
    double badness = 0;
    for (std::size_t i = 0; i < learnt; ++i) badness += std::pow((x[i] - start[i]) / width[i], 2) / 2;
    const ScalingPrior prior = prior_of(x);
    const Points at = points_of(prior, form);
    for (const ScalingFamily* f : families)
      badness -= log_density(*f, static_cast<int>(f->rows.size()), form, prior, at);
    return badness;
  }));
}

namespace {

/// Mixture of Student's t distributions of log(row's time / first row's time).
struct Mixture {
  struct Part {
    double weight, centre, scale;
    int freedom;
  };
  std::vector<Part> parts;
  /// Adds the components of one form. Their weights sum to 1.
  void add(const ScalingFamily&, const ScalingRow& test, const ScalingMember&, const Points&);
  double quantile(double p) const;
};

void Mixture::add(const ScalingFamily& family, const ScalingRow& test, const ScalingMember& member, const Points& at) {
  std::vector<const ScalingRow*> rows = rows_of(family, family.calibration);
  rows.push_back(&test);
  Contrasts contrasts(rows, member.form, member.prior);
  const std::size_t known = contrasts.dims() - 1, begin = parts.size();
  const int tail = member.form.tail, freedom = tail + static_cast<int>(known);
  std::vector<double> z(known);
  double total = 0;
  for (const auto& akl : at) {
    const double squares = contrasts.whiten(akl, known, z);
    double centre = contrasts.log_ratio(known + 1, akl);
    for (std::size_t m = 0; m < known; ++m) centre += contrasts.factor(known, m) * z[m];
    const double scale = contrasts.factor(known, known) * std::sqrt((tail + squares) / freedom);
    parts.push_back({half_power(1 + squares / tail, freedom), centre, scale, freedom});
    total += parts.back().weight;
  }
  for (std::size_t i = begin; i < parts.size(); ++i) parts[i].weight /= total;
}

double Mixture::quantile(double p) const {
  double low = parts[0].centre, high = low, total = 0;
  for (const Part& part : parts) {
    low = std::min(low, part.centre - 5);
    high = std::max(high, part.centre + 5);
    total += part.weight;
  }
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    double below = 0;
    for (const Part& part : parts)
      if (part.weight > 1e-9) below += part.weight * student((middle - part.centre) / part.scale, part.freedom);
    (below < p * total ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::vector<ScalingPrediction> predict(const ScalingFamily& family, std::span<const ScalingMember> members) {
  std::vector<Mixture> mixtures(family.rows.size() - static_cast<std::size_t>(family.calibration));
  for (const ScalingMember& member : members) {
    const Points at = points_of(member.prior, member.form);
    for (std::size_t i = 0; i < mixtures.size(); ++i)
      mixtures[i].add(family, family.rows[static_cast<std::size_t>(family.calibration) + i], member, at);
  }
  std::vector<ScalingPrediction> all;
  for (const Mixture& mixture : mixtures) {
    const auto at = [&](double p) { return family.rows[0].milliseconds * std::exp(mixture.quantile(p)); };
    all.push_back({.milliseconds = at(0.5), .low = at(0.1), .high = at(0.9)});
  }
  return all;
}

}  // namespace trireme

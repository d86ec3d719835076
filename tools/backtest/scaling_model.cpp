#include "tools/backtest/scaling_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
namespace {

constexpr int points = POINTS;       ///< of the prior's distribution of (a, k, l)
constexpr double spread = 0.003;  ///< of e, run to run

double normal_quantile(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return low;
}

/// Points of a standard normal distribution in three dimensions, evenly spread: Halton's sequence (1960).
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
    const double over_n = std::exp(2 * prior.x[6]), over_b = std::exp(2 * prior.x[7]);
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
  for (std::size_t d = 0; d < 3; ++d) akl[d] = std::exp(prior.x[d] + std::exp(prior.x[d + 3]) * z[d]);
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

/// Log of the mean over the points of the density of the first `count` rows' ratios.
double log_density(const ScalingFamily& family, int count, const ScalingForm& form, const ScalingPrior& prior,
                   const Points& at) {
  Contrasts contrasts(rows_of(family, count), form, prior);
  const std::size_t k = contrasts.dims();
  const double freedom = form.tail, power = -(freedom + static_cast<double>(k)) / 2;
  std::vector<double> z(k);
  double sum = 1e-300;
  for (const auto& akl : at) sum += half_power(1 + contrasts.whiten(akl, k, z) / freedom, form.tail + static_cast<int>(k));
  return std::log(sum / static_cast<double>(at.size())) - contrasts.half_log_determinant() + std::lgamma(-power) -
         std::lgamma(freedom / 2) - static_cast<double>(k) / 2 * std::log(freedom * std::numbers::pi);
}

/// The minimum of f near start; coordinates `fixed` stay as they are. Steps along each coordinate, and on in the direction
/// that was found, halved where neither helps.
template <class F>
ScalingPrior hooke_jeeves(const ScalingPrior& start, const F& f, std::array<int, 2> fixed) {
  const auto explore = [&](ScalingPrior from, double& least, double step) {
    for (std::size_t i = 0; i < from.x.size(); ++i) {
      if (std::ranges::count(fixed, static_cast<int>(i)) > 0) continue;
      for (const double way : {step, -step}) {
        ScalingPrior other = from;
        other.x[i] += way;
        if (const double now = f(other); now < least) {
          from = other, least = now;
          break;
        }
      }
    }
    return from;
  };
  ScalingPrior base = start;
  double least = f(base);
  for (double step = 0.5; step > 0.03;) {
    double found = least;
    ScalingPrior next = explore(base, found, step);
    if (found >= least - 1e-4) {
      step /= 2;
      continue;
    }
    while (found < least - 1e-4) {
      ScalingPrior ahead = next;
      for (std::size_t i = 0; i < ahead.x.size(); ++i) ahead.x[i] += next.x[i] - base.x[i];
      base = next, least = found;
      found = f(ahead);
      next = explore(ahead, found, step);
    }
  }
  return base;
}

}  // namespace

std::string in_words(const ScalingForm& f) {
  return fmt::format("{}, walks of smoothness {}, tail {}",
                     f.latency == Latency::ring   ? "ring with latency"
                     : f.latency == Latency::tree ? "bandwidth and a tree's latency"
                                                  : "ring's bandwidth alone",
                     f.smoothness, f.tail);
}

double log_density(const ScalingFamily& family, const ScalingForm& form, const ScalingPrior& prior) {
  return log_density(family, static_cast<int>(family.rows.size()), form, prior, points_of(prior, form));
}

double log_density_of_predicted(const ScalingFamily& family, const ScalingForm& form, const ScalingPrior& prior) {
  const Points at = points_of(prior, form);
  return log_density(family, static_cast<int>(family.rows.size()), form, prior, at) -
         log_density(family, family.calibration, form, prior, at);
}

/// 20 samples of fixed part; 6 of bandwidth; of latency 1/64 for a message of a ring, 2 for a level of a tree.
ScalingPrior start_of(const ScalingForm& form) {
  ScalingPrior prior;
  if (form.latency == Latency::tree) prior.x[2] = 0.7;
  return prior;
}

ScalingPrior fit_prior(std::span<const ScalingFamily* const> families, const ScalingForm& form) {
  const ScalingPrior start = start_of(form);
  const std::array<double, ScalingPrior::count> width = {1.5, 1.5, 1.5, 0.5, 0.5, 0.5, 1, 1};
  const auto badness = [&](const ScalingPrior& prior) {
    double sum = 0;
    for (std::size_t i = 0; i < prior.x.size(); ++i) sum += std::pow((prior.x[i] - start.x[i]) / width[i], 2) / 2;
    const Points at = points_of(prior, form);
    for (const ScalingFamily* f : families) sum -= log_density(*f, static_cast<int>(f->rows.size()), form, prior, at);
    return sum;
  };
  return hooke_jeeves(start, badness, form.latency == Latency::none ? std::array{2, 5} : std::array{-1, -1});
}

std::vector<ScalingPrediction> predict(const ScalingFamily& family, const ScalingForm& form,
                                       const ScalingPrior& prior) {
  const Points at = points_of(prior, form);
  std::vector<ScalingPrediction> all;
  for (std::size_t test = static_cast<std::size_t>(family.calibration); test < family.rows.size(); ++test) {
    std::vector<const ScalingRow*> rows = rows_of(family, family.calibration);
    rows.push_back(&family.rows[test]);
    Contrasts contrasts(rows, form, prior);
    const std::size_t known = contrasts.dims() - 1;
    const int freedom = form.tail + static_cast<int>(known);
    std::vector<double> z(known + 1), weight, centre, scale;
    double total = 0;
    for (const auto& akl : at) {
      const double squares = contrasts.whiten(akl, known, z);
      double mean = contrasts.log_ratio(known + 1, akl);
      for (std::size_t m = 0; m < known; ++m) mean += contrasts.factor(known, m) * z[m];
      centre.push_back(mean);
      scale.push_back(contrasts.factor(known, known) * std::sqrt((form.tail + squares) / freedom));
      weight.push_back(half_power(1 + squares / form.tail, freedom));
      total += weight.back();
    }
    const auto quantile = [&](double p) {
      double low = std::ranges::min(centre) - 5, high = std::ranges::max(centre) + 5;
      for (int i = 0; i < 40; ++i) {
        const double middle = (low + high) / 2;
        double below = 0;
        for (std::size_t s = 0; s < weight.size(); ++s)
          below += weight[s] * student((middle - centre[s]) / scale[s], freedom);
        (below < p * total ? low : high) = middle;
      }
      return family.rows[0].milliseconds * std::exp(low);
    };
    all.push_back({quantile(0.5), quantile(0.1), quantile(0.9)});
  }
  return all;
}

}  // namespace trireme

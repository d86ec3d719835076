#include "tools/study/tpe.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
namespace {

constexpr double best_share = 0.15;  // share of trials in density l: the paper's gamma
constexpr int candidates = 24;

double normal_mass(double below) { return 0.5 * std::erfc(-below / std::numbers::sqrt2); }

}  // namespace

Parzen::Parzen(std::vector<double> places) {
  std::ranges::sort(places);
  const double least = 1.0 / std::min(100.0, 1.0 + static_cast<double>(places.size()));
  const auto add = [&](double centre, double width) {
    bells_.push_back({centre, width, normal_mass((1 - centre) / width) - normal_mass(-centre / width)});
  };
  add(0.5, 1);  // the prior
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double left = places[i] - (i > 0 ? places[i - 1] : 0),
                 right = (i + 1 < places.size() ? places[i + 1] : 1) - places[i];
    add(places[i], std::clamp(std::max(left, right), least, 1.0));
  }
}

double Parzen::draw(std::mt19937_64& dice) const {
  const Bell& bell =
      bells_[std::min(bells_.size() - 1, static_cast<std::size_t>(uniform(dice) * static_cast<double>(bells_.size())))];
  for (;;) {  // at least a third of the normal distribution is within the bounds
    const double radius = std::sqrt(-2 * std::log(1 - uniform(dice)));
    const double place = bell.centre + bell.width * radius * std::cos(2 * std::numbers::pi * uniform(dice));
    if (place >= 0 && place <= 1) return place;
  }
}

double Parzen::log_density(double place) const {
  double sum = 0;
  for (const Bell& b : bells_) {
    const double z = (place - b.centre) / b.width;
    sum += std::exp(-z * z / 2) / (b.width * b.mass);
  }
  const double norm = static_cast<double>(bells_.size()) * std::sqrt(2 * std::numbers::pi);
  return std::log(std::max(sum / norm, 1e-300));
}

double Tpe::draw(std::size_t i, std::span<const TrialState* const> good, std::span<const TrialState* const> rest,
                 std::mt19937_64& dice) const {
  const Parameter& p = space()[i];
  const auto values_of = [&](std::span<const TrialState* const> of) {
    std::vector<double> values;
    for (const TrialState* t : of)
      if (!std::isnan(t->point[i])) values.push_back(t->point[i]);
    return values;
  };
  if (p.kind == Parameter::Kind::choice) {  // counts of values, each plus one
    const auto share = [&](const std::vector<double>& values, double v) {
      return (static_cast<double>(std::ranges::count(values, v)) + 1) /
             (static_cast<double>(values.size()) + p.high + 1);
    };
    const auto l = values_of(good), g = values_of(rest);
    double best = 0, best_ratio = -1;
    for (int c = 0; c < candidates; ++c) {
      double left = uniform(dice), v = 0;
      while (v < p.high && (left -= share(l, v)) > 0) ++v;
      if (const double ratio = share(l, v) / share(g, v); ratio > best_ratio) {
        best = v;
        best_ratio = ratio;
      }
    }
    return best;
  }
  const auto places_of = [&](std::vector<double> values) {
    for (double& v : values) v = p.place(v);
    return values;
  };
  const Parzen l(places_of(values_of(good))), g(places_of(values_of(rest)));
  double best = 0, best_ratio = TrialState::worst;
  for (int c = 0; c < candidates; ++c) {
    const double value = p.at(l.draw(dice)), place = p.place(value);
    if (const double ratio = l.log_density(place) - g.log_density(place); ratio > best_ratio) {
      best = value;
      best_ratio = ratio;
    }
  }
  return best;
}

Point Tpe::next(int number) const {
  std::vector<const TrialState*> scored, rest;
  for (const TrialState& t : trials()) (t.is_open() ? rest : scored).push_back(&t);
  if (number <= options().startup || scored.empty()) return random_point(number);
  std::ranges::stable_sort(scored, std::greater(), [](const TrialState* t) {
    return t->status == TrialStatus::failed ? TrialState::worst : t->last();
  });
  const auto split = static_cast<std::size_t>(std::ceil(best_share * static_cast<double>(scored.size())));
  rest.insert(rest.end(), scored.begin() + static_cast<std::ptrdiff_t>(split), scored.end());
  std::mt19937_64 random = dice(number);
  Point point(space().size(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < space().size(); ++i)
    if (space().applies(point, i)) point[i] = draw(i, std::span(scored).first(split), rest, random);
  return point;
}

}  // namespace trireme

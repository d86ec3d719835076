#include "tools/backtest/backtest.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <thread>

#include "kernels/core/error.h"

namespace trireme {
namespace {

bool has_predictions(const ScalingFamily& f) { return f.calibration < static_cast<int>(f.rows.size()); }

std::vector<const ScalingFamily*> others(const ScalingTable& table, const ScalingFamily& but, LeaveOut leave_out) {
  std::vector<const ScalingFamily*> all;
  for (const ScalingFamily& f : table.families)
    if (&f != &but && (leave_out == LeaveOut::family || but.submitter.empty() || f.submitter != but.submitter))
      all.push_back(&f);
  check(all.size() >= 3, ErrorKind::data, "simulate --backtest",
        "{}: {} other families to learn from, expected at least three; add rows of other families", but.name,
        all.size());
  return all;
}

BacktestFamily predicted(const ScalingFamily& family, const std::vector<const ScalingFamily*>& evidence) {
  BacktestFamily result;
  result.family = family;
  for (const ScalingForm& form : scaling_forms()) result.members.push_back({form, fit_prior(evidence, form)});
  const std::vector<ScalingPrediction> times = predict(family, result.members);
  for (std::size_t i = 0; i < times.size(); ++i)
    result.points.push_back(
        {.row = family.rows[static_cast<std::size_t>(family.calibration) + i], .predicted = times[i]});
  for (std::size_t b = 0; b < baselines.size(); ++b) {
    const std::vector<double> simple = predict(family, baselines[b]);
    for (std::size_t i = 0; i < simple.size(); ++i) result.points[i].baseline[b] = simple[i];
  }
  return result;
}

template <class Error>
ErrorTotals totals_over(const Backtest& test, Error error) {
  std::vector<double> all;
  for (const BacktestFamily& f : test.families)
    for (const BacktestPoint& p : f.points) all.push_back(error(p));
  return totals_of(std::move(all));
}

}  // namespace

ErrorTotals totals_of(std::vector<double> errors) {
  for (double& e : errors) e = std::abs(e);
  std::ranges::sort(errors);
  const auto percentile = [&](double share) {
    const double at = share * static_cast<double>(errors.size() - 1), low = std::floor(at);
    const auto i = static_cast<std::size_t>(low);
    return errors[i] + (at - low) * (errors[std::min(i + 1, errors.size() - 1)] - errors[i]);
  };
  ErrorTotals t{.points = static_cast<int>(errors.size())};
  if (errors.empty()) return t;
  for (const double e : errors) t.mean += e / static_cast<double>(errors.size());
  t.median = percentile(0.5);
  t.p90 = percentile(0.9);
  t.largest = errors.back();
  return t;
}

ErrorTotals Backtest::totals() const {
  return totals_over(*this, [](const BacktestPoint& p) { return p.error(); });
}

ErrorTotals Backtest::baseline_totals(std::size_t i) const {
  return totals_over(*this, [&](const BacktestPoint& p) { return p.baseline_error(i); });
}

double Backtest::coverage() const {
  return totals_over(*this, [](const BacktestPoint& p) { return p.inside() ? 1.0 : 0.0; }).mean;
}

Backtest backtest(const ScalingTable& table, LeaveOut leave_out) {
  Backtest test;
  test.evidence = static_cast<int>(table.families.size());
  test.left_out = table.left_out;
  test.leave_out = leave_out;
  std::vector<const ScalingFamily*> asked;
  for (const ScalingFamily& f : table.families)
    if (has_predictions(f)) asked.push_back(&f);
  check(!asked.empty(), ErrorKind::data, "simulate --backtest",
        "no family has three or more sizes: two sizes calibrate, so no size is left to predict; add a size");
  test.families.resize(asked.size());
  std::vector<std::exception_ptr> failed(asked.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < asked.size();) try {
        test.families[i] = predicted(*asked[i], others(table, *asked[i], leave_out));
      } catch (...) { failed[i] = std::current_exception(); }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
  return test;
}

}  // namespace trireme

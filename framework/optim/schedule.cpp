#include "framework/optim/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/core/error.h"

namespace trireme {
namespace {

/// From `from` (share 0) to `to` (share 1) along half a cosine.
double cosine_between(double from, double to, double share) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
}

void positive(std::string_view schedule, std::int64_t steps) {
  check(steps > 0, schedule, "the schedule has {} steps, expected at least 1", steps);
}

}  // namespace

Schedule::Schedule(double constant)
    : fn_([constant](std::int64_t) { return constant; }), text_(fmt::format("{}", constant)) {}
Schedule::Schedule(std::function<double(std::int64_t)> fn, std::string text)
    : fn_(std::move(fn)), text_(std::move(text)) {
  check(bool(fn_), "schedule", "the function is empty, expected one from the step to a learning rate");
}
std::string Schedule::text() const { return text_.empty() ? fmt::format("a function, {} at step 0", fn_(0)) : text_; }

Schedule step_decay(double base, std::int64_t every, double factor) {
  positive("step_decay", every);
  return Schedule([=](std::int64_t step) { return base * std::pow(factor, static_cast<double>(step / every)); },
                  fmt::format("step_decay({}, every={}, factor={})", base, every, factor));
}

Schedule milestones(double base, std::vector<std::int64_t> at, double factor) {
  std::sort(at.begin(), at.end());
  return Schedule(
      [=](std::int64_t step) {
        const auto passed = std::upper_bound(at.begin(), at.end(), step) - at.begin();
        return base * std::pow(factor, static_cast<double>(passed));
      },
      fmt::format("milestones({}, at={}, factor={})", base, at, factor));
}

Schedule exponential(double base, double factor) {
  return Schedule([=](std::int64_t step) { return base * std::pow(factor, static_cast<double>(step)); },
                  fmt::format("exponential({}, factor={})", base, factor));
}

Schedule cosine(double base, std::int64_t steps, double min_lr) {
  positive("cosine", steps);
  return Schedule(
      [=](std::int64_t step) {
        return cosine_between(base, min_lr, static_cast<double>(std::min(step, steps)) / static_cast<double>(steps));
      },
      fmt::format("cosine({}, steps={}, min_lr={})", base, steps, min_lr));
}

Schedule cosine_restarts(double base, std::int64_t steps, std::int64_t times, double min_lr) {
  positive("cosine_restarts", steps);
  check(times >= 1, "cosine_restarts", "times is {}, expected at least 1", times);
  return Schedule(
      [=](std::int64_t step) {
        std::int64_t length = steps;
        for (; step >= length; length *= times) {
          step -= length;
          if (times == 1) step %= length;
        }
        return cosine_between(base, min_lr, static_cast<double>(step) / static_cast<double>(length));
      },
      fmt::format("cosine_restarts({}, steps={}, times={}, min_lr={})", base, steps, times, min_lr));
}

Schedule linear(double from, double to, std::int64_t steps) {
  positive("linear", steps);
  return Schedule(
      [=](std::int64_t step) {
        return from + (to - from) * static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
      },
      fmt::format("linear({}, {}, steps={})", from, to, steps));
}

Schedule Schedule::then(std::int64_t steps, Schedule next) const {
  check(steps >= 0, "schedule", "the next schedule begins at step {}, expected at least 0", steps);
  return Schedule([=, first = *this](std::int64_t step) { return step < steps ? first(step) : next(step - steps); },
                  fmt::format("{}.then({}, {})", text(), steps, next.text()));
}

Schedule polynomial(double base, std::int64_t steps, double power, double min_lr) {
  positive("polynomial", steps);
  return Schedule(
      [=](std::int64_t step) {
        const double left = 1 - static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
        return min_lr + (base - min_lr) * std::pow(left, power);
      },
      fmt::format("polynomial({}, steps={}, power={}, min_lr={})", base, steps, power, min_lr));
}

Schedule one_cycle(double peak, std::int64_t steps, double warm_share) {
  positive("one_cycle", steps);
  check(warm_share >= 0 && warm_share <= 1, "one_cycle", "warm_share is {}, expected 0 to 1", warm_share);
  const double start = peak / 25, end = start / 1e4;  // PyTorch's div_factor and final_div_factor
  const double top = warm_share * static_cast<double>(steps) - 1, last = static_cast<double>(steps) - 1;
  return Schedule(
      [=](std::int64_t step) {
        const double t = std::min(static_cast<double>(step), last);
        if (t <= top) return cosine_between(start, peak, top > 0 ? t / top : 1);
        return cosine_between(peak, end, last > top ? (t - top) / (last - top) : 1);
      },
      fmt::format("one_cycle({}, steps={}, warm_share={})", peak, steps, warm_share));
}

Schedule warm_up(Schedule rate, std::int64_t steps, double start_factor) {
  check(steps >= 0, "warm_up", "the warm-up has {} steps, expected at least 0", steps);
  return Schedule(
      [=](std::int64_t step) {
        if (step >= steps) return rate(step);
        const double share = static_cast<double>(step) / static_cast<double>(steps);
        return rate(0) * (start_factor + (1 - start_factor) * share);
      },
      fmt::format("warm_up({}, steps={}, start_factor={})", rate.text(), steps, start_factor));
}

}  // namespace trireme

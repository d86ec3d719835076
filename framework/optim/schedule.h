// Learning-rate schedules: pure functions of the optimizer step, so that nothing about them needs saving.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// A number, or a function of the step (0 before the first update).
class Schedule {
 public:
  Schedule(double constant);                                                // NOLINT: implicit
  Schedule(std::function<double(std::int64_t)> fn) : fn_(std::move(fn)) {}  // NOLINT: implicit
  Schedule(std::function<double(std::int64_t)> fn, std::string text) : fn_(std::move(fn)), text_(std::move(text)) {}
  double operator()(std::int64_t step) const { return fn_(step); }
  /// "0.1", "cosine(0.1, steps=100, min_lr=0)"; of a function that came without a text its value for step 0.
  std::string text() const;

 private:
  std::function<double(std::int64_t)> fn_;
  std::string text_;
};

Schedule step_decay(double base, std::int64_t every, double factor);
Schedule milestones(double base, std::vector<std::int64_t> at, double factor);
Schedule exponential(double base, double factor);  ///< base * factor^step
Schedule cosine(double base, std::int64_t steps,
                double min_lr = 0);  ///< Loshchilov & Hutter (arXiv 1608.03983), no restarts
Schedule polynomial(double base, std::int64_t steps, double power, double min_lr = 0);
Schedule one_cycle(double peak, std::int64_t steps,
                   double warm_share = 0.3);  ///< Smith & Topin (arXiv 1708.07120), as in PyTorch
/// Ramps linearly from start_factor * rate(0) over `steps`, then follows rate (Goyal et al., arXiv
/// 1706.02677).
Schedule warm_up(Schedule rate, std::int64_t steps, double start_factor = 0);

}  // namespace trireme

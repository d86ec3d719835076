// Learning-rate schedules: pure functions of the optimizer step, so that checkpoints need no state for them.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

/// A number, or a function of the step (0 before the first update).
class Schedule {
 public:
  /// The same rate at every step. The value is not checked here (Optimizer::rate() does).
  Schedule(double constant);  // NOLINT: implicit
  /// A function of the step. text: what text() returns, which ranks compare; if empty, the value at step 0. Throws
  /// Error for an empty fn.
  Schedule(std::function<double(std::int64_t)> fn, std::string text = "");  // NOLINT: implicit
  /// Any callable with this signature: Sgd{.lr = [](std::int64_t step) { return 0.1 / (1 + 0.01 * step); }}.
  template <class F>
  requires(!std::same_as<F, Schedule> && std::is_invocable_r_v<double, const F&, std::int64_t>) Schedule(F fn)
      : Schedule(std::function<double(std::int64_t)>(std::move(fn))) {}  // NOLINT: implicit
  /// Learning rate of the update that follows `step` updates.
  double operator()(std::int64_t step) const { return fn_(step); }
  /// This schedule before step `steps`, then next(step - steps): linear(0, 0.1, 5).then(5, cosine(0.1, 95)) (torch's
  /// SequentialLR). Throws Error for steps < 0.
  Schedule then(std::int64_t steps, Schedule next) const;
  /// "0.1", "cosine(0.1, steps=100, min_lr=0)"; for a function without a text, its value at step 0.
  std::string text() const;

 private:
  std::function<double(std::int64_t)> fn_;
  std::string text_;
};

/// base * factor^floor(step / every). Throws Error for every < 1.
Schedule step_decay(double base, std::int64_t every, double factor);
/// base * factor^k, where k is the number of entries of `at` (in steps) that are <= step.
Schedule milestones(double base, std::vector<std::int64_t> at, double factor);
Schedule exponential(double base, double factor);  ///< base * factor^step
/// min_lr + (base - min_lr) (1 + cos(pi t)) / 2 with t = min(step / steps, 1) (Loshchilov and Hutter, arXiv 1608.03983,
/// without restarts). Throws Error for steps < 1.
Schedule cosine(double base, std::int64_t steps, double min_lr = 0);
/// cosine() with restarts: the first cycle has `steps` steps, each later one `times` as many as the one before
/// (CosineAnnealingWarmRestarts; arXiv 1608.03983). Throws Error for steps < 1 and times < 1.
Schedule cosine_restarts(double base, std::int64_t steps, std::int64_t times = 1, double min_lr = 0);
/// from + (to - from) t with t = min(step / steps, 1). Throws Error for steps < 1. nanoGPT's schedule is linear(lr / (w
/// + 1), lr, w).then(w, cosine(lr, decay - w, min_lr)). timm's, with warmup_prefix, is linear(init, lr, w).then(w,
/// cosine(lr, n, min_lr)).
Schedule linear(double from, double to, std::int64_t steps);
/// min_lr + (base - min_lr) (1 - t)^power with t = min(step / steps, 1). Throws Error for steps < 1.
Schedule polynomial(double base, std::int64_t steps, double power, double min_lr = 0);
/// One-cycle policy (Smith and Topin, arXiv 1708.07120), as PyTorch's OneCycleLR without its momentum: half a cosine
/// from peak / 25 to peak in warm_share of the steps, then half a cosine down to peak / 250000. Throws Error for steps
/// < 1 and for warm_share outside [0, 1].
Schedule one_cycle(double peak, std::int64_t steps, double warm_share = 0.3);
/// rate(0) (start_factor + (1 - start_factor) step / steps) before step `steps`, then rate(step) (Goyal et al., arXiv
/// 1706.02677). Throws Error for steps < 0.
Schedule warm_up(Schedule rate, std::int64_t steps, double start_factor = 0);

}  // namespace trireme

// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", arXiv 1710.03740): f16 loses gradients below
// 6e-8, so backward starts from a multiple of the loss, and updates divide by it. The factor is halved when a gradient
// overflows (that step updates nothing) and doubled after 2000 steps without overflow.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trireme {

/// The state of loss scaling, for checkpoints.
struct LossScaleState {
  double scale = 1;                                        ///< factor of the loss
  std::int64_t good_steps = 0;                             ///< steps without overflow since the scale last changed
  bool operator==(const LossScaleState&) const = default;  ///< equal numbers
};

/// The factor of the loss, within [1, 2^24] once see() has changed it (torch.amp.GradScaler: backoff 1/2, growth 2).
class LossScale {
 public:
  static constexpr std::int64_t period = 2000;               ///< good steps after which the scale doubles
  explicit LossScale(double start = 0) : scale_(start) {}    ///< start: the first factor; 0: scaling is off
  bool on() const { return scale_ > 0; }                     ///< whether losses are scaled
  double value() const { return on() ? scale_ : 1; }         ///< factor of the next step's loss; 1 when off
  LossScaleState state() const { return {value(), good_}; }  ///< for a checkpoint
  /// Resumes from a checkpoint; a scale above 0 turns scaling on.
  void set(const LossScaleState& state) {
    scale_ = state.scale;
    good_ = state.good_steps;
  }
  /// Sets a new factor and resets the count of good steps.
  void set(double scale) { set(LossScaleState{.scale = scale}); }
  /// Call after each step's gradients if scaling is on. finite: whether the gradients of all ranks are finite; equal on
  /// all ranks. Returns whether the gradients may be used.
  bool see(bool finite) {
    if (!finite) {
      set(std::max(scale_ / 2, 1.0));
      return false;
    }
    if (++good_ == period) set(std::min(scale_ * 2, most));
    return true;
  }

 private:
  static constexpr double most = 0x1p24;
  double scale_;
  std::int64_t good_ = 0;
};

}  // namespace trireme

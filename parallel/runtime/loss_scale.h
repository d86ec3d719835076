// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", arXiv 1710.03740): f16 loses gradients below
// 6e-8, so backward starts from a multiple of the loss, and updates divide by it. The multiple is halved when a
// gradient overflows (that step updates nothing) and doubled when none has for a while.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trireme {

/// Where loss scaling stands, for checkpoints.
struct LossScaleState {
  double scale = 1;                                        ///< gradients are those of so many times the loss
  std::int64_t good_steps = 0;                             ///< without an overflow since the scale last changed
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
  /// Goes on from a checkpoint; a scale above 0 turns scaling on.
  void set(const LossScaleState& state) { scale_ = state.scale, good_ = state.good_steps; }
  /// A new factor; the count of good steps begins anew.
  void set(double scale) { set(LossScaleState{.scale = scale}); }
  /// After each step's gradients, where scaling is on; finite: whether those of all ranks are, the same on all. Returns
  /// whether they may be used.
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

// Division by numbers that the host knows: kernels take places of tensors apart with it.
#pragma once
#include <algorithm>
#include <bit>

#include "kernels/core/view.h"

namespace trireme::gpu {

/// Divides numbers below 2^31 by one from 1 to 2^31: a multiplication and a shift (Granlund and Montgomery, "Division
/// by invariant integers using multiplication", PLDI'94).
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(Index d) {
    const auto by = static_cast<std::uint64_t>(std::max<Index>(d, 1));
    shift_ = static_cast<unsigned>(std::bit_width(by - 1));
    magic_ = static_cast<unsigned>(((std::uint64_t{1} << shift_) - by) * (std::uint64_t{1} << 32) / by + 1);
    by_ = static_cast<unsigned>(by);
  }
  constexpr unsigned quotient(unsigned n) const {
    return (static_cast<unsigned>(std::uint64_t{n} * magic_ >> 32) + n) >> shift_;
  }
  constexpr unsigned by() const { return by_; }
  /// Leaves the quotient in n and returns the rest.
  constexpr unsigned split(unsigned& n) const {
    const unsigned all = n;
    n = quotient(n);
    return all - n * by_;
  }

 private:
  unsigned by_ = 1, magic_ = 1, shift_ = 0;
};

/// Divides any number that is not negative by one from 1 on: as a Divisor where both are below 2^31.
class LongDivisor {
 public:
  LongDivisor() = default;
  explicit LongDivisor(Index d) : by_(d), small_(d < most ? d : 1) {}
  constexpr Index by() const { return by_; }
  constexpr Index quotient(Index n) const {
    return n < most && by_ < most ? static_cast<Index>(small_.quotient(static_cast<unsigned>(n))) : n / by_;
  }

 private:
  static constexpr Index most = Index{1} << 31;
  Index by_ = 1;
  Divisor small_;
};

}  // namespace trireme::gpu

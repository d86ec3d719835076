// ExactSum: a sum of doubles without rounding. The result does not depend, in any bit, on the order of additions or
// their division among ranks (a long accumulator: Kulisch, "Computer Arithmetic and Validity", 2008).
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace trireme {

class ExactSum {
 public:
  static constexpr int digits = 71;  ///< number of 32-bit digits, from 2^-1152 on

  void add(double value);           ///< adds a number
  void add(const ExactSum& other);  ///< adds another sum
  /// The sum, within one unit in the last place; it depends only on the exact sum. NaN and infinities as in ordinary
  /// sums.
  double value() const;

  /// The sum as integers, each exact in a double. Add the parts of many sums elementwise; from_parts() then gives the
  /// total.
  std::array<double, digits + 3> parts() const;
  static ExactSum from_parts(std::span<const double, digits + 3>);  ///< see parts()

 private:
  void carry();
  std::array<std::int64_t, digits> digits_{};  // all but the last are in [0, 2^32) after carry()
  std::int64_t added_ = 0;                     // numbers added since carry(), which prevents overflow of digits_
  std::array<std::int64_t, 3> odd_{};          // how often NaN, infinity and -infinity were added
};

}  // namespace trireme

// ExactSum: a sum of doubles without rounding, so that neither the order of what is added nor how it is divided among
// ranks changes a bit of the result (a long accumulator: Kulisch, "Computer Arithmetic and Validity", 2008).
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace trireme {

class ExactSum {
 public:
  static constexpr int digits = 71;  ///< of 32 bits, from 2^-1152 on

  void add(double value);
  void add(const ExactSum& other);
  /// Within one unit in the last place; a function of the exact sum alone. NaN and infinities as adding gives them.
  double value() const;

  /// The sum as integers, each exact in a double: of such numbers of many sums, added one by one, from_parts() makes
  /// the sum of the sums.
  std::array<double, digits + 3> parts() const;
  static ExactSum from_parts(std::span<const double, digits + 3>);

 private:
  void carry();
  std::array<std::int64_t, digits> digits_{};  // those below the last lie in [0, 2^32) after carry()
  std::int64_t added_ = 0;                     // since carry(), which keeps digits_ from overflow
  std::array<std::int64_t, 3> odd_{};          // how often NaN, infinity, -infinity were added
};

}  // namespace trireme

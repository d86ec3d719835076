#include "framework/metrics/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme {
namespace {
constexpr int lowest = 1152;  // the first digit counts 2^-lowest
constexpr std::int64_t base = std::int64_t{1} << 32;
}  // namespace

void ExactSum::add(double value) {
  if (!std::isfinite(value)) return void(++odd_[std::isnan(value) ? 0 : value > 0 ? 1 : 2]);
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  const int at = exponent - 53 + lowest;  // the mantissa's lowest bit, from the first digit's
  const auto shift = static_cast<unsigned>(at % 32);
  const std::uint64_t low = (mantissa & 0xffffffff) << shift, high = (mantissa >> 32) << shift;
  const std::int64_t sign = value < 0 ? -1 : 1;
  std::int64_t* digit = &digits_[static_cast<std::size_t>(at / 32)];
  digit[0] += sign * static_cast<std::int64_t>(low & 0xffffffff);
  digit[1] += sign * static_cast<std::int64_t>((low >> 32) + (high & 0xffffffff));
  digit[2] += sign * static_cast<std::int64_t>(high >> 32);
  if (++added_ == std::int64_t{1} << 28) carry();
}

void ExactSum::add(const ExactSum& other) {
  ExactSum more = other;
  more.carry();
  carry();
  for (std::size_t i = 0; i < digits_.size(); ++i) digits_[i] += more.digits_[i];
  for (std::size_t i = 0; i < odd_.size(); ++i) odd_[i] += more.odd_[i];
  carry();
}

void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < digits_.size(); ++i) {
    const std::int64_t up = digits_[i] >> 32;  // rounds down: the digit left is not negative
    digits_[i] -= up * base;
    digits_[i + 1] += up;
  }
  added_ = 0;
}

double ExactSum::value() const {
  if (odd_[0] > 0 || (odd_[1] > 0 && odd_[2] > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (odd_[1] + odd_[2] > 0) return (odd_[1] > 0 ? 1 : -1) * std::numeric_limits<double>::infinity();
  ExactSum sum = *this;
  sum.carry();
  const bool negative = sum.digits_.back() < 0;
  if (negative) {
    for (std::int64_t& digit : sum.digits_) digit = -digit;
    sum.carry();
  }
  double value = 0;  // from the smallest digit up, so that the last two additions alone may round
  for (std::size_t i = 0; i < sum.digits_.size(); ++i)
    value += std::ldexp(static_cast<double>(sum.digits_[i]), 32 * static_cast<int>(i) - lowest);
  return negative ? -value : value;
}

std::array<double, ExactSum::digits + 3> ExactSum::parts() const {
  ExactSum sum = *this;
  sum.carry();
  std::array<double, digits + 3> all{};
  const auto rest = std::ranges::transform(sum.digits_, all.begin(), [](auto d) { return static_cast<double>(d); }).out;
  std::ranges::transform(odd_, rest, [](auto count) { return static_cast<double>(count); });
  return all;
}

ExactSum ExactSum::from_parts(std::span<const double, digits + 3> parts) {
  ExactSum sum;
  for (std::size_t i = 0; i < sum.digits_.size(); ++i) sum.digits_[i] = static_cast<std::int64_t>(parts[i]);
  for (std::size_t i = 0; i < sum.odd_.size(); ++i) sum.odd_[i] = static_cast<std::int64_t>(parts[digits + i]);
  sum.carry();
  return sum;
}

}  // namespace trireme

#include "tools/study/sobol.h"

#include <array>
#include <bit>

#include "kernels/core/random.h"

namespace trireme {
namespace {

constexpr int bits = 32;

/// A dimension's primitive polynomial (degree, inner coefficients) and first direction numbers.
struct Row {
  int degree;
  std::uint32_t coefficients;
  std::array<std::uint32_t, 7> first;
};
/// From the second dimension on: new-joe-kuo-6.21201, web.maths.unsw.edu.au/~fkuo/sobol.
constexpr Row rows[] = {{1, 0, {1}},
                        {2, 1, {1, 3}},
                        {3, 1, {1, 3, 1}},
                        {3, 2, {1, 1, 1}},
                        {4, 1, {1, 1, 3, 3}},
                        {4, 4, {1, 3, 5, 13}},
                        {5, 2, {1, 1, 5, 5, 17}},
                        {5, 4, {1, 1, 5, 5, 5}},
                        {5, 7, {1, 1, 7, 11, 19}},
                        {5, 11, {1, 1, 5, 1, 1}},
                        {5, 13, {1, 1, 1, 3, 11}},
                        {5, 14, {1, 3, 5, 5, 31}},
                        {6, 1, {1, 3, 3, 9, 7, 49}},
                        {6, 13, {1, 1, 1, 15, 21, 21}},
                        {6, 16, {1, 3, 1, 13, 27, 49}},
                        {6, 19, {1, 1, 1, 15, 7, 5}},
                        {6, 22, {1, 3, 1, 15, 13, 25}},
                        {6, 25, {1, 1, 5, 5, 19, 61}},
                        {7, 1, {1, 3, 7, 11, 23, 15, 103}},
                        {7, 4, {1, 3, 7, 13, 13, 15, 69}},
                        {7, 7, {1, 1, 3, 13, 7, 35, 63}},
                        {7, 8, {1, 3, 5, 9, 1, 25, 53}},
                        {7, 14, {1, 3, 1, 13, 9, 35, 107}},
                        {7, 19, {1, 3, 1, 5, 27, 61, 31}},
                        {7, 21, {1, 1, 5, 11, 19, 41, 61}},
                        {7, 28, {1, 3, 5, 3, 3, 13, 69}},
                        {7, 31, {1, 1, 7, 13, 1, 19, 1}},
                        {7, 32, {1, 3, 7, 5, 13, 19, 59}},
                        {7, 37, {1, 1, 3, 9, 25, 29, 41}},
                        {7, 41, {1, 3, 5, 13, 23, 1, 55}},
                        {7, 42, {1, 3, 7, 3, 13, 59, 17}}};
static_assert(std::size(rows) == Sobol::most - 1);

/// Flips each bit, from the highest down, depending on a hash of the higher bits.
std::uint32_t scrambled(std::uint32_t x, std::uint64_t key) {
  std::uint32_t out = 0;
  for (int bit = bits - 1; bit >= 0; --bit) {
    const std::uint64_t above = bit == bits - 1 ? 0 : x >> (bit + 1);
    const std::uint64_t flip = mix(mix(key, static_cast<std::uint64_t>(bit)), above) & 1;
    out |= (((x >> bit) & 1u) ^ static_cast<std::uint32_t>(flip)) << bit;
  }
  return out;
}

}  // namespace

Sobol::Sobol(std::size_t dimensions) {
  check(dimensions <= most, "sobol", "{} dimensions, of {} at most", dimensions, most);
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::vector<std::uint32_t> v(bits);
    if (d == 0) {
      for (int i = 0; i < bits; ++i) v[static_cast<std::size_t>(i)] = 1u << (bits - 1 - i);
      directions_.push_back(std::move(v));
      continue;
    }
    const Row& row = rows[d - 1];
    const auto s = static_cast<std::size_t>(row.degree);
    for (std::size_t i = 0; i < bits; ++i) {
      if (i < s) {
        v[i] = row.first[i] << (bits - 1 - i);
        continue;
      }
      v[i] = v[i - s] ^ (v[i - s] >> s);
      for (std::size_t k = 1; k < s; ++k)
        if (((row.coefficients >> (s - 1 - k)) & 1u) != 0) v[i] ^= v[i - k];
    }
    directions_.push_back(std::move(v));
  }
}

std::vector<double> Sobol::at(std::uint32_t index, std::uint64_t scramble) const {
  const std::uint32_t gray = index ^ (index >> 1);
  std::vector<double> point;
  for (std::size_t d = 0; d < directions_.size(); ++d) {
    std::uint32_t x = 0;
    for (std::uint32_t left = gray; left != 0; left &= left - 1)
      x ^= directions_[d][static_cast<std::size_t>(std::countr_zero(left))];
    if (scramble != 0) x = scrambled(x, mix(scramble, d));
    point.push_back(static_cast<double>(x) * 0x1p-32);
  }
  return point;
}

Point SobolSearch::next(int number) const {
  const auto seed = static_cast<std::uint64_t>(options().seed);
  return space().at(Sobol(space().size()).at(static_cast<std::uint32_t>(number - 1), seed));
}

}  // namespace trireme

// Transcendental functions for formulas and losses. In f64 they call the C library. In f32 they have no branches and no
// calls, so that loops over them are vectorised on every backend. The f32 results are within 3 ulp of the true value;
// NaN, infinities and overflow are as in the C library. The polynomials are minimax fits for the stated ranges.
#pragma once
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

namespace trireme::math {

template <std::same_as<double> T>
constexpr T exp(T x) {
  return std::exp(x);
}
template <std::same_as<double> T>
constexpr T expm1(T x) {
  return std::expm1(x);
}
template <std::same_as<double> T>
constexpr T log(T x) {
  return std::log(x);
}
template <std::same_as<double> T>
constexpr T tanh(T x) {
  return std::tanh(x);
}
template <std::same_as<double> T>
constexpr T erf(T x) {
  return std::erf(x);
}
/// erf(x), and exp(-x^2), which is computed on the way.
template <class T>
struct ErfAndGauss {
  T erf, gauss;
};
template <std::same_as<double> T>
constexpr ErfAndGauss<T> erf_and_gauss(T x) {
  return {std::erf(x), std::exp(-x * x)};
}
/// log(1 + exp(-x)), x >= 0.
template <std::same_as<double> T>
constexpr T log1p_of_exp_minus(T x) {
  return std::log1p(std::exp(-x));
}
template <class T>
constexpr T sqrt(T x) {
  return std::sqrt(x);
}
template <class T>
constexpr T abs(T x) {
  return std::abs(x);
}

// The C library's, in f32 too: these do not vectorise.
template <class T>
constexpr T sin(T x) {
  return std::sin(x);
}
template <class T>
constexpr T cos(T x) {
  return std::cos(x);
}
template <class T>
constexpr T pow(T x, T y) {
  return std::pow(x, y);
}
template <class T>
constexpr T floor(T x) {
  return std::floor(x);
}
template <class T>
constexpr T ceil(T x) {
  return std::ceil(x);
}
/// whole: the largest integer <= a / b; rest: a - whole b. Both are exact, except for one rounding if a and b differ in
/// sign and |a| < |b|.
template <class T>
struct FloorDivision {
  T whole, rest;
  constexpr FloorDivision(T a, T b) : whole(std::floor(a / b)), rest(std::fma(-whole, b, a)) {
    constexpr T sure = T(0.25) / std::numeric_limits<T>::epsilon();
    if (std::abs(whole) < sure && rest == rest) {  // the quotient may have been rounded up, to an integer
      if (rest != 0 && (rest < 0) != (b < 0)) {
        whole -= 1;
        rest = std::fma(-whole, b, a);
      }
      return;
    }
    const T quotient = a / b;
    rest = std::fmod(a, b);
    whole = quotient;
    if (b == 0 || quotient != quotient) return;
    const bool below = rest != 0 && (rest < 0) != (b < 0);
    const T near = (a - rest) / b - (below ? T(1) : T(0)), low = std::floor(near);
    whole = near == 0 ? (quotient < 0 ? -T(0) : T(0)) : near - low > T(0.5) ? low + 1 : low;
    if (below) rest += b;
  }
};
/// To the nearest integer; ties to even.
template <class T>
constexpr T round(T x) {
  return std::nearbyint(x);
}
template <std::same_as<double> T>
constexpr T log1p(T x) {
  return std::log1p(x);
}

namespace detail {
/// c0 + c1 x + c2 x^2 + ...
constexpr float polynomial(float, float c0) { return c0; }
template <class... C>
constexpr float polynomial(float x, float c0, C... more) {
  return c0 + x * polynomial(x, more...);
}

/// 2^n for n in [-126, 127]; 0 for -127.
constexpr float power_of_two(std::int32_t n) { return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23); }

/// exp(x) = (1 + minus_one) 2^k, with |reduced x| <= ln 2 / 2.
struct Reduced {
  float minus_one;
  std::int32_t k;
};
constexpr Reduced reduced_exponential(float x) {
  constexpr float magic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
  float shifted = x * 1.44269504f + magic, n = shifted - magic;
  auto k = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(magic));
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float tail = polynomial(r, 5.000000078e-01f, 1.666666686e-01f, 4.166626969e-02f, 8.333265418e-03f, 1.394608676e-03f,
                          1.991783000e-04f);
  return {r + r * r * tail, k};
}
/// exp(x) = (1 + minus_one) * low * high. There are two factors, since 2^n alone may overflow or underflow.
struct Exponential {
  float minus_one, low, high;
};
constexpr Exponential exponential(float x) {
  const Reduced e = reduced_exponential(x > 89.f ? 89.f : x < -104.f ? -104.f : x);
  const std::int32_t k = e.k > 128 ? 128 : e.k < -152 ? -152 : e.k, half = k >> 1;
  return {e.minus_one, power_of_two(half), power_of_two(k - half)};
}
constexpr float with_sign(float size, float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(size) & 0x7fffffffu) |
                              (std::bit_cast<std::uint32_t>(x) & 0x80000000u));
}
constexpr float size_of(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu); }
}  // namespace detail

constexpr float exp(float x) {
  auto e = detail::exponential(x);
  return (1.f + e.minus_one) * e.low * e.high;
}

constexpr float expm1(float x) {
  auto e = detail::exponential(x);
  float power = e.low * e.high;
  return x > 20.f ? (1.f + e.minus_one) * e.low * e.high : power * e.minus_one + (power - 1.f);
}

constexpr float log(float x) {
  bool tiny = x < std::numeric_limits<float>::min();
  float scaled = tiny ? x * 0x1p23f : x;
  // x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1).
  auto bits = std::bit_cast<std::int32_t>(scaled);
  std::int32_t n = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits) - 0x3f3504f3u) >> 23;
  float f = std::bit_cast<float>(static_cast<std::uint32_t>(bits) - (static_cast<std::uint32_t>(n) << 23)) - 1.f;
  float s = f / (2.f + f), z = s * s, e = static_cast<float>(tiny ? n - 23 : n);
  float tail = z * s * detail::polynomial(z, 6.666666564e-01f, 4.000033739e-01f, 2.853710439e-01f, 2.358695268e-01f);
  float y = e * 0.693359375f + ((tail - e * 2.12194440e-4f) + 2.f * s);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  y = x == infinity ? infinity : y;
  y = x > 0.f ? y : std::numeric_limits<float>::quiet_NaN();
  return x == 0.f ? -infinity : y;
}

constexpr float log1p(float x) {
  // log(u) x / (u - 1) with the rounded u = 1 + x: the rounding error cancels (Goldberg, ACM Computing Surveys 23,
  // 1991).
  float u = 1.f + x, rest = u - 1.f;
  float y = log(u) * (rest == 0.f ? 1.f : x / rest);
  y = rest == 0.f ? x : y;
  return x == std::numeric_limits<float>::infinity() ? x : y;
}

constexpr float log1p_of_exp_minus(float x) {
  float u = exp(-x), s = u / (2.f + u), z = s * s;  // u in [0, 1], z in [0, 1/9]
  return 2.f * s + z * s *
                       detail::polynomial(z, 6.666666636e-01f, 4.000005262e-01f, 2.856840988e-01f, 2.230127445e-01f,
                                          1.714956982e-01f, 2.178744382e-01f);
}

constexpr float tanh(float x) {
  float size = detail::size_of(x), z = size * size;
  float near = x + x * z *
                       detail::polynomial(z, -3.333333091e-01f, 1.333321001e-01f, -5.394722973e-02f,  // to 0.625
                                          2.170308642e-02f, -8.182933661e-03f, 2.147750585e-03f);
  float far = detail::with_sign(1.f - 2.f / (1.f + exp(2.f * size)), x);
  return size < 0.625f ? near : far;
}

/// gauss is 0 where it would be subnormal.
constexpr ErfAndGauss<float> erf_and_gauss(float x) {
  float size = detail::size_of(x), z = size * size, t = size > 4.f ? 4.f : size;
  const detail::Reduced e = detail::reduced_exponential(z > 88.f ? -88.f : -z);
  float gauss = (1.f + e.minus_one) * detail::power_of_two(e.k);
  float near = x * detail::polynomial(z, 1.128379166e+00f, -3.761262714e-01f, 1.128360018e-01f, -2.685444459e-02f,
                                      5.189535339e-03f, -8.020841275e-04f, 7.889119515e-05f);
  float rest = detail::polynomial(t, 9.861272368e-01f, -1.048210523e+00f, 7.925946397e-01f, -4.316794964e-01f,
                                  1.641336029e-01f, -4.099816107e-02f, 6.005125578e-03f,
                                  -3.888841504e-04f);  // exp(t^2) erfc(t) on [1, 4]
  float far = detail::with_sign(1.f - gauss * rest, x);
  return {size < 1.f ? near : far, gauss};
}
constexpr float erf(float x) { return erf_and_gauss(x).erf; }

}  // namespace trireme::math

// Transcendental functions for the formulas and losses. double is the C library's.
#pragma once
#include <cmath>

namespace trireme::math {
template <class T> constexpr T exp(T x) { return std::exp(x); }
template <class T> constexpr T expm1(T x) { return std::expm1(x); }
template <class T> constexpr T log(T x) { return std::log(x); }
template <class T> constexpr T log1p_of_exp_minus(T x) { return std::log1p(std::exp(-x)); }
template <class T> constexpr T tanh(T x) { return std::tanh(x); }
template <class T> constexpr T erf(T x) { return std::erf(x); }
template <class T> constexpr T sqrt(T x) { return std::sqrt(x); }
template <class T> constexpr T abs(T x) { return std::abs(x); }
}  // namespace trireme::math

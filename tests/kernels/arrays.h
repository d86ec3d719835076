// What the kernel tests share: host arrays of any type seen as doubles, random contents, comparison.
#pragma once
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/core/kernel.h"
#include "tests/support/catch.h"

namespace trireme::test {

inline constexpr DType all_types[] = {DType::f32, DType::f64, DType::bf16};

template <class Op, class... A>
void run(A&&... a) {
  Kernel<Op>::on(DeviceKind::cpu)(std::forward<A>(a)...);
}

/// A host tensor whose numbers the test sees as doubles.
struct Array {
  Array() = default;
  Array(Shape shape, DType type)
      : shape(shape), type(type), bytes(static_cast<std::size_t>(shape.numel() * size_of(type))) {}
  View view() { return bytes.empty() && shape.rank() == 0 ? View{} : View{data(), shape, type, cpu()}; }
  void* data() { return bytes.empty() ? static_cast<void*>(&nothing) : bytes.data(); }
  Index size() const { return shape.numel(); }
  double get(Index i) {
    return dispatch_any(type, [&](auto t) { return static_cast<double>(static_cast<decltype(t)*>(data())[i]); });
  }
  void set(Index i, double v) {
    dispatch_any(type, [&](auto t) {
      using T = decltype(t);
      if constexpr (is_narrow_type<T>)
        static_cast<T*>(data())[i] = T(static_cast<float>(v));
      else
        static_cast<T*>(data())[i] = static_cast<T>(v);
    });
  }
  Shape shape;
  DType type = DType::f32;
  std::vector<unsigned char> bytes;
  double nothing = 0;
};

inline std::mt19937_64 engine(7);
inline Index pick(Index from, Index to) { return std::uniform_int_distribution<Index>(from, to)(engine); }

/// Integers in [-2, 2], or, for whole = false, numbers in [-1, 1).
inline Array filled(Shape shape, DType type, bool whole = true) {
  Array a(shape, type);
  for (Index i = 0; i < a.size(); ++i)
    a.set(i, whole ? static_cast<double>(pick(-2, 2)) : std::uniform_real_distribution<>(-1, 1)(engine));
  return a;
}

/// Rounding allowed in a sum of k products of numbers below 1.
inline double tolerance(DType type, Index k) {
  double eps = type == DType::f64 ? 0x1p-52 : type == DType::f32 ? 0x1p-23 : 0x1p-8;
  return (type == DType::bf16 ? 4 : 64) * eps * std::sqrt(static_cast<double>(k));
}

inline void close(Array& got, const std::vector<double>& expected, double within) {
  REQUIRE(got.size() == static_cast<Index>(expected.size()));
  double worst = 0;
  for (Index i = 0; i < got.size(); ++i)
    worst = std::fmax(worst, std::fabs(got.get(i) - expected[static_cast<std::size_t>(i)]));
  bool finite = true;
  for (Index i = 0; i < got.size(); ++i) finite = finite && std::isfinite(got.get(i));
  CHECK(finite);
  CHECK(worst <= within);
}

inline std::vector<double> numbers(Array& a) {
  std::vector<double> v;
  for (Index i = 0; i < a.size(); ++i) v.push_back(a.get(i));
  return v;
}

}  // namespace trireme::test

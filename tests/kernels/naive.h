// What kernel tests share: blocks of numbers of any floating type, and comparison with loops written plainly
// in f64.
#pragma once
#include <cmath>
#include <random>
#include <vector>

#include "kernels/core/kernel.h"
#include "kernels/core/view.h"
#include "tests/support/catch.h"

namespace trireme {

using Numbers = std::vector<double>;

/// A dense block on the CPU, its numbers given and read as f64 (i64 included).
class Data {
 public:
  explicit Data(const Shape& shape, DType dtype = DType::f64)
      : shape_(shape), dtype_(dtype), bytes_(static_cast<std::size_t>(shape.numel() * size_of(dtype) + 1)) {}
  Data(const Shape& shape, DType dtype, const Numbers& values) : Data(shape, dtype) {
    for (Index i = 0; i < shape.numel(); ++i)
      dispatch_any(dtype,
                   [&](auto t) { at<decltype(t)>(i) = narrow<decltype(t)>(values[static_cast<std::size_t>(i)]); });
  }
  operator View() const { return {const_cast<char*>(bytes_.data()), shape_, dtype_, cpu()}; }
  const Shape& shape() const { return shape_; }
  Numbers values() const {
    Numbers v;
    for (Index i = 0; i < shape_.numel(); ++i)
      dispatch_any(dtype_,
                   [&](auto t) { v.push_back(static_cast<double>(const_cast<Data*>(this)->at<decltype(t)>(i))); });
    return v;
  }

 private:
  template <class T>
  static T narrow(double v) {
    if constexpr (is_narrow_type<T>)
      return T(static_cast<float>(v));
    else
      return static_cast<T>(v);
  }
  template <class T>
  T& at(Index i) {
    return reinterpret_cast<T*>(bytes_.data())[i];
  }
  Shape shape_;
  DType dtype_;
  std::vector<char> bytes_;
};

/// Calls the CPU kernel of a contract.
template <class Op, class... A>
void run(const A&... arguments) {
  Kernel<Op>::on(DeviceKind::cpu)(arguments...);
}

/// Random numbers in [low, high), rounded to dtype, so that f64 loops start from what the kernel sees.
inline Data random(const Shape& shape, DType dtype, double low = -2, double high = 2, unsigned seed = 1) {
  std::mt19937 engine(seed + 77 * static_cast<unsigned>(shape.numel()));
  std::uniform_real_distribution<double> draw(low, high);
  Numbers v(static_cast<std::size_t>(shape.numel()));
  for (double& x : v) x = draw(engine);
  return Data(shape, dtype, v);
}

/// Rounding that a kernel may add, relative to max(1, |expected|): one result in dtype, sums aside.
inline double tolerance(DType t) { return t == DType::f64 ? 1e-12 : t == DType::f32 ? 2e-6 : 8e-3; }

inline void require_near(const Numbers& got, const Numbers& expected, double bound) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])) ||
                std::abs(got[i] - expected[i]) <= bound * std::max(1.0, std::abs(expected[i]));
    if (!same) {
      INFO("element " << i << " is " << got[i] << ", expected " << expected[i]);
      REQUIRE(same);
    }
  }
  SUCCEED();
}

/// What the Error that f throws says; "" when it throws none.
template <class F>
std::string complaint(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}

constexpr DType floating[] = {DType::f32, DType::f64, DType::bf16};
constexpr Index awkward[] = {0, 1, 7, 33, 1000};

}  // namespace trireme

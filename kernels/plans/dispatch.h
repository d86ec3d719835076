// Choices at run time that are made outside of loops: a kernel's code for each.
#pragma once
#include "kernels/core/dtype.h"

namespace trireme {

/// Calls f(T{}) with float, or double for f64: what statistics of t and other sums are kept in.
template <class F>
decltype(auto) dispatch_accumulator(DType t, F&& f) {
  return t == DType::f64 ? f(double{}) : f(float{});
}

/// Calls f with `on` as a constant: std::true_type or std::false_type.
template <class F>
decltype(auto) dispatch_bool(bool on, F&& f) {
  return on ? f(std::true_type{}) : f(std::false_type{});
}

}  // namespace trireme

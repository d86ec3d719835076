// Dispatch of run-time choices to template code, outside of loops.
#pragma once
#include "kernels/core/dtype.h"

namespace trireme {

/// Calls f(T{}) with the type for sums and statistics of elements of type t: double for f64, else float.
template <class F>
decltype(auto) dispatch_accumulator(DType t, F&& f) {
  return t == DType::f64 ? f(double{}) : f(float{});
}

/// Calls f with `on` as a compile-time constant: std::true_type or std::false_type.
template <class F>
decltype(auto) dispatch_bool(bool on, F&& f) {
  return on ? f(std::true_type{}) : f(std::false_type{});
}

}  // namespace trireme

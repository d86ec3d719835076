// Elements whose type is known at run time only: for kernels that are too rare or too short to be compiled once per
// type.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {

/// Calls use(T{}) with the C++ type of the floating type t.
template <class Use>
__device__ void with_float(DType t, const Use& use) {
  switch (t) {
    case DType::f64: return use(double{});
    case DType::bf16: return use(bf16{});
    case DType::f16: return use(f16{});
    default: return use(float{});
  }
}
/// Calls use(T{}) with the C++ type of the integer type t; bool counts as one.
template <class Use>
__device__ void with_integer(DType t, const Use& use) {
  switch (t) {
    case DType::i64: return use(std::int64_t{});
    case DType::i32: return use(std::int32_t{});
    case DType::i16: return use(std::int16_t{});
    case DType::i8: return use(std::int8_t{});
    case DType::boolean: return use(bool{});
    default: return use(std::uint8_t{});
  }
}

/// Element i. A: float or double for floating types, std::int64_t for integers.
template <class A>
__device__ A number(const void* from, DType type, Index i) {
  A v = 0;
  const auto take = [&](auto t) { v = static_cast<A>(wide(static_cast<const decltype(t)*>(from)[i])); };
  if constexpr (std::is_integral_v<A>)
    with_integer(type, take);
  else
    with_float(type, take);
  return v;
}
/// Writes element i of a floating type, rounded once; a double that becomes a bf16 or f16 is a float in between.
template <class A>
__device__ void put_number(void* to, DType type, Index i, A v) {
  with_float(type, [&](auto t) {
    using T = decltype(t);
    static_cast<T*>(to)[i] = rounded<T>(static_cast<Accumulator<T>>(v));
  });
}

/// Calls use(A{}) with the type in which numbers of type t are compared: float, double or std::int64_t.
template <class Use>
__host__ __device__ void with_number(DType t, const Use& use) {
  if (!is_float(t)) return use(std::int64_t{});
  t == DType::f64 ? use(double{}) : use(float{});
}

/// Calls use with an unsigned integer of the size of an element of t.
template <class Use>
void with_bytes(DType t, const Use& use) {
  switch (size_of(t)) {
    case 1: return use(std::uint8_t{});
    case 2: return use(std::uint16_t{});
    case 4: return use(std::uint32_t{});
    default: return use(std::uint64_t{});
  }
}

}  // namespace trireme::gpu

// Division by numbers that are known on the host, and strided loops, which use it to split indices.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>

#include "kernels/plans/strided_loop.h"

namespace trireme::gpu {

/// Divides numbers below 2^31 by one from 1 to 2^31: a multiplication and a shift (Granlund and Montgomery, "Division
/// by invariant integers using multiplication", PLDI'94).
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(Index d) {
    const auto by = static_cast<std::uint64_t>(std::max<Index>(d, 1));
    shift_ = static_cast<unsigned>(std::bit_width(by - 1));
    magic_ = static_cast<unsigned>(((std::uint64_t{1} << shift_) - by) * (std::uint64_t{1} << 32) / by + 1);
    by_ = static_cast<unsigned>(by);
  }
  constexpr unsigned quotient(unsigned n) const {
    return (static_cast<unsigned>(std::uint64_t{n} * magic_ >> 32) + n) >> shift_;
  }
  constexpr unsigned by() const { return by_; }
  /// Leaves the quotient in n and returns the rest.
  constexpr unsigned split(unsigned& n) const {
    const unsigned all = n;
    n = quotient(n);
    return all - n * by_;
  }

 private:
  unsigned by_ = 1, magic_ = 1, shift_ = 0;
};

/// Divides any number that is not negative by one from 1 on: as a Divisor where both are below 2^31.
class LongDivisor {
 public:
  LongDivisor() = default;
  explicit LongDivisor(Index d) : by_(d), small_(d < most ? d : 1) {}
  constexpr Index by() const { return by_; }
  constexpr Index quotient(Index n) const {
    return n < most && by_ < most ? static_cast<Index>(small_.quotient(static_cast<unsigned>(n))) : n / by_;
  }
  constexpr Index split(Index& n) const {
    const Index all = n;
    n = quotient(n);
    return all - n * by_;
  }

 private:
  static constexpr Index most = Index{1} << 31;
  Index by_ = 1;
  Divisor small_;
};

/// A detail::StridedLoop as kernels take it, in indices of type I.
template <class I, int blocks>
struct DeviceLoop {
  using Division = std::conditional_t<std::is_same_v<I, Index>, LongDivisor, Divisor>;
  struct Offset {
    I of[blocks];
  };
  int rank = 0;
  Division extent[Shape::max_rank];
  I step[Shape::max_rank][blocks];

  explicit DeviceLoop(const detail::StridedLoop<blocks>& loop) : rank(loop.rank) {
    for (int i = 0; i < rank; ++i) {
      extent[i] = Division(loop.extent[i]);
      for (int b = 0; b < blocks; ++b) step[i][b] = static_cast<I>(loop.step[i][b]);
    }
  }
  /// Where iteration k (row-major) is in each block.
  __device__ Offset offset(I k) const {
    Offset o{};
#pragma unroll 1  // unrolled, divisions of 64 bits would be most of a kernel
    for (int i = 0; i < rank; ++i) {
      const I at = i + 1 < rank ? extent[i].split(k) : k;
      for (int b = 0; b < blocks; ++b) o.of[b] += at * step[i][b];
    }
    return o;
  }
};

}  // namespace trireme::gpu

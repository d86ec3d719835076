// The threads that share a row: a warp for short rows, a block for long ones. A thread keeps its first elements of a
// row in registers between the passes over it and reads the other elements again.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {

/// The larger of two numbers; a NaN loses.
struct LargerNumber {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};
struct Smaller {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

/// A warp or a block: `size` threads.
struct Team {
  int size;

  __device__ int rank() const { return static_cast<int>(threadIdx.x) & (size - 1); }
  __device__ Index first() const { return static_cast<Index>(blockIdx.x) * per_block() + threadIdx.x / size; }
  __device__ Index step() const { return static_cast<Index>(gridDim.x) * per_block(); }
  __host__ __device__ int per_block() const { return block / size; }
  /// As block_combine. All threads of the team take part.
  template <class V, class Op>
  __device__ V combine(V v, V none, Op op) const {
    return size == warp ? warp_combine(v, op) : block_combine(v, none, op);
  }
  template <class V>
  __device__ V sum(V v) const {
    return combine(v, V(0), Plus{});
  }
};

/// This thread's elements of a row, n at a time (n divides width).
template <class T, int n>
class Row {
 public:
  __device__ Row(const Team& team, const T* row, Index width) : row_(row), width_(width), team_(team) {
#pragma unroll
    for (int k = 0; k < kept; ++k)
      if (at(k) < width) packs_[k] = load<n>(row + at(k));
  }
  /// f(i, pack) with the elements [i, i + n) of each of this thread's packs.
  template <class F>
  __device__ void each(F f) const {
#pragma unroll
    for (int k = 0; k < kept; ++k)
      if (at(k) < width_) f(at(k), packs_[k]);
    for (Index i = at(kept); i < width_; i += team_.size * n) f(i, load<n>(row_ + i));
  }
  /// The same over two rows of one width: f(i, pack, pack of other).
  template <class F>
  __device__ void each_with(const Row& other, F f) const {
#pragma unroll
    for (int k = 0; k < kept; ++k)
      if (at(k) < width_) f(at(k), packs_[k], other.packs_[k]);
    for (Index i = at(kept); i < width_; i += team_.size * n) f(i, load<n>(row_ + i), load<n>(other.row_ + i));
  }

 private:
  static constexpr int kept = sizeof(T) == 8 ? 2 : 4;
  __device__ Index at(int k) const { return (k * team_.size + team_.rank()) * n; }

  const T* row_;
  Index width_;
  Team team_;
  Pack<T, n> packs_[kept];
};

/// f(team, Count<n>{}, row) on all rows: f is a struct of pointers and numbers with
/// template <int n> __device__ void operator()(const Team&, Count<n>, Index row) const.
template <int n, class F>
__global__ void __launch_bounds__(block) rows_kernel(Team team, Index rows, F f) {
  for (Index r = team.first(); r < rows; r += team.step()) f(team, Count<n>{}, r);
}
template <int n, class F>
void each_row_by(const On& on, Team team, Index rows, const F& f) {
  run(on, blocks_for(on, rows, team.per_block()), block, rows_kernel<n, F>, team, rows, f);
}
/// Over rows of `width` elements of T; vector: whether all operands are aligned().
template <class T, class F>
void each_row(const On& on, Index rows, Index width, bool vector, const F& f) {
  constexpr int n = sizeof(T) == 8 ? 1 : pack<T>;  // 8 bytes at a time lose little, and half of the code
  if (rows == 0 || width == 0) return;
  const bool packs = vector && width % n == 0;
  const Team team{width <= (packs ? 1024 : 256) ? warp : block};
  if (packs)
    each_row_by<n>(on, team, rows, f);
  else
    each_row_by<1>(on, team, rows, f);
}

}  // namespace trireme::gpu

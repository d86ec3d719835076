// The threads that share a row: a warp for short rows, a block for long ones. A thread keeps its first elements of a
// row in registers between the passes over it and reads what is left again.
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

/// threads: warp or block.
template <int threads>
struct Team {
  static constexpr int size = threads;
  static constexpr int per_block = block / threads;

  __device__ static int rank() { return static_cast<int>(threadIdx.x) % threads; }
  __device__ static Index first() { return static_cast<Index>(blockIdx.x) * per_block + threadIdx.x / threads; }
  __device__ static Index step() { return static_cast<Index>(gridDim.x) * per_block; }
  /// As block_combine. All threads of the team take part.
  template <class V, class Op>
  __device__ static V combine(V v, V none, Op op) {
    if constexpr (threads == warp)
      return warp_combine(v, op);
    else
      return block_combine(v, none, op);
  }
  template <class V>
  __device__ static V sum(V v) {
    return combine(v, V(0), Plus{});
  }
};

/// This thread's elements of a row, n at a time (n divides width).
template <class Team, class T, int n>
class Row {
 public:
  __device__ Row(const T* row, Index width) : row_(row), width_(width) {
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
    for (Index i = at(kept); i < width_; i += step) f(i, load<n>(row_ + i));
  }
  /// The same over two rows of one width: f(i, pack, pack of other).
  template <class F>
  __device__ void each_with(const Row& other, F f) const {
#pragma unroll
    for (int k = 0; k < kept; ++k)
      if (at(k) < width_) f(at(k), packs_[k], other.packs_[k]);
    for (Index i = at(kept); i < width_; i += step) f(i, load<n>(row_ + i), load<n>(other.row_ + i));
  }

 private:
  static constexpr int kept = n == 1 ? 8 : 4;
  static constexpr Index step = Team::size * n;
  __device__ static Index at(int k) { return (k * Team::size + Team::rank()) * n; }

  const T* row_;
  Index width_;
  Pack<T, n> packs_[kept];
};

/// f(row) for the rows of this team: f is a struct of pointers and numbers with
/// template <class Team, int n> __device__ void operator()(Team, Count<n>, Index row) const.
template <class Team, int n, class F>
__global__ void __launch_bounds__(block) rows_kernel(Index rows, F f) {
  for (Index r = Team::first(); r < rows; r += Team::step()) f(Team{}, Count<n>{}, r);
}
template <class Team, int n, class F>
void each_row_by(const On& on, Index rows, const F& f) {
  run(on, blocks_for(on, rows, Team::per_block), block, rows_kernel<Team, n, F>, rows, f);
}
/// Over rows of `width` elements of T; vector: whether all operands are aligned().
template <class T, class F>
void each_row(const On& on, Index rows, Index width, bool vector, const F& f) {
  constexpr int n = sizeof(T) == 8 ? 1 : pack<T>;  // 8 bytes at a time lose little, and half of the code
  if (rows == 0 || width == 0) return;
  const bool packs = vector && width % n == 0, small = width <= (packs ? 1024 : 256);
  if (packs && small)
    each_row_by<Team<warp>, n>(on, rows, f);
  else if (packs)
    each_row_by<Team<block>, n>(on, rows, f);
  else if (small)
    each_row_by<Team<warp>, 1>(on, rows, f);
  else
    each_row_by<Team<block>, 1>(on, rows, f);
}

}  // namespace trireme::gpu

// Tiles of scores on tensor cores, for bf16 and f16: a warp owns 16 rows, whose weights go from the registers of the
// first product to those of the second. Rows of operands are read 16 bytes at a time.
#pragma once
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace trireme::gpu {

/// slab: number of elements of D that a block computes of a result. If that is all of D, tiles of operands are entirely
/// in shared memory, and the block's own rows stay there.
template <class Element, int slab_elements>
struct MmaTile {
  using T = Element;
  using A = float;
  static constexpr int threads = 128, rows = 64, columns = 64, thread_rows = 2, thread_columns = 16,
                       slab = slab_elements, outputs = slab / 4,
                       depth = 64,                 ///< elements of D in shared memory at a time
      pad = 8;                                     ///< eight rows, 16 bytes of each, then lie in all banks
  static constexpr bool resident = slab <= depth,  ///< D is at most slab
      both_gradients = slab <= 64;                 ///< a thread's registers hold sums for dk and dv

  using Operand = T[rows][depth + pad];
  struct Shared {
    alignas(16) Operand own[resident ? 2 : 1], other[resident ? 2 : 1];
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % warp; }
  __device__ static int row(int r) { return static_cast<int>(threadIdx.x) / warp * 16 + lane() / 4 + r * 8; }
  __device__ static int column(int c) { return c / 2 * 8 + lane() % 4 * 2 + c % 2; }
  __device__ static int output(int x) { return column(x); }
  __device__ static bool leads() { return threadIdx.x % 4 == 0; }
  template <class Op>
  __device__ static A combine(A v, Op op) {
    v = op(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return op(v, __shfl_xor_sync(0xffffffffu, v, 2));
  }
  __device__ static A exponential(A v) { return __expf(v); }

  template <int slot>
  __device__ static void keep(Shared& shared, const HeadRows<T>& own, int at, Index width, bool) {
    if constexpr (resident) copy(shared.own[slot], own, at, 0, width);
  }
  __device__ static void enter(Shared& shared, const HeadRows<T>& first, const HeadRows<T>& second, int at, Index width,
                               bool) {
    if constexpr (resident) {
      __syncthreads();  // the last products are over
      copy(shared.other[0], first, at, 0, width);
      copy(shared.other[1], second, at, 0, width);
      __syncthreads();
    }
  }
  template <int slot>
  __device__ static void product(A (&s)[thread_rows][thread_columns], Shared& shared, const HeadRows<T>& own,
                                 int own_at, const HeadRows<T>& other, int other_at, Index width, bool) {
    A sums[thread_columns / 2][4] = {};
    if constexpr (resident) {
      add_products(sums, shared.own[slot], shared.other[slot], width);
    } else {
      for (int d = 0; d < width; d += depth) {
        __syncthreads();  // the last products are over
        copy(shared.own[0], own, own_at, d, width);
        copy(shared.other[0], other, other_at, d, width);
        __syncthreads();
        add_products(sums, shared.own[0], shared.other[0], width - d);
      }
    }
#pragma unroll
    for (int c = 0; c < thread_columns; ++c) {
      s[0][c] = sums[c / 2][c % 2];
      s[1][c] = sums[c / 2][2 + c % 2];
    }
  }
  template <int slot>
  __device__ static void accumulate(A (&out)[thread_rows][outputs], Shared& shared,
                                    const A (&weights)[thread_rows][thread_columns], const HeadRows<T>& x, int at,
                                    int first, Index width, bool) {
    if constexpr (!resident) {
      __syncthreads();  // the last products are over
      copy(shared.own[0], x, at, first, width);
      copy(shared.other[0], x, at, first + depth, width);
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < columns; k += 16) {
      if (at + k >= x.count) break;
      const int c = k / 4;  // a lane has four columns of 16
      const unsigned a[4] = {
          two_elements<T>(weights[0][c], weights[0][c + 1]), two_elements<T>(weights[1][c], weights[1][c + 1]),
          two_elements<T>(weights[0][c + 2], weights[0][c + 3]), two_elements<T>(weights[1][c + 2], weights[1][c + 3])};
#pragma unroll
      for (int n = 0; n < slab; n += 16) {
        const Operand& values = resident ? shared.other[slot] : n < depth ? shared.own[0] : shared.other[0];
        unsigned b[4];
        load_transposed(b, &values[k + lane() / 8 % 2 * 8 + lane() % 8][n % depth + lane() / 16 * 8]);
        add(out, n / 4, a, b[0], b[1]);
        add(out, n / 4 + 2, a, b[2], b[3]);
      }
    }
  }

 private:
  /// sums += own other^T over the first `width` elements of both, at most depth.
  __device__ static void add_products(A (&sums)[thread_columns / 2][4], const Operand& own, const Operand& other,
                                      Index width) {
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      if (k >= width) break;
      unsigned a[4];
      load_matrices(a, &own[row(0) - lane() / 4 + lane() % 16][k + lane() / 16 * 8]);
#pragma unroll
      for (int n = 0; n < columns; n += 16) {
        unsigned b[4];
        load_matrices(b, &other[n + lane() / 16 * 8 + lane() % 8][k + lane() / 8 % 2 * 8]);
        multiply_tiles<T>(sums[n / 8], a, b[0], b[1]);
        multiply_tiles<T>(sums[n / 8 + 1], a, b[2], b[3]);
      }
    }
  }
  __device__ static void add(A (&out)[thread_rows][outputs], int x, const unsigned (&a)[4], unsigned b0, unsigned b1) {
    A tile[4] = {out[0][x], out[0][x + 1], out[1][x], out[1][x + 1]};
    multiply_tiles<T>(tile, a, b0, b1);
    out[0][x] = tile[0];
    out[0][x + 1] = tile[1];
    out[1][x] = tile[2];
    out[1][x + 1] = tile[3];
  }
  __device__ static void copy(Operand& to, const HeadRows<T>& x, int at, int from, Index width) {
    constexpr int n = pack<T>, per_row = depth / n;
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < rows * per_row; i += threads) {
      const int token = i / per_row, d = i % per_row * n;
      Pack<T, n> p{};
      if (at + token < x.count && from + d < width) p = load<n>(x.data + (at + token) * x.stride + from + d);
      store(&to[token][d], p);
    }
  }
};

}  // namespace trireme::gpu

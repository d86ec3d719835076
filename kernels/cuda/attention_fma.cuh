// Tiles of scores on the ordinary units, for f32 and f64: operands pass through shared memory as accumulators, a thread
// holds a rectangle of scores and one of results.
#pragma once
#include "kernels/cuda/attention.cuh"

namespace trireme::gpu {

/// slab: how many elements of D a block computes of a result.
template <class Element, int slab_elements>
struct FmaTile {
  using T = Element;
  using A = Accumulator<T>;
  // Shared memory is static: 48 KB at most, half of them full of f64.
  static constexpr bool wide_sums = sizeof(A) == 8;
  static constexpr int threads = 128, across = 16,  ///< neighbouring threads
      thread_rows = wide_sums ? 4 : 8, thread_columns = wide_sums ? 2 : 4, down = threads / across,
                       rows = down * thread_rows, columns = across * thread_columns,
                       depth = 16,             ///< elements of D, or tokens, in shared memory at a time
      pad = 16 / static_cast<int>(sizeof(A)),  ///< shifts rows of shared memory to other banks
      slab = slab_elements, outputs = slab / across;
  static constexpr bool both_gradients = slab <= 64;  ///< a thread's registers hold sums for dk and dv

  struct Shared {
    union {
      struct {
        alignas(16) A own[depth][rows + pad], other[depth][columns + pad];
      } operands;                         ///< transposed
      alignas(16) A values[depth][slab];  ///< tokens of the second product
    };
    alignas(16) A weights[columns][rows + pad];  ///< transposed
  };

  __device__ static int row(int r) { return static_cast<int>(threadIdx.x) / across * thread_rows + r; }
  __device__ static int column(int c) { return static_cast<int>(threadIdx.x) % across * thread_columns + c; }
  /// Where in the slab result x is.
  __device__ static int output(int x) {
    return x / thread_columns * (across * thread_columns) + column(x % thread_columns);
  }
  /// First of the threads that share its rows.
  __device__ static bool leads() { return threadIdx.x % across == 0; }
  template <class Op>
  __device__ static A combine(A v, Op op) {
    for (int step = across / 2; step > 0; step /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
  }
  __device__ static A exponential(A v) { return std::exp(v); }

  template <int>
  __device__ static void keep(Shared&, const HeadRows<T>&, int, Index, bool) {}
  __device__ static void enter(Shared&, const HeadRows<T>&, const HeadRows<T>&, int, Index, bool) {}
  template <int>
  __device__ static void product(A (&s)[thread_rows][thread_columns], Shared& shared, const HeadRows<T>& own,
                                 int own_at, const HeadRows<T>& other, int other_at, Index width, bool vector) {
#pragma unroll
    for (auto& line : s)
#pragma unroll
      for (A& v : line) v = 0;
    for (int d = 0; d < width; d += depth) {
      __syncthreads();  // the last products are over
      transpose<rows>(shared.operands.own, own, own_at, d, width, vector);
      transpose<columns>(shared.operands.other, other, other_at, d, width, vector);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        A a[thread_rows], b[thread_columns];
        take(a, &shared.operands.own[k][row(0)]);
        take(b, &shared.operands.other[k][column(0)]);
#pragma unroll
        for (int r = 0; r < thread_rows; ++r)
#pragma unroll
          for (int c = 0; c < thread_columns; ++c) s[r][c] += a[r] * b[c];
      }
    }
  }

  template <int>
  __device__ static void accumulate(A (&out)[thread_rows][outputs], Shared& shared,
                                    const A (&weights)[thread_rows][thread_columns], const HeadRows<T>& x, int at,
                                    int first, Index width, bool vector) {
    __syncthreads();  // the last products are over
#pragma unroll
    for (int c = 0; c < thread_columns; ++c)
#pragma unroll
      for (int r = 0; r < thread_rows; r += pad) {
        Pack<A, pad> p;
#pragma unroll
        for (int e = 0; e < pad; ++e) p.v[e] = weights[r + e][c];
        store(&shared.weights[column(c)][row(r)], p);
      }
    for (int token = 0; token < columns && at + token < x.count; token += depth) {
      if (token > 0) __syncthreads();
      copy(shared.values, x, at + token, first, width, vector);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        A a[thread_rows];
        take(a, &shared.weights[token + k][row(0)]);
#pragma unroll
        for (int x0 = 0; x0 < outputs; x0 += thread_columns) {
          A b[thread_columns];
          take(b, &shared.values[k][output(x0)]);
#pragma unroll
          for (int r = 0; r < thread_rows; ++r)
#pragma unroll
            for (int c = 0; c < thread_columns; ++c) out[r][x0 + c] += a[r] * b[c];
        }
      }
    }
  }

 private:
  template <int n>
  __device__ static void take(A (&to)[n], const A* from) {
#pragma unroll
    for (int i = 0; i < n; i += pad) {
      const auto p = load<pad>(from + i);
#pragma unroll
      for (int e = 0; e < pad; ++e) to[i + e] = p.v[e];
    }
  }
  /// n elements of a row from `from` on, zeros where there are none.
  template <int n>
  __device__ static Pack<T, n> fetch(const HeadRows<T>& x, int token, int from, Index width, bool vector) {
    Pack<T, n> p;
    const T* data = x.data + token * x.stride + from;
    if (vector && token < x.count && from + n <= width) return load<n>(data);
#pragma unroll
    for (int e = 0; e < n; ++e) p.v[e] = token < x.count && from + e < width ? data[e] : rounded<T>(0);
    return p;
  }
  template <int count>
  __device__ static void transpose(A (&to)[depth][count + pad], const HeadRows<T>& x, int at, int from, Index width,
                                   bool vector) {
    constexpr int n = pack<T>, per_row = depth / n;
    for (int i = static_cast<int>(threadIdx.x); i < count * per_row; i += threads) {
      const int token = i / per_row, d = i % per_row * n;
      const auto p = fetch<n>(x, at + token, from + d, width, vector);
#pragma unroll
      for (int e = 0; e < n; ++e) to[d + e][token] = wide(p.v[e]);
    }
  }
  __device__ static void copy(A (&to)[depth][slab], const HeadRows<T>& x, int at, int from, Index width, bool vector) {
    constexpr int n = pack<T>, per_row = slab / n;
    for (int i = static_cast<int>(threadIdx.x); i < depth * per_row; i += threads) {
      const int token = i / per_row, d = i % per_row * n;
      const auto p = fetch<n>(x, at + token, from + d, width, vector);
#pragma unroll
      for (int e = 0; e < n; ++e) to[token][d + e] = wide(p.v[e]);
    }
  }
};

}  // namespace trireme::gpu

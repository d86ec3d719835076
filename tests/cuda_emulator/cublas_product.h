// D = epilogue(alpha op(A) op(B) + beta C) on matrices that lie in columns, for the emulated cuBLASLt.
#pragma once
#include <bit>
#include <vector>

#include "kernels/core/view.h"

namespace emulator {
using trireme::DType;
using trireme::Index;

/// A batch of matrices in memory: element (r, c) of matrix i at r + c ld + i step.
struct Columns {
  std::byte* data = nullptr;
  DType type = DType::f32;
  Index ld = 0, step = 0;
};

/// Ten bits of mantissa, cut off: the worse case. Tensor cores leave the other bits of a factor unread, and a kernel
/// that hands them memory instead of registers (sm_90) cannot round it before.
inline float to_tf32(float v) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffffe000u); }
inline double to_tf32(double v) { return v; }

template <class A>
struct ColumnProduct {
  Index m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false, relu = false;
  bool coarse = false;  ///< factors are rounded to TF32
  A alpha = 1, beta = 0;
  Columns a, b, c, d;
  Columns bias;  ///< [m] per matrix; none: data == null

  void compute() const {
    std::vector<A> left(static_cast<std::size_t>(m * k)), right(static_cast<std::size_t>(k * n));
    std::vector<A> sums(static_cast<std::size_t>(m * n));
    for (Index i = 0; i < batch; ++i) {
      gather(left.data(), a, i, m, k, transpose_a);
      gather(right.data(), b, i, k, n, transpose_b);
      multiply(sums.data(), left.data(), right.data());
      store(i, sums.data());
    }
  }

 private:
  /// to: [rows, cols] in columns without gaps.
  void gather(A* to, const Columns& from, Index i, Index rows, Index cols, bool transposed) const {
    trireme::dispatch_device_float(from.type, "cublasLtMatmul", [&]<class T>(T) {
      const T* data = reinterpret_cast<const T*>(from.data) + i * from.step;
      for (Index c = 0; c < cols; ++c)
        for (Index r = 0; r < rows; ++r) {
          const A v = static_cast<A>(transposed ? data[c + r * from.ld] : data[r + c * from.ld]);
          to[c * rows + r] = coarse ? to_tf32(v) : v;
        }
    });
  }

  /// In blocks of k, so that the block of left stays in the cache; four columns at a time.
  void multiply(A* sums, const A* left, const A* right) const {
    constexpr Index depth = 64;
    std::fill(sums, sums + m * n, A(0));
    for (Index l0 = 0; l0 < k; l0 += depth) {
      const Index end = std::min(k, l0 + depth);
      Index j = 0;
      for (; j + 4 <= n; j += 4) {
        A *s0 = sums + j * m, *s1 = s0 + m, *s2 = s1 + m, *s3 = s2 + m;
        for (Index l = l0; l < end; ++l) {
          const A* p = left + l * m;
          const A f0 = right[j * k + l], f1 = right[(j + 1) * k + l], f2 = right[(j + 2) * k + l],
                  f3 = right[(j + 3) * k + l];
          for (Index r = 0; r < m; ++r) {
            s0[r] += p[r] * f0;
            s1[r] += p[r] * f1;
            s2[r] += p[r] * f2;
            s3[r] += p[r] * f3;
          }
        }
      }
      for (; j < n; ++j)
        for (Index l = l0; l < end; ++l)
          for (Index r = 0; r < m; ++r) sums[j * m + r] += left[l * m + r] * right[j * k + l];
    }
  }

  void store(Index i, const A* sums) const {
    trireme::dispatch_device_float(d.type, "cublasLtMatmul", [&]<class T>(T) {
      const T* before = reinterpret_cast<const T*>(c.data) + i * c.step;
      T* to = reinterpret_cast<T*>(d.data) + i * d.step;
      const T* add = bias.data ? reinterpret_cast<const T*>(bias.data) + i * bias.step : nullptr;
      for (Index j = 0; j < n; ++j)
        for (Index r = 0; r < m; ++r) {
          A v = alpha * sums[j * m + r];
          if (beta != A(0)) v += beta * static_cast<A>(before[r + j * c.ld]);
          if (add != nullptr) v += static_cast<A>(add[r]);
          if (relu && v < A(0)) v = A(0);
          to[r + j * d.ld] = static_cast<T>(v);
        }
    });
  }
};

}  // namespace emulator

// Tensor cores by the instructions of sm_80 (PTX ISA 9.7.14, "Warp-level matrix instructions"): products of 16 x 16 by
// 16 x 8 tiles of bf16 or f16 with f32 sums. All lanes of a warp take part. With g = lane / 4 and t = lane % 4 a lane
// holds, two elements to a register: of A rows g, g + 8, g, g + 8 at columns 2 t and (the last two registers) 2 t + 8;
// of B column g at rows 2 t and 2 t + 8; of C row g, then row g + 8, at columns 2 t and 2 t + 1. The emulator of the
// tests has its own version of this file.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {

/// Two numbers as elements, the first in the lower half.
template <class T>
__device__ inline unsigned two_elements(float first, float second) {
  unsigned both;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

/// c += a b.
template <class T>
__device__ inline void multiply_tiles(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices from shared memory: lane i names row i % 8 of matrix i / 8, 16 bytes at a multiple of 16. A lane
/// gets elements 2 t and 2 t + 1 of row g of each.
template <class T>
__device__ inline void load_matrices(unsigned (&to)[4], const T* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
/// The same for the transposed matrices: elements of column g, of rows 2 t and 2 t + 1.
template <class T>
__device__ inline void load_transposed(unsigned (&to)[4], const T* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

}  // namespace trireme::gpu

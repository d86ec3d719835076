// Instructions of x86-64 for which GCC has no expression that it would compile to them. levels.h includes this file.
#pragma once

namespace trireme::instructions {

/// Products of the lower 32 bits of lanes of 64.
template <class L>
[[gnu::always_inline]] inline void multiply_lower(typename L::Vector& to, const typename L::Vector& a,
                                                  const typename L::Vector& b) {
  asm("vpmuludq %2, %1, %0" : "=v"(to) : "v"(a), "v"(b));
}

/// to = the words at these positions of a and b together. (GCC's __builtin_shufflevector, under the address sanitizer,
/// keeps vectors on a stack that is not aligned for them.)
template <class P, int... at>
[[gnu::always_inline]] inline void shuffle(typename P::Words& to, const typename P::Words& a,
                                           const typename P::Words& b) {
  to = __builtin_shuffle(a, b, typename P::Integers{at...});
}

/// The 16 bytes of `to` from byte 16 `at` on = those at `from`; at 0 clears the others.
template <int at, class Vector>
[[gnu::always_inline]] inline void load_piece(Vector& to, const void* from) {
  using Piece [[gnu::vector_size(16), gnu::aligned(1), gnu::may_alias]] = char;
  const Piece& piece = *static_cast<const Piece*>(from);
  if constexpr (sizeof(Vector) == 16)
    to = (Vector)piece;
  else if constexpr (at == 0)
    asm("vmovups %1, %x0" : "=v"(to) : "m"(piece));
  else if constexpr (sizeof(Vector) == 32)
    asm("vinsertf128 %2, %1, %0, %0" : "+x"(to) : "m"(piece), "i"(at));
  else
    asm("vinsertf32x4 %2, %1, %0, %0" : "+v"(to) : "m"(piece), "i"(at));
}

/// Whether add_products() exists; the CPU may still lack it.
constexpr bool products_of_bf16 = true;
inline bool has_products_of_bf16() { return __builtin_cpu_supports("avx512bf16"); }
/// sum += the two products of each pair of bf16.
template <class P>
[[gnu::always_inline]] inline void add_products(typename P::Vector& sum, const typename P::Words& a,
                                                const typename P::Words& b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

}  // namespace trireme::instructions

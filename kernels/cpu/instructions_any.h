// What takes the place of instructions_x86_64.h with Clang, which compiles the product to the same instruction, and on
// other processors. levels.h includes this file.
#pragma once

namespace trireme::instructions {

/// Products of the lower 32 bits of lanes of 64.
template <class L>
[[gnu::always_inline]] inline void multiply_lower(typename L::Vector& to, const typename L::Vector& a,
                                                  const typename L::Vector& b) {
  to = (a & 0xffffffffu) * (b & 0xffffffffu);
}

/// to = the words at these positions of a and b together.
template <class P, int... at>
[[gnu::always_inline]] inline void shuffle(typename P::Words& to, const typename P::Words& a,
                                           const typename P::Words& b) {
  to = __builtin_shufflevector(a, b, at...);
}

/// The 16 bytes of `to` from byte 16 `at` on = those at `from`; at 0 clears the others.
template <int at, class Vector>
[[gnu::always_inline]] inline void load_piece(Vector& to, const void* from) {
  if constexpr (at == 0) to = Vector{};
  __builtin_memcpy(reinterpret_cast<char*>(&to) + 16 * at, from, 16);
}

/// None: bf16 is computed in f32.
constexpr bool products_of_bf16 = false;
inline bool has_products_of_bf16() { return false; }
template <class P>
void add_products(typename P::Vector& sum, const typename P::Words& a, const typename P::Words& b);  // nowhere

}  // namespace trireme::instructions

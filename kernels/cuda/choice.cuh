// Formulas that a kernel chooses at run time: one kernel for a whole list of them.
#pragma once
#include <cstring>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {

/// A formula of a list, as kernels take it.
struct Choice {
  int number;
  double parameters[2];  ///< its bytes
};

/// The formulas F of a list, numbered: Formulas<pointwise::EachUnary<std::type_identity>>.
template <class List>
struct Formulas;
template <class... F>
struct Formulas<std::tuple<std::type_identity<F>...>> {
  /// Copies f, one of the list.
  template <class G>
  static Choice choice(const G& f) {
    static_assert(std::is_trivially_copyable_v<G> && sizeof(G) <= sizeof(Choice::parameters));
    Choice c{-1, {}};
    (void)((++c.number, std::is_same_v<F, G>) || ...);
    if constexpr (!std::is_empty_v<G>) std::memcpy(c.parameters, &f, sizeof(G));
    return c;
  }
  /// Calls use(formula).
  template <class Use>
  __device__ static void with(const Choice& c, const Use& use) {
    int number = 0;
    (void)((number++ == c.number && (with_one<F>(c, use), true)) || ...);
  }

 private:
  template <class G, class Use>
  __device__ static void with_one(const Choice& c, const Use& use) {
    if constexpr (std::is_empty_v<G>) {
      use(G{});
    } else {
      G f;
      std::memcpy(&f, c.parameters, sizeof(G));
      use(f);
    }
  }
};

}  // namespace trireme::gpu

// Parts that forward and backward of mixed-scale dense layers share on the CPU.
#pragma once
#include "kernels/contracts/mixed_scale.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/plans/mixed_scale_shape.h"

namespace trireme::mixed_scale {

constexpr Index stretch = 48;  ///< positions of a row per product: a multiple of the vector width and of row_step

constexpr Index round_up(Index n, Index step) { return (n + step - 1) / step * step; }

/// Memory for `count` numbers, for the length of a scope.
template <class A>
class Room {
 public:
  explicit Room(Index count) : memory_(static_cast<std::size_t>(count) * sizeof(A)) {}
  Room(Index count, A value) : Room(count) { std::fill_n(data(), count, value); }
  A* data() const { return memory_.template as<A>(); }

 private:
  onednn::Scratch memory_;
};

/// The functions on tiles of A that layers call, for vectors of one width. What calls them by pointers is compiled once
/// for all widths.
template <class A>
struct Code {
  using Product = void (*)(const tiles::Product<A, A>&);
  Index lanes;                                                                                  ///< numbers in a vector
  Product scaled, scaled_by_columns, added;                                                     ///< tiles::multiply
  void (*transpose)(A* to, Index ld, const A* from, Index ld_from, Index rows, Index columns);  ///< tiles::transpose
};
/// The code of the widest vectors of this CPU.
template <class A>
Code<A> code() {
  const auto of = []<class P>(P) -> Code<A> {
    using tiles::Into;
    return {P::lanes, tiles::multiply<P, false, Into::scaled>, tiles::multiply<P, true, Into::scaled>,
            tiles::multiply<P, false, Into::added>, tiles::transpose<P>};
  };
  switch (vector_level()) {
    case VectorLevel::v4: return of(tiles::Plain<A, 64>{});
    case VectorLevel::v3: return of(tiles::Plain<A, 32>{});
    case VectorLevel::base: break;
  }
  return of(tiles::Plain<A, 16>{});
}

/// Rows of numbers that a product reads.
template <class A>
struct Rows {
  const A* data;
  Index step;  ///< elements from one row to the next
};
/// The first `channels` features of `count` positions from `from` on, `width` elements apart: in place or, for bf16,
/// converted into room [count, channels].
template <class A, class T>
Rows<A> features(const T* from, Index width, Index channels, Index count, A* room) {
  if constexpr (std::is_same_v<A, T>) return {from, width};
  vectorised([=] {
    for (Index i = 0; i < count; ++i)
#pragma omp simd
      for (Index c = 0; c < channels; ++c) room[i * channels + c] = static_cast<A>(from[i * width + c]);
  });
  return {room, channels};
}

}  // namespace trireme::mixed_scale

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

/// Calls f(P{}, T{}) with the code (tiles::Plain) of the widest vectors for elements of T. Throws Error naming op for
/// types that the CPU does not compute in.
template <class F>
void with_code(DType type, std::string_view op, F&& f) {
  dispatch_float(type, op, [&](auto t) {
    using A = Accumulator<decltype(t)>;
    switch (vector_level()) {
      case VectorLevel::v4: return f(tiles::Plain<A, 64>{}, t);
      case VectorLevel::v3: return f(tiles::Plain<A, 32>{}, t);
      case VectorLevel::base: return f(tiles::Plain<A, 16>{}, t);
    }
  });
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

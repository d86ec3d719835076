// Mixed-scale dense layers, forward. A run of positions is multiplied by all 9 taps of a plane at once, so that
// features are read once. (A dot product per tap would read them 9 times, and has too few outputs to fill a vector.)
// The products are then transposed and added to the outputs that are one tap away.
//
// An output is the bias, followed by its taps in the order (row, plane, column), each a sum over channels in order.
// This order does not depend on where the run, a thread's rows or the box begin.
#include "kernels/cpu/mixed_scale.h"

#include "kernels/core/kernel.h"

namespace trireme {
namespace {

using mixed_scale::stretch;

/// w [outputs, planes, 9, channels] as right operands of products: [planes, channels, columns], columns o * 9 + tap,
/// then zeros.
template <class A>
void pack(A* to, const View& w, const MixedScaleShape& s, Index columns) {
  const mixed_scale::Room<A> all(w.numel());
  load(all.data(), w, 1, kernel::MixedScaleLayer::name);
  std::fill_n(to, s.planes * s.channels * columns, A{});
  const A* from = all.data();
  for (Index o = 0; o < s.outputs; ++o)
    for (Index plane = 0; plane < s.planes; ++plane)
      for (Index tap = 0; tap < 9; ++tap)
        for (Index c = 0; c < s.channels; ++c) to[(plane * s.channels + c) * columns + o * 9 + tap] = *from++;
}

/// Rows of one plane of the box, which one thread computes.
struct Strip {
  Index sample, plane, begin, end;
};

/// Computes strips; holds a thread's memory.
template <class T>
class Layer {
 public:
  using A = Accumulator<T>;
  Layer(T* block, const A* w, const A* bias, const MixedScaleShape& s, const mixed_scale::Code<A>& code, Index columns,
        Index most_rows)
      : block_(block),
        end_(block + s.n * s.cells() * s.width),
        w_(w),
        bias_(bias),
        s_(s),
        code_(code),
        columns_(columns),
        line_(s.size[2] + 4 * s.dilation),
        ring_(std::min(most_rows, 2 * s.dilation + 1)),
        sums_(ring_ * s.outputs * line_),
        products_(stretch * columns, A{}),
        turned_(stretch * columns),
        wide_(std::is_same_v<A, T> ? 0 : stretch * s.channels, A{}) {}

  void run(const Strip& strip) {
    const Index d = s_.dilation;
    strip_ = strip;
    for (Index row = strip.begin - d; row < strip.end + d; ++row) {
      if (inside(row + d)) open(row + d);
      if (row >= 0 && row < s_.extent[1] && (inside(row - d) || inside(row) || inside(row + d)))
        for (Index tap = 0; tap < s_.planes; ++tap) {
          const Index plane = strip.plane + (s_.planes == 3 ? (tap - 1) * d : 0);
          if (plane >= 0 && plane < s_.extent[0]) multiply(plane, row, tap);
        }
      if (inside(row - d)) close(row - d);
    }
  }

 private:
  bool inside(Index row) const { return row >= strip_.begin && row < strip_.end; }
  /// Sums of a row for output o: line_ numbers, of which the first 2 dilations are before the box.
  A* sums(Index row, Index o) const { return sums_.data() + ((row - strip_.begin) % ring_ * s_.outputs + o) * line_; }
  void open(Index row) const {
    for (Index o = 0; o < s_.outputs; ++o) std::fill_n(sums(row, o), line_, bias_[o]);
  }
  /// Adds the products of a row's features to the outputs of the rows above, of the same row and below.
  void multiply(Index plane, Index row, Index tap) const {
    const Index first = std::max<Index>(0, s_.begin[2] - s_.dilation);
    const Index last = std::min(s_.extent[2], s_.begin[2] + s_.size[2] + s_.dilation);
    const T* const line =
        block_ + ((strip_.sample * s_.extent[0] + plane) * s_.extent[1] + row) * s_.extent[2] * s_.width;
    for (Index at = first; at < last; at += stretch) {
      const Index count = std::min(stretch, last - at);
      // Some positions more where there are any, so that the product has whole tiles of rows.
      const Index padded = mixed_scale::round_up(count, tiles::row_step);
      const bool room = !std::is_same_v<A, T> || line + (at + padded) * s_.width <= end_;
      const auto rows = mixed_scale::features<A>(line + at * s_.width, s_.width, s_.channels, count, wide_.data());
      code_.scaled({products_.data(), columns_, rows.data, rows.step, w_ + tap * s_.channels * columns_, columns_,
                    room ? padded : count, columns_, s_.channels});
      code_.transpose(turned_.data(), stretch, products_.data(), columns_, mixed_scale::round_up(count, code_.lanes),
                      columns_);
      for (Index o = 0; o < s_.outputs; ++o)
        for (Index down = -1; down <= 1; ++down)
          if (inside(row - down * s_.dilation))
            add(sums(row - down * s_.dilation, o) + at - s_.begin[2] + 2 * s_.dilation,
                turned_.data() + (o * 9 + (down + 1) * 3) * stretch, count);
    }
  }
  /// Adds the products of the three taps of a filter's row to the sums around `to`, the sum of the first position.
  void add(A* to, const A* products, Index count) const {
    vectorised([=, d = s_.dilation] {
      for (Index across = -1; across <= 1; ++across) {
        A* const sum = to - across * d;
        const A* const from = products + (across + 1) * stretch;
#pragma omp simd
        for (Index i = 0; i < count; ++i) sum[i] += from[i];
      }
    });
  }
  void close(Index row) const {
    T* const to =
        block_ +
        (((strip_.sample * s_.extent[0] + strip_.plane) * s_.extent[1] + row) * s_.extent[2] + s_.begin[2]) * s_.width +
        s_.channels;
    for (Index o = 0; o < s_.outputs; ++o) {
      const A* const sum = sums(row, o) + 2 * s_.dilation;
      for (Index i = 0; i < s_.size[2]; ++i) put(to[i * s_.width + o], sum[i] <= 0 ? A{} : sum[i]);
    }
  }

  T *block_, *end_;
  const A *w_, *bias_;
  const MixedScaleShape s_;
  const mixed_scale::Code<A> code_;
  Index columns_, line_, ring_;  // of a packed filter; sums in a row; rows that are summed at a time
  Strip strip_ = {};
  mixed_scale::Room<A> sums_, products_, turned_, wide_;
};

void mixed_scale_layer(View block, View w, View bias, const MixedScaleOptions& options) {
  constexpr auto op = kernel::MixedScaleLayer::name;
  const MixedScaleShape s = mixed_scale_shape(block, options, op);
  check_mixed_scale_weights(s, block, w, bias, op);
  if (s.n * s.box_cells() == 0) return;
  dispatch_float(block.dtype, op, [&]<class T>(T) {
    using A = Accumulator<T>;
    const auto code = mixed_scale::code<A>();
    const Index columns = mixed_scale::round_up(9 * s.outputs, code.lanes);
    const mixed_scale::Room<A> packed(s.planes * s.channels * columns), shift(s.outputs, A{});
    pack(packed.data(), w, s, columns);
    if (bias) load(shift.data(), bias, 1, op);
    // Strips of a plane compute products of rows beyond their ends: whole planes where there are enough.
    const Index planes = s.n * s.size[0], rows = s.size[1];
    const Index strips = planes % threads() == 0 ? 1 : std::clamp<Index>(rows / (2 * s.dilation), 1, threads());
    parallel_for(planes * strips, rows / strips * s.size[2] * s.taps() * s.channels * s.outputs,
                 [&](Index begin, Index end) {
                   Layer<T> layer(block.as<T>(), packed.data(), shift.data(), s, code, columns, rows / strips + 1);
                   for (Index i = begin; i < end; ++i) {
                     const Index plane = i / strips, k = i % strips;
                     layer.run({plane / s.size[0], s.begin[0] + plane % s.size[0], s.begin[1] + rows * k / strips,
                                s.begin[1] + rows * (k + 1) / strips});
                   }
                 });
  });
}

const Kernel<kernel::MixedScaleLayer> mixed_scale_layer_cpu{DeviceKind::cpu, mixed_scale_layer};

}  // namespace
}  // namespace trireme

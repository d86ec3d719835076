// The tail of a convolution block in one pass over its output: bias, ReLU, max pooling, dropout; and the way
// back.
#include "kernels/core/kernel.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/pool_shape.h"

namespace trireme {
namespace {

constexpr Index tile_rows = 64;  ///< channels whose running maximum lies on the stack at one time

/// One tile of channels of one window. x: the window's first cell; cell k is at x + offset[k]. bits: one number per
/// channel, or none.
template <class T, class B>
void forward_tile(T* y, std::uint8_t* index, const T* x, const Index* offset, Index cells, const T* bias, B bits,
                  std::uint32_t threshold, Accumulator<T> scale, Index count) {
  using A = Accumulator<T>;
  A best[tile_rows];
  std::int32_t winner[tile_rows];
  for (Index k = 0; k < cells; ++k) {
    const T* v = x + offset[k];
    const bool start = k == 0;
    const auto here = static_cast<std::int32_t>(k);
#pragma omp simd
    for (Index c = 0; c < count; ++c) {
      A value =
          bias ? static_cast<A>(static_cast<T>(static_cast<A>(v[c]) + static_cast<A>(bias[c]))) : static_cast<A>(v[c]);
      bool better = start | (value > best[c]) | (value != value);  // NaN wins, as in PyTorch
      best[c] = better ? value : best[c];
      winner[c] = better ? here : winner[c];
    }
  }
#pragma omp simd
  for (Index c = 0; c < count; ++c) {
    bool passes = !(best[c] <= A(0));
    if constexpr (!std::is_same_v<B, std::nullptr_t>) passes = passes & (bits[c] >> 8 >= threshold);
    y[c] = (passes | (best[c] != best[c])) ? static_cast<T>(best[c] * scale) : static_cast<T>(0.f);  // NaN is kept
    index[c] = static_cast<std::uint8_t>(passes ? winner[c] : no_gradient);
  }
}

/// Positions of the cells of a window, in elements from its first cell.
std::vector<Index> window_offsets(const PoolShape& s) {
  std::vector<Index> offset;
  s.for_window(0, 0, 0, [&](Index, Index cell) { offset.push_back(cell * s.channels); });
  return offset;
}

struct Row {
  Index n, o0, o1;
  Row(const PoolShape& s, Index r) : n(r / s.out[1] / s.out[0]), o0(r / s.out[1] % s.out[0]), o1(r % s.out[1]) {}
  /// First element of this row of windows in the input.
  Index in(const PoolShape& s) const {
    return ((n * s.in[0] + o0 * s.stride[0]) * s.in[1] + o1 * s.stride[1]) * s.in[2] * s.channels;
  }
};

template <class T>
void forward_rows(Index begin, Index end, const View& y, const View& index, const View& x, const View& bias,
                  const View& sample, const PoolShape& s, const std::vector<Index>& offset, double p, MaskKey key) {
  using A = Accumulator<T>;
  const Index width = s.out[2] * s.channels, channels = s.channels;
  const Index run = (width + 6) / 4;  // Philox counters that cover a row wherever it begins
  onednn::Scratch random(p > 0 ? static_cast<std::size_t>(run) * 16 : 0);
  const A scale = static_cast<A>(1 / (1 - p));
  const std::uint32_t threshold = drop_threshold(p);
  for (Index r = begin; r < end; ++r) {
    Row row(s, r);
    Index element = (row.o0 * s.out[1] + row.o1) * width;  // within the sample
    auto id = static_cast<std::uint64_t>(sample ? sample.as<Index>()[row.n] : row.n);
    if (p > 0) philox_fill(random.as<std::uint32_t>(), key(), id, static_cast<std::uint64_t>(element / 4), run);
    vectorised([=, from = x.as<const T>() + row.in(s), to = y.as<T>() + r * width, b = bias.as<const T>(),
                at = index.as<std::uint8_t>() + r * width, cell = offset.data(), cells = s.window_cells(),
                bits = random.as<const std::uint32_t>() + (p > 0 ? element % 4 : 0), count = s.out[2],
                step = s.stride[2] * channels, drop = p > 0] {
      for (Index o = 0; o < count; ++o)
        for (Index c = 0; c < channels; c += tile_rows) {
          Index i = o * channels + c, some = std::min(tile_rows, channels - c);
          const T* v = from + o * step + c;
          const T* add = b ? b + c : nullptr;
          if (drop)
            forward_tile(to + i, at + i, v, cell, cells, add, bits + i, threshold, scale, some);
          else
            forward_tile(to + i, at + i, v, cell, cells, add, nullptr, threshold, scale, some);
        }
    });
  }
}

void bias_relu_pool_dropout(View y, View index, View x, View bias, View sample, const PoolOptions& o, double p,
                            MaskKey key) {
  PoolShape s = pool_block_shape(y, index, x, bias, sample, o, p);
  const std::vector<Index> offset = window_offsets(s);
  dispatch_float(x.dtype, kernel::BiasReluPoolDropout::name, [&]<class T>(T) {
    parallel_for(s.n * s.out[0] * s.out[1], s.out[2] * s.channels * s.window_cells(), [&](Index begin, Index end) {
      forward_rows<T>(begin, end, y, index, x, bias, sample, s, offset, p, key);
    });
  });
}

/// Writes one row of windows of dx whole, with the columns that no window covers, and adds it to sum [C].
template <class T>
void backward_row(T* dx, const PoolShape& s, const std::vector<Index>& offset, const T* dy, const std::uint8_t* index,
                  Accumulator<T> scale, Accumulator<T>* sum) {
  using A = Accumulator<T>;
  vectorised([=, cell = offset.data(), cells = s.window_cells(), channels = s.channels, count = s.out[2],
              step = s.stride[2] * s.channels] {
    for (Index o = 0; o < count; ++o)
      for (Index c0 = 0; c0 < channels; c0 += tile_rows) {
        const Index some = std::min(tile_rows, channels - c0);
        const T* g = dy + o * channels + c0;
        const std::uint8_t* at = index + o * channels + c0;
        A gradient[tile_rows];
        std::int32_t winner[tile_rows];
#pragma omp simd
        for (Index c = 0; c < some; ++c) {
          winner[c] = at[c];
          gradient[c] = static_cast<A>(static_cast<T>(static_cast<A>(g[c]) * scale));
          if (sum) sum[c0 + c] += winner[c] == no_gradient ? A(0) : gradient[c];
        }
        for (Index k = 0; k < cells; ++k) {
          T* to = dx + o * step + cell[k] + c0;
          const auto here = static_cast<std::int32_t>(k);
#pragma omp simd
          for (Index c = 0; c < some; ++c) to[c] = static_cast<T>(winner[c] == here ? gradient[c] : A(0));
        }
      }
  });
}

/// Zeroes what no window covers: the ends of axes that the window does not divide.
template <class T>
void zero_rest(T* dx, const PoolShape& s) {
  Extents covered;
  for (std::size_t d = 0; d < 3; ++d) covered[d] = s.out[d] * s.stride[d];
  if (covered == s.in) return;
  for (Index i0 = 0; i0 < s.in[0]; ++i0)
    for (Index i1 = 0; i1 < s.in[1]; ++i1) {
      Index from = i0 < covered[0] && i1 < covered[1] ? covered[2] : 0;
      T* row = dx + (i0 * s.in[1] + i1) * s.in[2] * s.channels;
      std::fill(row + from * s.channels, row + s.in[2] * s.channels, T(0.f));
    }
}

template <class T>
void pool_block_backward(const View& dx, const View& dbias, const View& dy, const View& index, const PoolShape& s,
                         double p, bool accumulate_bias, std::string_view op) {
  using A = Accumulator<T>;
  const std::vector<Index> offset = window_offsets(s);
  const Index rows = s.out[0] * s.out[1], width = s.out[2] * s.channels;
  const A scale = static_cast<A>(1 / (1 - p));
  // One partial bias gradient per chunk of samples, added in order: repeatable for a given number of threads.
  std::vector<std::vector<A>> partial(static_cast<std::size_t>(threads()));
  parallel_for(s.n, s.in_cells() * s.channels, [&](Index begin, Index end, int chunk) {
    std::vector<A> sum(dbias ? static_cast<std::size_t>(s.channels) : 0, A(0));
    for (Index r = begin * rows; r < end * rows; ++r)
      backward_row<T>(dx.as<T>() + Row(s, r).in(s), s, offset, dy.as<const T>() + r * width,
                      index.as<const std::uint8_t>() + r * width, scale, dbias ? sum.data() : nullptr);
    for (Index n = begin; n < end; ++n) zero_rest(dx.as<T>() + n * s.in_cells() * s.channels, s);
    partial[static_cast<std::size_t>(chunk)] = std::move(sum);
  });
  if (!dbias) return;
  std::vector<A> total(static_cast<std::size_t>(s.channels), A(0));
  for (const auto& sum : partial)
    for (std::size_t c = 0; c < sum.size(); ++c) total[c] += sum[c];
  store(dbias, total.data(), accumulate_bias, op);
}

void bias_relu_pool_dropout_backward(View dx, View dbias, View dy, View index, const PoolOptions& o, double p,
                                     bool accumulate_bias) {
  constexpr auto op = kernel::BiasReluPoolDropoutBackward::name;
  PoolShape s = pool_block_backward_shape(dx, dbias, dy, index, o, p);
  dispatch_float(dx.dtype, op,
                 [&]<class T>(T) { pool_block_backward<T>(dx, dbias, dy, index, s, p, accumulate_bias, op); });
}

const Kernel<kernel::BiasReluPoolDropout> forward_cpu{DeviceKind::cpu, bias_relu_pool_dropout};
const Kernel<kernel::BiasReluPoolDropoutBackward> pool_block_backward_cpu{DeviceKind::cpu,
                                                                          bias_relu_pool_dropout_backward};

}  // namespace
}  // namespace trireme

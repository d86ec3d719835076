// Convolutions for which oneDNN 2.6 is slow in channels last, in f32 with AVX2 or AVX-512: few input channels (a grey
// or colour image), and the filter's gradient. Sums stay in registers over a whole sample. For other cases see
// conv.cpp.
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

constexpr Index ahead = 8;  // output positions: how early the next lines are fetched from the second cache

/// The rows that one convolution passes over: rows along the last spatial axis, one list of rows per outer filter cell.
struct RowPlan {
  Index taps = 1, tap_step = 1,
        step = 1;   // cells along a filter row; elements between them; between output positions
  Index width = 0;  // outputs in a row
  struct Row {
    Index x, y;  // first element within the sample
  };
  std::vector<std::vector<Row>> rows;
};

/// For an input without padding, channels elements per cell.
RowPlan row_plan(const ConvShape& s, const Extents& in) {
  RowPlan w;
  auto last = static_cast<std::size_t>(s.dims - 1);
  Extents out = s.out, filter = s.filter;
  w.taps = filter[last];
  w.tap_step = s.options.dilation[last] * s.c_in;
  w.step = s.options.stride[last] * s.c_in;
  w.width = out[last];
  out[last] = filter[last] = 1;
  Extents cell{1, 1, 1};  // input cells per step of each axis
  for (std::size_t d = last; d-- > 0;) cell[d] = cell[d + 1] * in[d + 1];
  auto offset = [&](const Extents& o, const Extents& f) {
    Index x = 0;
    for (std::size_t d = 0; d < last; ++d) x += (o[d] * s.options.stride[d] + f[d] * s.options.dilation[d]) * cell[d];
    return x * s.c_in;
  };
  for (Index f0 = 0; f0 < filter[0]; ++f0)
    for (Index f1 = 0; f1 < filter[1]; ++f1) {
      auto& rows = w.rows.emplace_back();
      for (Index o0 = 0; o0 < out[0]; ++o0)
        for (Index o1 = 0; o1 < out[1]; ++o1)
          rows.push_back({offset({o0, o1, 0}, {f0, f1, 0}), (o0 * out[1] + o1) * w.width * s.c_out});
    }
  return w;
}

bool unpadded(const ConvShape& s) {
  constexpr Extents none{0, 0, 0};
  return s.options.pad_begin == none && s.options.pad_end == none;
}

// --- The filter's gradient with many input channels: vectors along (tap, input channel), `outs` output
// channels.

/// dw[o][v] += sum over outputs of dy[o] * x[v], for O output channels and V vectors.
template <class L, int V, int O>
void gather_gradient(float* dw, Index dw_step, const float* x, const float* dy, Index dy_step, const RowPlan& w,
                     std::span<const RowPlan::Row> rows) {
  L::run([=, step = w.step, width = w.width] {
    using Vector = typename L::Vector;
    Vector sum[O][V];
    for (int o = 0; o < O; ++o)
      for (int v = 0; v < V; ++v) sum[o][v] = L::at(dw + o * dw_step + v * L::lanes);
    for (const auto& row : rows) {
      const float* p = x + row.x;
      const float* g = dy + row.y;
      for (Index i = 0; i < width; ++i, p += step, g += dy_step) {
        Vector in[V];
        for (int v = 0; v < V; ++v) in[v] = L::at(p + v * L::lanes);
        __builtin_prefetch(g + ahead * dy_step);
        __builtin_prefetch(p + ahead * step + (V - 1) * L::lanes);
        if constexpr (V > 1) __builtin_prefetch(p + ahead * step + (V - 2) * L::lanes);
        for (int o = 0; o < O; ++o)
          for (int v = 0; v < V; ++v) sum[o][v] += in[v] * g[o];
      }
    }
    for (int o = 0; o < O; ++o)
      for (int v = 0; v < V; ++v) L::at(dw + o * dw_step + v * L::lanes) = sum[o][v];
  });
}

constexpr int outs = 4;
using Gather = void(float*, Index, const float*, const float*, Index, const RowPlan&, std::span<const RowPlan::Row>);
/// By number of vectors, less one. Sums, inputs and a factor fill the registers.
template <class L>
constexpr auto gathers = []<int... V>(std::integer_sequence<int, V...>) {
  return std::array<Gather*, sizeof...(V)>{gather_gradient<L, V + 1, outs>...};
}
(std::make_integer_sequence<int, L::registers == 32 ? 6 : 3>{});

/// Number of elements that are adjacent in both input and filter: a whole filter row unless it is dilated.
Index side_by_side(const ConvShape& s) {
  auto last = static_cast<std::size_t>(s.dims - 1);
  return s.c_in * (s.options.dilation[last] == 1 ? s.filter[last] : 1);
}

/// Rows of outputs whose inputs and gradients stay in the second cache while all of dw passes over them.
std::size_t rows_together(const ConvShape& s, const RowPlan& w) {
  constexpr Index budget = 300 << 10;
  Index bytes = w.width * (w.step + s.c_out) * Index{sizeof(float)};
  return static_cast<std::size_t>(std::max<Index>(1, budget / bytes));
}

/// dw [O, taps, I] += the gradient of one sample.
template <class L>
void large_cin_sample(float* dw, const float* x, const float* dy, const ConvShape& s, const RowPlan& w) {
  constexpr Index lanes = L::lanes, most = std::ssize(gathers<L>);
  const Index filter = s.filter_cells() * s.c_in, row = w.taps * s.c_in, together = side_by_side(s) / lanes;
  const Index groups = (together + most - 1) / most;
  const std::size_t all = w.rows[0].size(), block = rows_together(s, w);
  for (std::size_t begin = 0; begin < all; begin += block)
    for (std::size_t f = 0; f < w.rows.size(); ++f) {
      std::span<const RowPlan::Row> rows(w.rows[f].data() + begin, std::min(block, all - begin));
      for (Index run = 0; run < row / (together * lanes); ++run)
        for (Index g = 0; g < groups; ++g) {
          Index first = together * g / groups, count = together * (g + 1) / groups - first;
          float* to = dw + static_cast<Index>(f) * row + run * together * lanes + first * lanes;
          const float* from = x + run * w.tap_step + first * lanes;
          for (Index o = 0; o < s.c_out; o += outs)
            gathers<L>[static_cast<std::size_t>(count - 1)](to + o * filter, filter, from, dy + o, s.c_out, w, rows);
        }
    }
}

// --- SmallCin input channels: vectors along the output channels, all filter cells in registers.

constexpr int pixels = 6;

/// y [width, C] = bias + sum over k of w[k, C] * x[offset[k]], 2 or 1 vectors of channels (V), then ReLU.
template <class L, int V>
void small_cin_forward_row(float* y, Index channels, const float* x, Index step, Index width, const float* w,
                           const Index* offset, Index cells, const float* bias, bool relu) {
  L::run([=] {
    using Vector = typename L::Vector;
    constexpr Index lanes = L::lanes;
    auto strip = [=]<int P>(std::integral_constant<int, P>, Index i) __attribute__((always_inline)) {
      Vector sum[P][V];
      for (int p = 0; p < P; ++p)
        for (int v = 0; v < V; ++v) sum[p][v] = bias ? L::at(bias + v * lanes) : Vector{};
      const float* from = x + i * step;
      for (Index k = 0; k < cells; ++k)
        for (int v = 0; v < V; ++v)
          for (int p = 0; p < P; ++p) sum[p][v] += L::at(w + k * channels + v * lanes) * from[offset[k] + p * step];
      for (int p = 0; p < P; ++p)
        for (int v = 0; v < V; ++v) {
          Vector out = sum[p][v];
          if (relu) out = out <= 0.f ? Vector{} : out;
          L::at(y + (i + p) * channels + v * lanes) = out;
        }
    };
    Index i = 0;
    for (; i + pixels <= width; i += pixels) strip(std::integral_constant<int, pixels>{}, i);
    for (; i < width; ++i) strip(std::integral_constant<int, 1>{}, i);
  });
}

/// dw[k, V vectors of channels] += sum over outputs of x[offset[k]] * dy, for K filter cells; Bias: dbias += sum of dy.
template <class L, int K, int V, bool Bias>
void small_cin_gradient(float* dw, float* dbias, Index channels, const float* x, const float* dy, const RowPlan& w,
                        const Index* offset) {
  L::run([=, rows = std::span(w.rows[0]), width = w.width, step = w.step] {
    using Vector = typename L::Vector;
    constexpr Index lanes = L::lanes;
    Vector sum[K][V], total[V] = {};
    Index place[K];
    for (int k = 0; k < K; ++k) {
      place[k] = offset[k];
      for (int v = 0; v < V; ++v) sum[k][v] = L::at(dw + k * channels + v * lanes);
    }
    for (const auto& row : rows) {
      const float* p = x + row.x;
      const float* g = dy + row.y;
      for (Index i = 0; i < width; ++i, p += step, g += channels) {
        for (int k = 0; k < K; ++k)
          for (int v = 0; v < V; ++v) sum[k][v] += L::at(g + v * lanes) * p[place[k]];
        if constexpr (Bias)
          for (int v = 0; v < V; ++v) total[v] += L::at(g + v * lanes);
      }
    }
    for (int v = 0; v < V; ++v) {
      for (int k = 0; k < K; ++k) L::at(dw + k * channels + v * lanes) = sum[k][v];
      if constexpr (Bias) L::at(dbias + v * lanes) += total[v];
    }
  });
}

/// dw [cells + 1, C]: its last row is the bias gradient.
template <class L, int V>
void small_cin_gradients(float* dw, Index channels, const float* x, const float* dy, const RowPlan& w,
                         const Index* offset, Index cells) {
  using Fn = void(float*, float*, Index, const float*, const float*, const RowPlan&, const Index*);
  constexpr Index most = L::registers == 32 || V == 1 ? 9 : 5;
  constexpr auto table = []<int... K>(std::integer_sequence<int, K...>) {
    return std::array<std::array<Fn*, most>, 2>{
        {{small_cin_gradient<L, K + 1, V, false>...}, {small_cin_gradient<L, K + 1, V, true>...}}};
  }
  (std::make_integer_sequence<int, most>{});
  for (Index k = 0; k < cells; k += most) {
    Fn* gradient = table[k == 0][static_cast<std::size_t>(std::min(most, cells - k) - 1)];
    gradient(dw + k * channels, dw + cells * channels, channels, x, dy, w, offset + k);
  }
}

/// A convolution of few channels: the input's extents with padding, and the offset of each (filter cell, channel) from
/// an output's first input.
struct SmallCin {
  Extents in;
  RowPlan rows_;
  std::vector<Index> offset;
  bool copy;

  explicit SmallCin(const ConvShape& s) : in(s.in), copy(!unpadded(s)) {
    for (std::size_t d = 0; d < 3; ++d) in[d] += s.options.pad_begin[d] + s.options.pad_end[d];
    rows_ = row_plan(s, in);
    for (const auto& rows : rows_.rows)
      for (Index t = 0; t < rows_.taps; ++t)
        for (Index c = 0; c < s.c_in; ++c) offset.push_back(rows[0].x + t * rows_.tap_step + c);
  }
  Index cells() const { return static_cast<Index>(offset.size()); }
  std::size_t bytes(const ConvShape& s) const {
    return copy ? static_cast<std::size_t>(in[0] * in[1] * in[2] * s.c_in) * sizeof(float) : 0;
  }
  /// x itself, or x inside padded, whose border holds zeros.
  const float* place(float* padded, const float* x, const ConvShape& s) const {
    if (!copy) return x;
    const auto& pad = s.options.pad_begin;
    for (Index i0 = 0; i0 < s.in[0]; ++i0)
      for (Index i1 = 0; i1 < s.in[1]; ++i1)
        std::copy_n(x + (i0 * s.in[1] + i1) * s.in[2] * s.c_in, s.in[2] * s.c_in,
                    padded + (((i0 + pad[0]) * in[1] + i1 + pad[1]) * in[2] + pad[2]) * s.c_in);
    return padded;
  }
};

/// Bytes of partial sums [chunk, count].
std::size_t chunk_bytes(Index count) { return static_cast<std::size_t>(threads() * count) * sizeof(float); }

/// Each thread clears the partial sums to which it adds. For 64 threads they have up to 16 MiB.
void clear_chunks(float* partial, Index count) {
  parallel_for(threads(), count,
               [=](Index begin, Index end) { std::fill(partial + begin * count, partial + end * count, 0.f); });
}

/// to[i] (+)= number place(i) of each chunk's partial sums [chunk, count], added in order: the result depends
/// on the number of threads alone.
template <class Place>
void reduce_chunks(const View& to, const float* partial, Index count, bool accumulate, Place place) {
  Index chunks = threads();
  float* out = to.as<float>();
  parallel_for(to.numel(), chunks, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      float sum = accumulate ? out[i] : 0.f;
      for (Index k = 0; k < chunks; ++k) sum += partial[k * count + place(i)];
      out[i] = sum;
    }
  });
}

bool plain_f32(const View& x, const ConvShape& s) {
  return x.dtype == DType::f32 && s.options.groups == 1 && vector_level() >= VectorLevel::v3;
}

}  // namespace

bool conv_direct_small_cin(const View& x, const ConvShape& s) {
  const Index lanes = vector_level() == VectorLevel::v4 ? 16 : 8;
  return plain_f32(x, s) && s.c_in <= 4 && s.c_out % lanes == 0 && s.filter_cells() * s.c_in <= 64;
}

bool wgrad_direct_large_cin(const View& x, const ConvShape& s) {
  // Small images and large filters are left to oneDNN: sums would move between registers and memory too often.
  Index filter = s.filter_cells() * s.c_in * s.c_out;
  return plain_f32(x, s) && unpadded(s) && s.c_in % 16 == 0 && s.c_out % outs == 0 && s.n >= threads() &&
         side_by_side(s) >= 64 && s.out_cells() >= 256 && filter <= Index{1} << 16;
}

void conv_direct(View y, View x, View w, View bias, const ConvShape& s) {
  const SmallCin plan(s);
  const Index cells = plan.cells(), channels = s.c_out;
  onednn::Scratch transposed(static_cast<std::size_t>(cells * channels) * sizeof(float));  // [filter cell, O]
  for (Index k = 0; k < cells; ++k)
    for (Index o = 0; o < channels; ++o) transposed.as<float>()[k * channels + o] = w.as<float>()[o * cells + k];
  parallel_for(s.n, s.out_cells() * channels * cells, [&](Index begin, Index end) {
    onednn::Scratch padded(plan.bytes(s));
    if (plan.copy) std::memset(padded.data(), 0, plan.bytes(s));
    for (Index n = begin; n < end; ++n) {
      const float* from = plan.place(padded.as<float>(), x.as<float>() + n * s.in_cells() * s.c_in, s);
      with_vectors([&]<class L>(L) {
        for (const auto& row : plan.rows_.rows[0])
          for (Index o = 0; o < channels;) {
            float* to = y.as<float>() + n * s.out_cells() * channels + row.y + o;
            bool two = o + 2 * L::lanes <= channels;
            (two ? small_cin_forward_row<L, 2>
                 : small_cin_forward_row<L, 1>)(to, channels, from + row.x, plan.rows_.step, plan.rows_.width,
                                                transposed.as<float>() + o, plan.offset.data(), cells,
                                                bias ? bias.as<float>() + o : nullptr, s.options.relu);
            o += two ? 2 * L::lanes : L::lanes;
          }
      });
    }
  });
}

void conv_backward_weight_small_cin(View dw, View dbias, View x, View dy, const ConvShape& s, bool accumulate) {
  const SmallCin plan(s);
  const Index cells = plan.cells(), channels = s.c_out, count = (cells + 1) * channels;
  const onednn::Scratch partial(chunk_bytes(count));  // [chunk, filter cell, O]
  clear_chunks(partial.as<float>(), count);
  parallel_for(s.n, s.out_cells() * count, [&](Index begin, Index end, int chunk) {
    onednn::Scratch padded(plan.bytes(s));
    if (plan.copy) std::memset(padded.data(), 0, plan.bytes(s));
    for (Index n = begin; n < end; ++n) {
      const float* from = plan.place(padded.as<float>(), x.as<float>() + n * s.in_cells() * s.c_in, s);
      with_vectors([&]<class L>(L) {
        for (Index o = 0; o < channels;) {
          bool two = o + 2 * L::lanes <= channels;
          (two ? small_cin_gradients<L, 2>
               : small_cin_gradients<L, 1>)(partial.as<float>() + chunk * count + o, channels, from,
                                            dy.as<float>() + n * s.out_cells() * channels + o, plan.rows_,
                                            plan.offset.data(), cells);
          o += two ? 2 * L::lanes : L::lanes;
        }
      });
    }
  });
  reduce_chunks(dw, partial.as<float>(), count, accumulate, [=](Index i) { return i % cells * channels + i / cells; });
  if (dbias)
    reduce_chunks(dbias, partial.as<float>(), count, accumulate, [=](Index i) { return cells * channels + i; });
}

void conv_backward_weight_large_cin(View dw, View x, View dy, const ConvShape& s, bool accumulate) {
  const RowPlan w = row_plan(s, s.in);
  const Index count = dw.numel();
  const onednn::Scratch partial(chunk_bytes(count));
  clear_chunks(partial.as<float>(), count);
  parallel_for(s.n, s.out_cells() * count, [&](Index begin, Index end, int chunk) {
    with_vectors([&]<class L>(L) {
      for (Index n = begin; n < end; ++n)
        large_cin_sample<L>(partial.as<float>() + chunk * count, x.as<float>() + n * s.in_cells() * s.c_in,
                            dy.as<float>() + n * s.out_cells() * s.c_out, s, w);
    });
  });
  reduce_chunks(dw, partial.as<float>(), count, accumulate, [](Index i) { return i; });
}

}  // namespace trireme

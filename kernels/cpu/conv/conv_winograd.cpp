// Convolutions of 3 x 3 filters with stride 1 in f32 with AVX2 or AVX-512, by Winograd's minimal filtering F(m x m, 3 x
// 3) (Lavin and Gray, arXiv 1509.09308): a tile of m x m outputs costs (m + 2)^2 products for a pair of channels
// instead of 9 m^2. m = 2 is used in training: its rounding errors are as small as those of the direct sum, and it is
// exact for small integers. m = 4 is used for filters that an Inference caches: it needs fewer products, with rounding
// errors about ten times as large.
#include <array>
#include <atomic>
#include <utility>

#include "kernels/cpu/conv/conv_dnnl.h"
#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

constexpr Index cache_line = 16;  // floats
/// Output channels that a product takes at a time: two vectors.
template <class L>
constexpr Index panel = 2 * L::lanes;
/// Tiles that a product takes at a time: 28 sums in 32 registers, or 12 in 16.
template <class L>
constexpr int most_rows = L::registers == 32 ? 14 : 6;

/// The transforms of one line, of vectors of L: B^T of M + 2 inputs, G of 3 filter cells, A^T to M outputs.
template <class L, int M>
struct Line;

template <class L>
struct Line<L, 2> {
  using V = typename L::Vector;
  [[gnu::always_inline]] static void input(const V (&d)[4], V (&v)[4]) {
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
  }
  [[gnu::always_inline]] static void filter(const V (&g)[3], V (&u)[4]) {
    const V ends = (g[0] + g[2]) * 0.5f, middle = g[1] * 0.5f;
    u[0] = g[0];
    u[1] = ends + middle;
    u[2] = ends - middle;
    u[3] = g[2];
  }
  [[gnu::always_inline]] static void output(const V (&m)[4], V (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }
  // Transposed.
  [[gnu::always_inline]] static void output_gradient(const V (&dy)[2], V (&m)[4]) {
    m[0] = dy[0];
    m[1] = dy[0] + dy[1];
    m[2] = dy[0] - dy[1];
    m[3] = -dy[1];
  }
  [[gnu::always_inline]] static void filter_gradient(const V (&u)[4], V (&g)[3]) {
    const V ends = (u[1] + u[2]) * 0.5f;
    g[0] = u[0] + ends;
    g[1] = (u[1] - u[2]) * 0.5f;
    g[2] = ends + u[3];
  }
};

template <class L>
struct Line<L, 4> {
  using V = typename L::Vector;
  [[gnu::always_inline]] static void input(const V (&d)[6], V (&v)[6]) {
    const V a = d[4] - d[2] * 4.f, b = d[3] - d[1] * 4.f, c = d[4] - d[2], e = (d[3] - d[1]) * 2.f;
    v[0] = d[0] * 4.f - d[2] * 5.f + d[4];
    v[1] = a + b;
    v[2] = a - b;
    v[3] = c + e;
    v[4] = c - e;
    v[5] = d[1] * 4.f - d[3] * 5.f + d[5];
  }
  [[gnu::always_inline]] static void filter(const V (&g)[3], V (&u)[6]) {
    const V a = (g[0] + g[2]) * (-1.f / 6), b = g[1] * (-1.f / 6);
    const V c = g[0] * (1.f / 24) + g[2] * (1.f / 6), e = g[1] * (1.f / 12);
    u[0] = g[0] * 0.25f;
    u[1] = a + b;
    u[2] = a - b;
    u[3] = c + e;
    u[4] = c - e;
    u[5] = g[2];
  }
  [[gnu::always_inline]] static void output(const V (&m)[6], V (&y)[4]) {
    const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    y[0] = m[0] + a + c;
    y[1] = b + e * 2.f;
    y[2] = a + c * 4.f;
    y[3] = b + e * 8.f + m[5];
  }
};

/// Memory of one block of tiles: inputs [cells][tiles, in] and products [cells][tiles, out]. The step between the
/// cells' matrices is a cache line more than a power of two, so that they do not share cache sets.
struct Block {
  float *inputs, *products;
  Index inputs_step, products_step;  // from cell to cell
};

float* aligned(float* p) {
  constexpr std::uintptr_t line = 64;
  return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(p) + line - 1) / line * line);
}

/// From cell to cell of a filter.
Index filter_step(const ConvShape& s) { return s.c_in * s.c_out + cache_line; }

struct TileGrid {
  Index high, wide, tiles;  // tiles of one image along its axes; of all images
};
TileGrid tile_grid(const ConvShape& s, Index m) {
  TileGrid w{(s.out[0] + m - 1) / m, (s.out[1] + m - 1) / m, 0};
  w.tiles = s.n * w.high * w.wide;
  return w;
}
/// First output cell of a tile.
struct TileOrigin {
  Index image, row, column;
};
TileOrigin tile_origin(const TileGrid& w, Index tile, Index m) {
  return {tile / (w.high * w.wide), tile / w.wide % w.high * m, tile % w.wide * m};
}

template <class L, int M>
void transform_input(const Block& b, Index row, const float* x, const TileOrigin& p, const ConvShape& s) {
  const float* const image = x + p.image * s.in_cells() * s.c_in;
  float* const to = b.inputs + row * s.c_in;
  const Index top = p.row - s.options.pad_begin[0], left = p.column - s.options.pad_begin[1];
  L::run([=, channels = s.c_in, high = s.in[0], wide = s.in[1], step = b.inputs_step] {
    using Vector = typename L::Vector;
    constexpr int side = M + 2;
    const float* cell[side * side];  // null: padding
    for (int i = 0; i < side; ++i)
      for (int j = 0; j < side; ++j) {
        const Index r = top + i, c = left + j;
        const bool inside = r >= 0 && r < high && c >= 0 && c < wide;
        cell[i * side + j] = inside ? image + (r * wide + c) * channels : nullptr;
      }
    for (Index k = 0; k < channels; k += L::lanes) {
      Vector half[side][side];
      for (int j = 0; j < side; ++j) {
        Vector d[side], v[side];
        for (int i = 0; i < side; ++i) d[i] = cell[i * side + j] ? L::at(cell[i * side + j] + k) : Vector{};
        Line<L, M>::input(d, v);
        for (int i = 0; i < side; ++i) half[i][j] = v[i];
      }
      for (int i = 0; i < side; ++i) {
        Vector v[side];
        Line<L, M>::input(half[i], v);
        for (int j = 0; j < side; ++j) L::at(to + (i * side + j) * step + k) = v[j];
      }
    }
  });
}

template <class L, int M>
void transform_output(float* y, const float* bias, const float* residual, const Block& b, Index row,
                      const TileOrigin& p, const ConvShape& s) {
  const int high = static_cast<int>(std::min<Index>(M, s.out[0] - p.row)),
            wide = static_cast<int>(std::min<Index>(M, s.out[1] - p.column));
  const Index corner = ((p.image * s.out[0] + p.row) * s.out[1] + p.column) * s.c_out;
  const float* const from = b.products + row * s.c_out;
  L::run([=, channels = s.c_out, line = s.out[1] * s.c_out, step = b.products_step, relu = s.options.relu] {
    using Vector = typename L::Vector;
    constexpr int side = M + 2;
    for (Index k = 0; k < channels; k += L::lanes) {
      Vector half[M][side];
      for (int j = 0; j < side; ++j) {
        Vector m[side], v[M];
        for (int i = 0; i < side; ++i) m[i] = L::at(from + (i * side + j) * step + k);
        Line<L, M>::output(m, v);
        for (int i = 0; i < M; ++i) half[i][j] = v[i];
      }
      const Vector start = bias ? L::at(bias + k) : Vector{};
      for (int i = 0; i < high; ++i) {
        Vector out[M];
        Line<L, M>::output(half[i], out);
        for (int j = 0; j < wide; ++j) {
          const Index cell = corner + i * line + j * channels + k;
          Vector v = out[j] + start;
          if (residual) v += L::at(residual + cell);
          if (relu) v = v <= 0.f ? Vector{} : v;  // NaN stays
          L::at(y + cell) = v;
        }
      }
    }
  });
}

/// A matrix of vectors' factors: element (r, k) is data[r * row + k * step].
struct Factors {
  const float* data;
  Index row, step;
};
/// to [R, panel] (+)= v [R, n] u [n, panel]; u_step elements from one row of u to the next.
template <class L, int R>
void product(float* to, Index to_step, const Factors& factors, const float* u, Index u_step, Index n, bool accumulate) {
  L::run([=]() mutable {
    using Vector = typename L::Vector;
    constexpr Index ahead = 8;  // how early u is fetched from the second cache
    const float* v = factors.data;
    const Index row = factors.row, step = factors.step;
    Vector sum[R][2] = {};
    for (Index k = 0; k < n; ++k, u += u_step, v += step) {
      __builtin_prefetch(u + ahead * u_step);
      if constexpr (L::lanes >= cache_line) __builtin_prefetch(u + ahead * u_step + L::lanes);
      const Vector u0 = L::at(u), u1 = L::at(u + L::lanes);
#pragma GCC unroll 14
      for (int r = 0; r < R; ++r) {
        const float factor = v[r * row];
        sum[r][0] += u0 * factor;
        sum[r][1] += u1 * factor;
      }
    }
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Vector& sums = L::at(to + r * to_step + half * L::lanes);
        sums = accumulate ? sums + sum[r][half] : sum[r][half];
      }
  });
}
using Product = void(float*, Index, const Factors&, const float*, Index, Index, bool);
/// By number of rows, less one.
template <class L>
constexpr auto products = []<int... R>(std::integer_sequence<int, R...>) {
  return std::array<Product*, sizeof...(R)>{product<L, R + 1>...};
}
(std::make_integer_sequence<int, most_rows<L>>{});

/// products = inputs x filter, cell by cell.
template <class L>
void multiply(const Block& b, const float* filter, Index rows, Index cells, const ConvShape& s) {
  const Index strips = (rows + most_rows<L> - 1) / most_rows<L>;
  for (Index cell = 0; cell < cells; ++cell)
    for (Index strip = 0; strip < strips; ++strip) {
      const Index begin = rows * strip / strips, count = rows * (strip + 1) / strips - begin;
      const float* from = b.inputs + cell * b.inputs_step + begin * s.c_in;
      float* to = b.products + cell * b.products_step + begin * s.c_out;
      for (Index o = 0; o < s.c_out; o += panel<L>)
        products<L>[static_cast<std::size_t>(count - 1)](
            to + o, s.c_out, {from, s.c_in, 1}, filter + cell * filter_step(s) + o * s.c_in, panel<L>, s.c_in, false);
    }
}

/// y = conv(x) + bias + residual (either may be none), ReLU if the options say so.
template <class L, int M>
void run(float* y, const float* x, const float* filter, const float* bias, const float* residual, const ConvShape& s) {
  constexpr Index cells = (M + 2) * (M + 2);
  // A block's numbers should stay in the second cache, but the filter is read once per block.
  constexpr Index budget = 700 << 10, least = 56;
  const TileGrid w = tile_grid(s, M);
  const Index fits = budget / (cells * (s.c_in + s.c_out) * Index{sizeof(float)});
  const Index most = std::max(least, fits / most_rows<L> * most_rows<L>);
  parallel_for(w.tiles, cells * s.c_in * s.c_out, [&](Index begin, Index end) {
    const Index blocks = (end - begin + most - 1) / most, together = (end - begin + blocks - 1) / blocks;
    Block b{nullptr, nullptr, together * s.c_in + cache_line, together * s.c_out + cache_line};
    b.inputs = aligned(scratch<float>(cells * (b.inputs_step + b.products_step) + cache_line, 0));
    b.products = b.inputs + cells * b.inputs_step;
    for (; begin < end; begin += together) {
      const Index rows = std::min(together, end - begin);
      for (Index i = 0; i < rows; ++i) transform_input<L, M>(b, i, x, tile_origin(w, begin + i, M), s);
      multiply<L>(b, filter, rows, cells, s);
      for (Index i = 0; i < rows; ++i) transform_output<L, M>(y, bias, residual, b, i, tile_origin(w, begin + i, M), s);
    }
  });
}

/// from: filter cell k of input channel i begins at from + i * channel + k * cell, output channels side by side.
template <class L, int M>
void transform_filter(float* to, const float* from, Index channel, Index cell, const ConvShape& s, Index begin,
                      Index end) {
  L::run([=, inputs = s.c_in, outputs = s.c_out, step = filter_step(s)] {
    using Vector = typename L::Vector;
    constexpr int side = M + 2;
    for (Index o = 0; o < outputs; o += L::lanes)
      for (Index i = begin; i < end; ++i) {
        const float* g = from + i * channel + o;
        Vector half[3][side];
        for (int c = 0; c < 3; ++c) {
          const Vector column[3] = {L::at(g + c * cell), L::at(g + (3 + c) * cell), L::at(g + (6 + c) * cell)};
          Line<L, M>::filter(column, half[c]);
        }
        float* panels = to + (o / panel<L> * inputs + i) * panel<L> + o % panel<L>;
        for (int r = 0; r < side; ++r) {
          const Vector row[3] = {half[0][r], half[1][r], half[2][r]};
          Vector u[side];
          Line<L, M>::filter(row, u);
          for (int c = 0; c < side; ++c) L::at(panels + (r * side + c) * step) = u[c];
        }
      }
  });
}

/// [rows, columns] to [columns, rows].
onednn::Prepared& transposition(Index rows, Index columns) {
  struct Transposition {
    onednn::Prepared run;
  };
  onednn::Key key;
  key.add(rows);
  key.add(columns);
  return onednn::cached<Transposition>(key,
                                       [&] {
                                         const auto from = onednn::dense({rows, columns}, {0, 1}, DType::f32),
                                                    to = onednn::dense({rows, columns}, {1, 0}, DType::f32);
                                         return Transposition{onednn::reorder(from, to)};
                                       })
      .run;
}

/// A dy A^T of a tile of the output's gradient; zeros beyond the edge.
template <class L>
void transform_gradient(const Block& b, Index row, const float* dy, const TileOrigin& p, const ConvShape& s) {
  const Index high = s.out[0] - p.row, wide = s.out[1] - p.column;
  const float* const corner = dy + ((p.image * s.out[0] + p.row) * s.out[1] + p.column) * s.c_out;
  float* const to = b.products + row * s.c_out;
  L::run([=, channels = s.c_out, line = s.out[1] * s.c_out, step = b.products_step] {
    using Vector = typename L::Vector;
    for (Index k = 0; k < channels; k += L::lanes) {
      Vector half[4][2];
      for (int j = 0; j < 2; ++j) {
        Vector d[2], m[4];
        for (int i = 0; i < 2; ++i)
          d[i] = i < high && j < wide ? L::at(corner + i * line + j * channels + k) : Vector{};
        Line<L, 2>::output_gradient(d, m);
        for (int i = 0; i < 4; ++i) half[i][j] = m[i];
      }
      for (int i = 0; i < 4; ++i) {
        Vector m[4];
        Line<L, 2>::output_gradient(half[i], m);
        for (int j = 0; j < 4; ++j) L::at(to + (i * 4 + j) * step + k) = m[j];
      }
    }
  });
}

/// sums [16][out, in] (+)= gradients^T inputs of a block's tiles, cell by cell.
template <class L>
void multiply_gradients(float* sums, const Block& b, Index tiles, const ConvShape& s, bool accumulate) {
  constexpr Index rows = L::registers == 32 ? 8 : 4, piece = 128;  // tiles whose panel stays in the first cache
  for (Index cell = 0; cell < 16; ++cell)
    for (Index k = 0; k < tiles; k += piece)
      for (Index i = 0; i < s.c_in; i += panel<L>)
        for (Index o = 0; o < s.c_out; o += rows)
          product<L, rows>(sums + cell * filter_step(s) + o * s.c_in + i, s.c_in,
                           {b.products + cell * b.products_step + k * s.c_out + o, 1, s.c_out},
                           b.inputs + cell * b.inputs_step + k * s.c_in + i, s.c_in, std::min(piece, tiles - k),
                           accumulate || k > 0);
}

/// dw [O, 9, I] (+)= G^T u G, u the sum of `parts` blocks [16][out, in], for output channels [begin, end).
template <class L>
void finish_gradient(float* dw, const float* sums, Index parts, const ConvShape& s, Index begin, Index end,
                     bool accumulate) {
  L::run([=, channels = s.c_in, step = filter_step(s)] {
    using Vector = typename L::Vector;
    for (Index o = begin; o < end; ++o)
      for (Index k = 0; k < channels; k += L::lanes) {
        Vector half[3][4];
        for (int c = 0; c < 4; ++c) {
          Vector u[4] = {}, g[3];
          for (Index part = 0; part < parts; ++part)
            for (int r = 0; r < 4; ++r) u[r] += L::at(sums + (part * 16 + r * 4 + c) * step + o * channels + k);
          Line<L, 2>::filter_gradient(u, g);
          for (int r = 0; r < 3; ++r) half[r][c] = g[r];
        }
        for (int r = 0; r < 3; ++r) {
          Vector g[3];
          Line<L, 2>::filter_gradient(half[r], g);
          for (int c = 0; c < 3; ++c) {
            Vector& to = L::at(dw + (o * 9 + r * 3 + c) * channels + k);
            to = accumulate ? to + g[c] : g[c];
          }
        }
      }
  });
}

bool suits(const View& y, const View& x, const View& w, const ConvShape& s) {
  const auto& o = s.options;
  return vector_level() >= VectorLevel::v3 && y.dtype == DType::f32 && x.dtype == DType::f32 && w.dtype == DType::f32 &&
         s.dims == 2 && s.filter[0] == 3 && s.filter[1] == 3 && o.groups == 1 && o.stride[0] == 1 && o.stride[1] == 1 &&
         o.dilation[0] == 1 && o.dilation[1] == 1 && s.c_in % 32 == 0 && s.c_out % 32 == 0;
}
/// With fewer tiles the filter's transform, or reading the filter, costs more than the saved products.
bool pays(const ConvShape& s, bool kept) { return kept ? tile_grid(s, 4).tiles >= 64 : tile_grid(s, 2).tiles >= 512; }

std::size_t filter_bytes(const ConvShape& s, Index m) {
  return static_cast<std::size_t>((m + 2) * (m + 2) * filter_step(s)) * sizeof(float);
}

/// The filter of the convolution s, [(m + 2)^2][out / panel, in, panel], from w [O, 3, 3, I] as the model holds it.
/// dgrad: s is as_forward_conv() of a gradient by the input; its filter has cells reversed and channels swapped.
void make_filter(float* to, const View& w, const ConvShape& s, Index m, bool dgrad) {
  // In dgrad the model's input channels are the outputs, and adjacent. Otherwise a reorder makes them so: [O, 9, I] to
  // [9, I, O].
  onednn::Scratch transposed(dgrad ? 0 : static_cast<std::size_t>(w.bytes()));
  const float* from = w.as<const float>() + 8 * s.c_out;
  Index channel = 9 * s.c_out, cell = -s.c_out;
  if (!dgrad) {
    transposition(s.c_out, 9 * s.c_in)({w.data, transposed.data()});
    from = transposed.as<float>();
    channel = s.c_out;
    cell = s.c_in * s.c_out;
  }
  parallel_for(s.c_in, 16 * s.c_out, [&](Index begin, Index end) {
    with_vectors([&]<class L>(L) {
      (m == 2 ? transform_filter<L, 2> : transform_filter<L, 4>)(to, from, channel, cell, s, begin, end);
    });
  });
}

}  // namespace

bool conv_winograd(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                   const ConvShape& s) {
  FilterCache* const filters = s.options.filters;
  if (!suits(y, x, w, s) || !pays(s, filters != nullptr)) return false;
  const Index m = filters != nullptr ? 4 : 2;
  onednn::Scratch now(filters != nullptr ? 0 : filter_bytes(s, m));
  const auto make = [&](void* to) { make_filter(static_cast<float*>(to), w, s, m, false); };
  const void* filter = now.data();
  if (filters != nullptr)
    filter = filters->get(w.data, 0, filter_bytes(s, m), make);
  else
    make(now.data());
  with_vectors([&]<class L>(L) {
    (m == 2 ? run<L, 2> : run<L, 4>)(y.as<float>(), x.as<const float>(), static_cast<const float*>(filter),
                                     bias ? bias.as<const float>() : nullptr,
                                     residual ? residual.as<const float>() : nullptr, s);
  });
  return true;
}

bool conv_winograd_backward_input(const View& dx, const View& dy, const View& w, const ConvShape& s, bool accumulate) {
  if (!suits(dx, dy, w, s) || !dgrad_is_forward(s)) return false;
  ConvShape t = as_forward_conv(s);
  t.options.relu = false;
  if (!pays(t, false)) return false;
  onednn::Scratch filter(filter_bytes(t, 2));
  make_filter(filter.as<float>(), w, t, 2, true);
  with_vectors([&]<class L>(L) {
    run<L, 2>(dx.as<float>(), dy.as<const float>(), filter.as<float>(), nullptr,
              accumulate ? dx.as<const float>() : nullptr, t);
  });
  return true;
}

bool conv_winograd_backward_weight(const View& dw, const View& x, const View& dy, const ConvShape& s, bool accumulate) {
  // Every thread sums into a separate block: with more channels that needs too much memory.
  constexpr Index most_channels = 256 * 256, budget = 400 << 10, least = 48;
  if (!suits(dy, x, dw, s) || !pays(s, false) || s.c_in * s.c_out > most_channels) return false;
  const TileGrid w = tile_grid(s, 2);
  const Index fits = budget / (16 * (s.c_in + s.c_out) * Index{sizeof(float)}), most = std::max(least, fits);
  const Index parts = threads();
  onednn::Scratch sums(static_cast<std::size_t>(parts) * filter_bytes(s, 2));
  std::atomic<Index> used{0};
  parallel_for(w.tiles, 16 * s.c_in * s.c_out, [&](Index begin, Index end, int part) {
    ++used;
    float* mine = sums.as<float>() + part * 16 * filter_step(s);
    Block b{nullptr, nullptr, most * s.c_in + cache_line, most * s.c_out + cache_line};
    b.inputs = aligned(scratch<float>(16 * (b.inputs_step + b.products_step) + cache_line, 0));
    b.products = b.inputs + 16 * b.inputs_step;
    with_vectors([&]<class L>(L) {
      for (Index first = begin; first < end; first += most) {
        const Index tiles = std::min(most, end - first);
        for (Index i = 0; i < tiles; ++i) {
          const TileOrigin p = tile_origin(w, first + i, 2);
          transform_input<L, 2>(b, i, x.as<const float>(), p, s);
          transform_gradient<L>(b, i, dy.as<const float>(), p, s);
        }
        multiply_gradients<L>(mine, b, tiles, s, first > begin);
      }
    });
  });
  parallel_for(s.c_out, 16 * s.c_in, [&](Index begin, Index end) {
    with_vectors([&]<class L>(L) {
      finish_gradient<L>(dw.as<float>(), sums.as<const float>(), used, s, begin, end, accumulate);
    });
  });
  return true;
}

}  // namespace trireme

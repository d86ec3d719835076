#include "kernels/cpu/packed_product.h"

#include <cstring>

#include "kernels/cpu/attention_tiles.h"

namespace trireme {
namespace {

// Most rows and columns of a packed block of b, which stays in the L2 cache together with the rows of a. A panel of the
// block stays in the L1 cache.
constexpr Index most_depth = 384, most_width = 256, rows_together = 96;

template <class P>
class PackedProduct {
 public:
  PackedProduct(float* c, const float* a, const float* b, const float* bias, const MatMulJob& j)
      : c_(c), a_(a), b_(b), bias_(bias), j_(j) {}

  /// Rows [row, row + rows) and columns [column, column + columns) of c.
  void run(Index row, Index rows, Index column, Index columns) const {
    const Index padded = (columns + panel - 1) / panel * panel;
    const bool direct = padded == columns && !j_.accumulate;
    const Index most = direct ? rows : std::min(rows, 4 * rows_together);
    for (Index from = 0; from < rows; from += most) {
      const Index count = std::min(most, rows - from);
      float* const to = direct ? c_ + (row + from) * j_.n + column : scratch<float>(most * padded, 0);
      multiply(to, direct ? j_.n : padded, row + from, count, column, columns);
    }
  }

 private:
  static constexpr Index panel = 2 * P::lanes;
  static constexpr int tall = 6;  // rows of a block whose sums fit into registers

  /// The product by way of `to` [rows, columns rounded up to whole panels], `ld` elements from row to row.
  void multiply(float* to, Index ld, Index row, Index rows, Index column, Index columns) const {
    const Index padded = (columns + panel - 1) / panel * panel;
    const Index steps = (j_.k + most_depth - 1) / most_depth, even = ((j_.k + steps - 1) / steps + 7) / 8 * 8;
    float* const packed = scratch<float>(even * padded, 1);
    for (Index k = 0; k < j_.k; k += even) {
      const Index depth = std::min(even, j_.k - k);
      pack(packed, k, depth, column, columns);
      for (Index r = 0; r < rows; r += rows_together) {
        const Index count = std::min(rows_together, rows - r);
        const float* left = a_ + (row + r) * j_.k + k;
        if (j_.transpose_a) left = pack_left(row + r, count, k, depth);
        P::run([=, lda = j_.k, turned = j_.transpose_a] {
          for (Index at = 0; at < padded; at += panel) {
            const tiles::ProductOf<P> g{.c = to + r * ld + at,
                                        .ldc = ld,
                                        .a = left,
                                        .lda = turned ? tall : lda,
                                        .b = packed + at * depth,
                                        .ldb = panel,
                                        .m = count,
                                        .n = panel,
                                        .k = depth};
            if (turned)
              k == 0 ? multiply_panel<true, tiles::Into::scaled>(g) : multiply_panel<true, tiles::Into::added>(g);
            else
              k == 0 ? multiply_panel<false, tiles::Into::scaled>(g) : multiply_panel<false, tiles::Into::added>(g);
          }
        });
        if (k + depth == j_.k) finish(to + r * ld, ld, row + r, count, column, columns);
      }
    }
  }
  template <bool turned, tiles::Into into>
  [[gnu::always_inline]] static void multiply_panel(const tiles::ProductOf<P>& g) {
    Index row = 0;
    multiply_rows<tall, turned, into>(g, row);
    multiply_rows<4, turned, into>(g, row);
    multiply_rows<2, turned, into>(g, row);
    multiply_rows<1, turned, into>(g, row);
  }
  /// The rows from `row` on, M at a time.
  template <int M, bool turned, tiles::Into into>
  [[gnu::always_inline]] static void multiply_rows(const tiles::ProductOf<P>& g, Index& row) {
    for (; row + M <= g.m; row += M) {
      tiles::ProductOf<P> rows = g;
      rows.a += turned ? row / tall * tall * g.k + row % tall : row * g.lda;
      rows.c += row * g.ldc;
      tiles::block<P, M, 2, turned, into>(rows, 0, 0);
    }
  }

  /// Rows [k, k + depth) and columns [column, column + columns) of op(b) in panels [depth, panel] one after another;
  /// zeros past the last column.
  void pack(float* to, Index k, Index depth, Index column, Index columns) const {
    const Index whole = columns / panel * panel, rest = columns - whole;
    const float* const from = b_ + (j_.transpose_b ? column * j_.k + k : k * j_.n + column);
    if (j_.transpose_b) {
      const Index down = depth / P::lanes * P::lanes;
      for (Index at = 0; at < whole; at += panel) {
        tiles::transpose<P>(to + at * depth, panel, from + at * j_.k, j_.k, panel, down);
        for (Index i = down; i < depth; ++i)
          for (Index c = 0; c < panel; ++c) to[at * depth + i * panel + c] = from[(at + c) * j_.k + i];
      }
    } else {
      for (Index i = 0; i < depth; ++i)
        for (Index at = 0; at < whole; at += panel)
          std::memcpy(to + at * depth + i * panel, from + i * j_.n + at,
                      static_cast<std::size_t>(panel) * sizeof(float));
    }
    if (rest == 0) return;
    float* const last = to + whole * depth;
    std::memset(last, 0, static_cast<std::size_t>(depth * panel) * sizeof(float));
    for (Index i = 0; i < depth; ++i)
      for (Index c = whole; c < columns; ++c)
        last[i * panel + c - whole] = j_.transpose_b ? from[c * j_.k + i] : from[i * j_.n + c];
  }

  /// Rows [row, row + count) and columns [k, k + depth) of a transposed a, in panels [depth, tall] one after another.
  const float* pack_left(Index row, Index count, Index k, Index depth) const {
    float* const to = scratch<float>(rows_together * most_depth, 2);
    P::run([=, first = a_ + k * j_.m + row, step = j_.m] {
      const Index whole = count / tall * tall;
      for (Index i = 0; i < depth; ++i) {
        const float* const from = first + i * step;
        for (Index r = 0; r < whole; r += tall) std::memcpy(to + r * depth + i * tall, from + r, tall * sizeof(float));
        for (Index r = whole; r < count; ++r) to[whole * depth + i * tall + r - whole] = from[r];
      }
    });
    return to;
  }

  /// Adds the bias and applies ReLU, and writes or adds what is not in c yet.
  void finish(const float* from, Index ld, Index row, Index rows, Index column, Index columns) const {
    float* to = c_ + row * j_.n + column;
    if (from == to && !bias_ && !j_.relu) return;
    vectorised(
        [=, n = j_.n, accumulate = j_.accumulate, relu = j_.relu, bias = bias_ ? bias_ + column : nullptr]() mutable {
          for (Index r = 0; r < rows; ++r, to += n, from += ld)
            for (Index i = 0; i < columns; ++i) {
              float y = from[i];
              if (accumulate) y += to[i];
              if (bias) y += bias[i];
              to[i] = relu && y < 0 ? 0 : y;
            }
        });
  }

  float* c_;
  const float *a_, *b_, *bias_;
  const MatMulJob& j_;
};

template <class P>
void multiply_packed(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  constexpr Index tall = 24, panel = 2 * P::lanes;
  const Index rows = (j.m + tall - 1) / tall, panels = (j.n + panel - 1) / panel, team = threads();
  // Equal numbers of columns for each thread, and at least two blocks, where there are enough columns. A transposed a
  // is copied for each block of columns, so its rows are divided if there are enough.
  Index blocks = (j.n + most_width - 1) / most_width;
  if (j.batch % team != 0 && (!j.transpose_a || rows < 8 * team)) blocks = (blocks + team - 1) / team * team;
  while (blocks * 64 < j.n && j.batch * blocks * rows < 2 * team) ++blocks;
  const Index width = (panels + std::min(blocks, panels) - 1) / std::min(blocks, panels) * panel;
  blocks = (j.n + width - 1) / width;
  parallel_for(j.batch * blocks * rows, std::min(tall, j.m) * std::min(width, j.n) * j.k, [&](Index begin, Index end) {
    while (begin < end) {  // the blocks of rows that this thread has of the same columns
      const Index i = begin / (blocks * rows), column = begin / rows % blocks * width, first = begin % rows;
      const Index last = std::min(rows, first + end - begin), row = first * tall;
      const PackedProduct<P> product(c.as<float>() + i * j.m * j.n, a.as<float>() + (j.batched_a ? i * j.m * j.k : 0),
                                     b.as<float>() + (j.batched_b ? i * j.k * j.n : 0),
                                     bias ? bias.as<float>() : nullptr, j);
      product.run(row, std::min(j.m, last * tall) - row, column, std::min(width, j.n - column));
      begin += last - first;
    }
  });
}

}  // namespace

void packed_product(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  vector_level() == VectorLevel::base ? multiply_packed<tiles::Plain<float, 16>>(c, a, b, bias, j)
                                      : multiply_packed<tiles::Plain<float, 32>>(c, a, b, bias, j);
}

}  // namespace trireme

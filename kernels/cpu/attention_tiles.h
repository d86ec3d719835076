// Products of small tiles in registers, for attention, mixed-scale layers and packed products. The vectors are as wide
// as the CPU allows; the code is written once for every type and level. Sums run over k in order, so that bits do not
// depend on how a product is cut into blocks.
#pragma once
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/vector.h"

namespace trireme::tiles {

/// Code for numbers of type A in vectors of `bytes` bytes.
template <class A, int bytes>
struct Plain : Vectors<A, bytes> {
  using Acc = A;   ///< type of sums, scores and probabilities
  using Word = A;  ///< operand elements that one step along k reads
  using Vector = typename Vectors<A, bytes>::Vector;
  using Words = Vector;
  using Integers = typename Vectors<std::conditional_t<sizeof(A) == 4, std::int32_t, std::int64_t>, bytes>::Vector;
  static constexpr int per_word = 1;
  [[gnu::always_inline]] static void add(Vector& sum, const Words& a, const Words& b) { sum += a * b; }
};
/// Code for pairs of bf16 that are adjacent along k, two products per step (AVX512_BF16); sums are f32.
struct Pairs {
  using Acc = float;
  using Word = std::uint32_t;
  using Vector = Vectors<float, 64>::Vector;
  using Words = Vectors<std::uint32_t, 64>::Vector;
  using Integers = Vectors<std::int32_t, 64>::Vector;
  static constexpr int lanes = 16, per_word = 2, registers = 32;
  [[gnu::always_inline]] static void add(Vector& sum, const Words& a, const Words& b) {
    instructions::add_products<Pairs>(sum, a, b);
  }
  template <class F>
  static void run(const F& f) {
    trireme::detail::run_bf16(f);
  }
};

template <class P>
typename P::Vector& vector_at(typename P::Acc* p) {
  return *reinterpret_cast<typename P::Vector*>(p);
}
template <class P>
const typename P::Vector& vector_at(const typename P::Acc* p) {
  return *reinterpret_cast<const typename P::Vector*>(p);
}
template <class P>
const typename P::Words& words_at(const typename P::Word* p) {
  return *reinterpret_cast<const typename P::Words*>(p);
}

/// How the sums s of a product are stored: c = factor s, c += s, or c = row_factor[m] c + s.
enum class Into : std::uint8_t { scaled, added, rescaled };

/// c [m, n] of a [m, k] (or [k, m] if by_columns) and b [k, n]; leading dimensions in elements.
template <class Acc, class Word>
struct Product {
  Acc* c;
  Index ldc;
  const Word* a;
  Index lda;
  const Word* b;
  Index ldb;
  Index m, n, k;  ///< n: a multiple of P::lanes; k: in words; fastest if m is a multiple of row_step
  Acc factor = 1;
  const Acc* row_factor = nullptr;
};
template <class P>
using ProductOf = Product<typename P::Acc, typename P::Word>;
constexpr Index row_step = 12;

/// M rows by N vectors at c.
template <class P, int M, int N, bool by_columns, Into into>
[[gnu::always_inline]] inline void block(const ProductOf<P>& g, Index row, Index column) {
  using Vector = typename P::Vector;
  using Words = typename P::Words;
  constexpr int lanes = P::lanes;
  Vector sum[M][N] = {};
  const typename P::Word *a = g.a + row * (by_columns ? 1 : g.lda), *b = g.b + column;
  const Index step = by_columns ? g.lda : 1, across = by_columns ? 1 : g.lda;
  for (Index k = 0; k < g.k; ++k, a += step, b += g.ldb) {
    Words right[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) right[n] = words_at<P>(b + n * lanes);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const Words left = a[m * across] - Words{};  // x - 0 is x, and the compiler removes it; 0 + x turns -0 into 0
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) P::add(sum[m][n], left, right[n]);
    }
  }
  typename P::Acc factor = g.factor;
  asm("" : "+m"(factor));  // loaded after the loop, in which all registers are in use
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      Vector& to = vector_at<P>(g.c + (row + m) * g.ldc + column + n * lanes);
      if constexpr (into == Into::scaled)
        to = sum[m][n] * factor;
      else if constexpr (into == Into::rescaled)
        to = to * g.row_factor[row + m] + sum[m][n];
      else
        to += sum[m][n];
    }
}
/// N vectors of columns from `column` on.
template <class P, int N, bool by_columns, Into into>
[[gnu::always_inline]] inline void panel(const ProductOf<P>& g, Index column) {
  constexpr int M = row_step * N + N < P::registers ? row_step : row_step / 2;
  Index row = 0;
  for (; row + M <= g.m; row += M) block<P, M, N, by_columns, into>(g, row, column);
  for (; row < g.m; ++row) block<P, 1, N, by_columns, into>(g, row, column);
}
/// The whole product.
template <class P, bool by_columns, Into into>
void multiply(const ProductOf<P>& g) {
  P::run([g] {
    constexpr int most = P::registers >= 32 ? 4 : 2;
    Index column = 0;
    for (; column + most * P::lanes <= g.n; column += most * P::lanes) panel<P, most, by_columns, into>(g, column);
    if constexpr (most == 4) {
      const Index rest = (g.n - column) / P::lanes;
      if (rest == 3) return panel<P, 3, by_columns, into>(g, column);
      if (rest == 2) return panel<P, 2, by_columns, into>(g, column);
    }
    if (column < g.n) panel<P, 1, by_columns, into>(g, column);
  });
}

/// x = exp(x) for x <= 0, in code within P::run(): within 1.5 ulp, exactly 1 for 0, and exactly 0 for subnormal
/// results.
template <class P>
[[gnu::always_inline]] inline void exp_of(typename P::Vector& x) {
  if constexpr (sizeof(typename P::Acc) == 8) {
    for (int i = 0; i < P::lanes; ++i) x[i] = std::exp(x[i]);
  } else {
    constexpr float magic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, which lies in the low bits
    const auto kept = x < -88.f ? typename P::Vector{} - 88.f : x;
    const auto shifted = kept * 1.44269504f + magic, n = shifted - magic, f = kept * 1.44269504f - n;
    // 2^f on [-1/2, 1/2], a minimax fit; 2^n by its bits: 0 for n = -127
    const auto tail = 0.6931472029f +
                      f * (0.2402264791f +
                           f * (5.550332471e-2f + f * (9.618437358e-3f + f * (1.339887444e-3f + f * 1.535336194e-4f))));
    using I = typename P::Integers;
    const I power = ((I)shifted - std::bit_cast<std::int32_t>(magic) + 127) << 23;
    x = (1.f + f * tail) * (typename P::Vector)power;
  }
}

/// Rows `upper` and `lower` of a matrix, s apart: the odd blocks of s words of the one and the even blocks of the other
/// change places.
template <class P, int s, int... i>
[[gnu::always_inline]] inline void exchange(typename P::Words& upper, typename P::Words& lower,
                                            std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  const typename P::Words a = upper, b = lower;
  instructions::shuffle<P, (i & s ? n + i - s : i)...>(upper, a, b);
  instructions::shuffle<P, (i & s ? n + i : i + s)...>(lower, a, b);
}
/// Blocks of s by s off the diagonal of the matrix x change places, then those of 2 s by 2 s, and so on.
template <class P, int s>
[[gnu::always_inline]] inline void exchange_blocks(typename P::Words (&x)[P::lanes]) {
  if constexpr (s < P::lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < P::lanes; ++i)
      if (!(i & s)) exchange<P, s>(x[i], x[i + s], std::make_integer_sequence<int, P::lanes>{});
    exchange_blocks<P, 2 * s>(x);
  }
}
/// to [columns, ld] = from [rows, ld_from]^T; rows and columns are multiples of P::lanes.
template <class P>
void transpose(typename P::Word* to, Index ld, const typename P::Word* from, Index ld_from, Index rows, Index columns) {
  P::run([=] {
    using Words = typename P::Words;
    constexpr int n = P::lanes;
    for (Index r = 0; r < rows; r += n)
      for (Index c = 0; c < columns; c += n) {
        Words x[n];
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) x[i] = words_at<P>(from + (r + i) * ld_from + c);
        exchange_blocks<P, 1>(x);
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) *reinterpret_cast<Words*>(to + (c + i) * ld + r) = x[i];
      }
  });
}

}  // namespace trireme::tiles

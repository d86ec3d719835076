#include "kernels/cpu/narrow_product.h"

#include "kernels/cpu/attention_tiles.h"

namespace trireme {
namespace {

/// One product of a batch.
struct NarrowJob {
  float* c;
  const float *a, *b, *bias;  // bias: null for none
  Index m, n, k;
  bool accumulate, relu;
};

/// W columns of M rows of c, from row and column on; the columns are `apart`.
template <class P, int M, int W>
[[gnu::always_inline]] inline void narrow_block(const NarrowJob& j, Index row, Index column, Index apart) {
  typename P::Vector sum[M][W] = {};
  const float *const a = j.a + row * j.k, *const b = j.b + column * j.k;
  const Index step = apart * j.k, whole = j.k / P::lanes * P::lanes;
  for (Index k = 0; k < whole; k += P::lanes)
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      const typename P::Vector right = P::at(b + w * step + k);
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) sum[m][w] += P::at(a + m * j.k + k) * right;
    }
  for (int m = 0; m < M; ++m)
    for (int w = 0; w < W; ++w) {
      float y = 0;
      for (int i = 0; i < P::lanes; ++i) y += sum[m][w][i];
      for (Index k = whole; k < j.k; ++k) y += a[m * j.k + k] * b[w * step + k];
      float& to = j.c[(row + m) * j.n + column + w * apart];
      if (j.accumulate) y += to;
      if (j.bias) y += j.bias[column + w * apart];
      to = j.relu && y < 0 ? 0 : y;
    }
}
/// W columns of all rows.
template <class P, int W>
[[gnu::always_inline]] inline void narrow_columns(const NarrowJob& j, Index column, Index apart) {
  Index row = 0;
  for (; row + 2 <= j.m; row += 2) narrow_block<P, 2, W>(j, row, column, apart);
  if (row < j.m) narrow_block<P, 1, W>(j, row, column, apart);
}
/// Columns [begin, end). Four long streams of b use the memory's bandwidth best.
template <class P>
void narrow_range(const NarrowJob& j, Index begin, Index end) {
  P::run([=, &j] {
    constexpr int streams = 4;
    const Index apart = (end - begin) / streams;
    for (Index i = begin; i < begin + apart; ++i) narrow_columns<P, streams>(j, i, apart);
    for (Index i = begin + streams * apart; i < end; ++i) narrow_columns<P, 1>(j, i, 0);
  });
}

}  // namespace

bool narrow_product(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  constexpr Index most = 8;
  const bool f32 = c.dtype == DType::f32 && a.dtype == DType::f32 && (!bias || bias.dtype == DType::f32);
  if (!f32 || j.m > most || !j.transpose_b || (j.transpose_a && j.m > 1)) return false;
  parallel_for(j.batch * j.n, j.m * j.k, [&](Index begin, Index end) {
    while (begin < end) {
      const Index i = begin / j.n, first = begin % j.n, last = std::min(j.n, first + end - begin);
      const NarrowJob one{.c = c.as<float>() + i * j.m * j.n,
                          .a = a.as<float>() + (j.batched_a ? i * j.m * j.k : 0),
                          .b = b.as<float>() + (j.batched_b ? i * j.k * j.n : 0),
                          .bias = bias ? bias.as<float>() : nullptr,
                          .m = j.m,
                          .n = j.n,
                          .k = j.k,
                          .accumulate = j.accumulate,
                          .relu = j.relu};
      switch (vector_level()) {
        case VectorLevel::v4: narrow_range<tiles::Plain<float, 64>>(one, first, last); break;
        case VectorLevel::v3: narrow_range<tiles::Plain<float, 32>>(one, first, last); break;
        case VectorLevel::base: narrow_range<tiles::Plain<float, 16>>(one, first, last); break;
      }
      begin += last - first;
    }
  });
  return true;
}

}  // namespace trireme

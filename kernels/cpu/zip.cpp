// Binary formulas with NumPy broadcasting: kernel::Zip.
#include <tuple>

#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/convert_block.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/strided_loop.h"

namespace trireme {
namespace {

using BinaryLoop = detail::StridedLoop<2>;

/// An operand of a loop: its first element, the step to the next element (0 or 1) and to the next row.
template <class T>
struct Operand {
  const T* at;
  Index step, row;
};
/// rows * n elements of y, one after another.
template <class T>
using ZipLoop = void (*)(T* y, Operand<T> a, Operand<T> b, Index n, Index rows);

template <class F, class T>
void zip_loop(T* y, Operand<T> a, Operand<T> b, Index n, Index rows) {
  const auto f = [](T p, T q) { return F::value(static_cast<ComputeType<T>>(p), static_cast<ComputeType<T>>(q)); };
  for (; rows > 0; --rows, y += n, a.at += a.row, b.at += b.row) {
    if (a.step == 1 && b.step == 1) {
#pragma omp simd
      for (Index i = 0; i < n; ++i) put(y[i], f(a.at[i], b.at[i]));
    } else if (a.step == 1) {
      const T q = *b.at;
#pragma omp simd
      for (Index i = 0; i < n; ++i) put(y[i], f(a.at[i], q));
    } else if (b.step == 1) {
      const T p = *a.at;
#pragma omp simd
      for (Index i = 0; i < n; ++i) put(y[i], f(p, b.at[i]));
    } else {
      T v;
      put(v, f(*a.at, *b.at));
      std::fill_n(y, n, v);
    }
  }
}

/// True when y is rows of few numbers, the one operand full and the other a single such row: a bias, or its
/// gradient.
bool short_rows(const BinaryLoop& loop, std::size_t full, std::size_t row) {
  return loop.rank == 2 && repeats(loop.extent[0]) > 1 && loop.step[0][full] == 1 &&
         loop.step[1][full] == loop.extent[0] && loop.step[0][row] == 1 && loop.step[1][row] == 0;
}

/// Calls f(a, b, n, rows) for rows along which both operands step evenly, in the order of [begin, end).
template <class T, class F>
void for_rows_of(const T* a, const T* b, const BinaryLoop& loop, Index begin, Index end, F f) {
  Index at[Shape::max_rank];
  for (Index rest = begin, k = 0; k < loop.rank; ++k) {
    at[k] = rest % loop.extent[k];
    rest /= loop.extent[k];
  }
  const bool flat = loop.rank == 1;
  const Index width = loop.extent[0], row_a = flat ? 0 : loop.step[1][0], row_b = flat ? 0 : loop.step[1][1];
  while (begin < end) {
    const T *p = a, *q = b;
    for (int k = 0; k < loop.rank; ++k) {
      p += at[k] * loop.step[k][0];
      q += at[k] * loop.step[k][1];
    }
    const Index n = std::min(end - begin, width - at[0]);
    const Index rows = flat || n < width ? 1 : std::min((end - begin) / width, loop.extent[1] - at[1]);
    f(Operand<T>{p, loop.step[0][0], row_a}, Operand<T>{q, loop.step[0][1], row_b}, n, rows);
    at[0] = 0;
    if (!flat) at[1] += rows;
    for (int k = 1; k < loop.rank && at[k] == loop.extent[k]; ++k) {
      at[k] = 0;
      if (k + 1 < loop.rank) ++at[k + 1];
    }
    begin += n * rows;
  }
}

/// Repeats the row of a short operand in a tile, which begins at the column of element `begin`, until it is worth a
/// vector loop. Returns the tile's length.
template <class A, class T>
Index fill_tile(A* tile, const T* row, Index width, Index begin) {
  const Index length = width * repeats(width);
  for (Index i = 0, column = begin % width; i < length; ++i) {
    tile[i] = element<A>(row[column]);
    if (++column == width) column = 0;
  }
  return length;
}

/// y[begin, end). A short operand is one row, which y's rows repeat.
template <class T>
void zip_range(ZipLoop<T> call, T* y, const T* a, const T* b, const BinaryLoop& loop, bool short_a, bool short_b,
               Index begin, Index end) {
  if (!short_a && !short_b)
    return for_rows_of(a, b, loop, begin, end, [&](Operand<T> p, Operand<T> q, Index n, Index rows) {
      call(y + begin, p, q, n, rows);
      begin += n * rows;
    });
  T tile[128];
  const Index length = fill_tile(tile, short_a ? a : b, loop.extent[0], begin);
  const auto rows = [&](Index n, Index count) {
    const Operand<T> repeated{tile, 1, 0}, full{(short_a ? b : a) + begin, 1, n};
    call(y + begin, short_a ? repeated : full, short_a ? full : repeated, n, count);
    begin += n * count;
  };
  rows(length, (end - begin) / length);
  if (begin < end) rows(end - begin, 1);
}

/// The same for short integers, which are computed in A: by blocks.
template <class A, class T>
void zip_converted(ZipLoop<A> call, T* y, const T* a, const T* b, const BinaryLoop& loop, bool short_a, bool short_b,
                   Index begin, Index end) {
  A left[detail::block_size], right[detail::block_size], result[detail::block_size];
  Index length = detail::block_size;
  if (short_a) length = fill_tile(left, a, loop.extent[0], begin);
  if (short_b) length = fill_tile(right, b, loop.extent[0], begin);
  const auto widen = [](A* to, const Operand<T>& from, Index row, Index n) {
    const T* at = from.at + row * from.row;
    if (from.step == 1)
      detail::convert_block(to, at, n);
    else
      std::fill_n(to, n, element<A>(*at));
  };
  for (Index next; begin < end; begin = next) {
    next = std::min(end, begin + length);
    if (short_a)
      detail::convert_block(right, b + begin, next - begin);
    else if (short_b)
      detail::convert_block(left, a + begin, next - begin);
    else
      for_rows_of(a, b, loop, begin, next,
                  [&, at = Index{0}](const Operand<T>& p, const Operand<T>& q, Index n, Index rows) mutable {
                    for (Index row = 0; row < rows; ++row, at += n) {
                      widen(left + at, p, row, n);
                      widen(right + at, q, row, n);
                    }
                  });
    call(result, {left, 1, 0}, {right, 1, 0}, next - begin, 1);
    detail::convert_block(y + begin, result, next - begin);
  }
}

/// Loops of one formula. Those for integers are null if it takes none.
using ZipLoops = std::tuple<ZipLoop<float>, ZipLoop<double>, ZipLoop<bf16>, ZipLoop<std::int32_t>, ZipLoop<Index>>;

void run_zip(const View& y, const View& a, const View& b, std::string_view name, const ZipLoops& loops) {
  const BinaryLoop loop = detail::plan_broadcast(y, a, b, name);
  const bool short_a = short_rows(loop, 1, 0), short_b = short_rows(loop, 0, 1);
  const auto run = [&]<class T>(T) {
    using A = std::conditional_t<std::is_integral_v<T>, ComputeType<T>, T>;
    parallel_for(y.numel(), 2,
                 [=, call = std::get<ZipLoop<A>>(loops), &loop, to = y.as<T>(), p = a.as<const T>(),
                  q = b.as<const T>()](Index i, Index j) {
                   if constexpr (std::is_same_v<A, T>)
                     zip_range(call, to, p, q, loop, short_a, short_b, i, j);
                   else
                     zip_converted(call, to, p, q, loop, short_a, short_b, i, j);
                 });
  };
  const auto floats = [](DType t, std::string_view op, auto&& f) { dispatch_float(t, op, f); };
  if (std::get<ZipLoop<Index>>(loops))
    dispatch_number(y.dtype, name, floats, run);
  else
    floats(y.dtype, name, run);
}

template <class F>
constexpr ZipLoops loops_at(int level) {
  using detail::Levels;
  ZipLoops loops{Levels<zip_loop<F, float>>::of[level], Levels<zip_loop<F, double>>::of[level],
                 Levels<zip_loop<F, bf16>>::of[level], nullptr, nullptr};
  if constexpr (requires { F::integers; }) {
    std::get<ZipLoop<std::int32_t>>(loops) = Levels<zip_loop<F, std::int32_t>>::of[level];
    std::get<ZipLoop<Index>>(loops) = Levels<zip_loop<F, Index>>::of[level];
  }
  return loops;
}

template <class F>
void zip(View y, View a, View b, F) {
  static constexpr ZipLoops loops[] = {loops_at<F>(0), loops_at<F>(1), loops_at<F>(2)};  // by VectorLevel
  run_zip(y, a, b, F::name, loops[static_cast<int>(vector_level())]);
}

template <class F>
struct CpuBinaryFormula {
  Kernel<kernel::Zip<F>> forward{DeviceKind::cpu, zip<F>};
};

const pointwise::EachBinary<CpuBinaryFormula> binary_formulas_cpu;

}  // namespace
}  // namespace trireme

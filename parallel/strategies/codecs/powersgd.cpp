// PowerSGD: matrices approximated by two thin factors.
#include <cmath>
#include <limits>
#include <numbers>

#include "framework/tensor/launch.h"
#include "kernels/contracts/matmul.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

/// A matrix M [rows, columns] at a position of the vector. Its factors are stored transposed: P as [rank, rows], Q as
/// [rank, columns].
struct Matrix {
  Index begin, rows, columns, rank;
  Index end() const { return begin + rows * columns; }
  /// M as a view of a vector.
  Tensor in(const Tensor& vector) const { return vector.view_rows(begin, end()).reshape({rows, columns}); }
};

/// Of each tensor with two or more axes: the whole rows in the vector.
std::vector<Matrix> matrices_of(const CodecContext& now) {
  std::vector<Matrix> all;
  const auto most = static_cast<Index>(now.argument("rank"));
  for (const auto& [position, shape] : now.tensors) {
    if (shape.rank() < 2) continue;
    const Slice slice{position, position + shape.numel()};
    const Index columns = slice.size() / shape[0];
    const Index first = (std::max<Index>(0, -slice.begin) + columns - 1) / columns;
    const Index rows = (std::min(now.size, slice.end) - slice.begin) / columns - first;
    if (rows > 1 && columns > 1)
      all.push_back({slice.begin + first * columns, rows, columns, std::min({most, rows, columns})});
  }
  return all;
}
/// Calls f(begin, end) for the numbers between the matrices.
template <class F>
void each_between(const CodecContext& now, const std::vector<Matrix>& matrices, F f) {
  Index begin = 0;
  for (const Matrix& m : matrices) {
    f(begin, m.begin);
    begin = m.end();
  }
  f(begin, now.size);
}

// First round: P of each matrix, and the numbers between them. Second round: Q of each matrix.
Index length(const CodecContext& now) {
  Index all = 0;
  const auto matrices = matrices_of(now);
  for (const Matrix& m : matrices) all += m.rank * (now.round == 0 ? m.rows : m.columns);
  if (now.round == 0) each_between(now, matrices, [&](Index begin, Index end) { all += end - begin; });
  return all;
}

/// The consecutive factors of one round.
class Factors {
 public:
  explicit Factors(Tensor wire) : wire_(std::move(wire)) {}
  /// The next factor, [rank, n].
  Tensor next(Index rank, Index n) {
    at_ += rank * n;
    return wire_.view_rows(at_ - rank * n, at_).reshape({rank, n});
  }
  /// The numbers after the factors that were taken.
  template <class T>
  T* rest() const {
    return wire_.data<T>() + at_;
  }

 private:
  Tensor wire_;
  Index at_ = 0;
};

/// Initial Q: that of the previous step. Rows of zeros become standard normal numbers (at the start, and if P had fewer
/// than `rank` independent columns).
template <class T>
void draw(const CodecContext& now, const Matrix& m, const Tensor& q) {
  const Philox random = detail::random(now, false);
  for (Index r = 0; r < m.rank; ++r) {
    T* const row = q.data<T>() + r * m.columns;
    if (std::any_of(row, row + m.columns, [](T v) { return v != 0; })) continue;
    for (Index j = 0; j < m.columns; ++j) {  // Box and Muller
      const auto four = random(static_cast<std::uint64_t>(m.begin + r), static_cast<std::uint64_t>(j));
      const double u = 1 - double{uniform_float(four[0])}, angle = 2 * std::numbers::pi * uniform_float(four[1]);
      row[j] = static_cast<T>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
    }
  }
}

/// Gram-Schmidt over rows, twice; dependent rows become 0. Plain loops give the same sums on every machine, because all
/// ranks must compute the same P.
template <class T>
void orthonormalise(T* rows, Index count, Index n) {
  const auto dot = [n](const T* a, const T* b) {
    double sum = 0;
    for (Index i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  };
  for (Index r = 0; r < count; ++r) {
    T* const row = rows + r * n;
    const double before = std::sqrt(dot(row, row));
    for (Index other = 0; other < 2 * r; ++other) {
      const T* const done = rows + other % r * n;
      const T along = static_cast<T>(dot(row, done));
      for (Index i = 0; i < n; ++i) row[i] -= along * done[i];
    }
    const double after = std::sqrt(dot(row, row));
    const bool depends = after <= 100 * double{std::numeric_limits<T>::epsilon()} * before;
    for (Index i = 0; i < n; ++i) row[i] = depends ? T{0} : static_cast<T>(row[i] / after);
  }
}

/// M += factor P Q'.
template <class T>
void add_product(const Matrix& m, T* to, const Tensor& p, const Tensor& q, T factor) {
  for (Index i = 0; i < m.rows; ++i)
    for (Index r = 0; r < m.rank; ++r) {
      const T along = factor * p.data<T>()[r * m.rows + i];
      const T* const row = q.data<T>() + r * m.columns;
      T* const out = to + i * m.columns;
#pragma omp simd
      for (Index j = 0; j < m.columns; ++j) out[j] += along * row[j];
    }
}

void encode_powersgd(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  const auto matrices = matrices_of(now);
  const Tensor kept = now.states[0] ? now.states[0] : numbers;
  Factors out(wire), p(now.round > 0 ? now.sums[0] : wire);
  detail::with_type(numbers, [&]<class T>(T) {
    if (now.round == 0) {
      T* const v = detail::with_residual<T>(now, numbers);
      for (const Matrix& m : matrices) {
        const Tensor q = now.states[1] ? now.states[1].view_rows(m.begin, m.begin + m.rank * m.columns)
                                       : Tensor::zeros({m.rank * m.columns}, numbers.dtype());
        draw<T>(now, m, q);
        launch<kernel::MatMul>(out.next(m.rank, m.rows), q.reshape({m.rank, m.columns}), m.in(kept),
                               MatMulOptions{.transpose_b = true});
      }
      each_between(now, matrices, [&, to = out.rest<T>()](Index begin, Index end) mutable {
        to = std::copy(v + begin, v + end, to);
        std::fill(v + begin, v + end, T{0});
      });
      return;
    }
    for (const Matrix& m : matrices) {
      const Tensor base = p.next(m.rank, m.rows), q = out.next(m.rank, m.columns);
      orthonormalise(base.data<T>(), m.rank, m.rows);
      launch<kernel::MatMul>(q, base, m.in(kept), MatMulOptions{});
      if (now.states[0]) add_product(m, kept.data<T>() + m.begin, base, q, T{-1});
    }
  });
}

void decode(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  const auto matrices = matrices_of(now);
  Factors ps(now.sums[0]), qs(wire);
  detail::with_type(numbers, [&]<class T>(T) {
    T* const to = numbers.data<T>();
    for (const Matrix& m : matrices) {
      const Tensor p = ps.next(m.rank, m.rows), q = qs.next(m.rank, m.columns);
      std::fill(to + m.begin, to + m.end(), T{0});
      add_product(m, to + m.begin, p, q, T{1});
      if (now.states[1]) std::copy_n(q.data<T>(), q.numel(), now.states[1].data<T>() + m.begin);
    }
    each_between(now, matrices, [to, from = ps.rest<T>()](Index begin, Index end) mutable {
      std::copy_n(from, end - begin, to + begin);
      from += end - begin;
    });
  });
}

}  // namespace

const Codec codec_rows::powersgd{.name = "powersgd",
                                 .is_summable = true,
                                 .length = length,
                                 .encode = encode_powersgd,
                                 .decode = decode,
                                 .states = {{"residual", "residual"}, {"factors", "warm_start"}},
                                 .rounds = 2,
                                 .on_host = true};

}  // namespace trireme

// Random matrix products of whole numbers against their definition, amid memory full of NaN.
#include "kernels/contracts/matmul.h"
#include "kernels/cpu/vector.h"
#include "tests/kernels/fenced.h"

namespace test_product_random {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Extents around the blocks that products are cut into.
Index extent() {
  const Index kind = pick(0, 4);
  return kind == 0   ? pick(1, 8)
         : kind == 1 ? pick(1, 70)
         : kind == 2 ? 16 * pick(1, 5) + pick(-1, 1)
         : kind == 3 ? 1
                     : 64;
}

/// sums [m, n] += a b, where element (i, j) of a is at(i, j), and so on.
template <class A, class B>
void add_product(std::vector<double>& sums, Index m, Index n, Index k, A a, B b) {
  for (Index p = 0; p < m; ++p)
    for (Index r = 0; r < k; ++r) {
      const double factor = a(p, r);
      double* row = sums.data() + p * n;
      for (Index q = 0; q < n; ++q) row[q] += factor * b(r, q);
    }
}

void check_matmul(DType type, Index m = extent(), Index n = extent(), Index k = extent()) {
  const bool left = pick(0, 1), right = pick(0, 1);  // batched
  const Index batch = left || right ? pick(1, 3) : 1;
  const MatMulOptions o{.transpose_a = pick(0, 1) == 1, .transpose_b = pick(0, 1) == 1, .accumulate = pick(0, 1) == 1};
  const auto shape = [&](bool batched, Index rows, Index columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    return batched ? Shape{batch, rows, columns} : Shape{rows, columns};
  };
  INFO(name_of(type) << " batch " << batch << " (" << left << ", " << right << ") m " << m << " n " << n << " k " << k
                     << " transposed " << o.transpose_a << ", " << o.transpose_b << " accumulate " << o.accumulate);
  Fenced a(shape(left, m, k, o.transpose_a), type), b(shape(right, k, n, o.transpose_b), type),
      c(shape(left || right, m, n, false), type);
  const std::vector<double> va = a.numbers(), vb = b.numbers(), before = c.numbers();
  std::vector<double> sums;
  for (Index s = 0; s < batch; ++s) {
    std::vector<double> part(static_cast<std::size_t>(m * n));
    const double *pa = va.data() + (left ? s * m * k : 0), *pb = vb.data() + (right ? s * k * n : 0);
    add_product(
        part, m, n, k, [&](Index i, Index j) { return o.transpose_a ? pa[j * m + i] : pa[i * k + j]; },
        [&](Index i, Index j) { return o.transpose_b ? pb[j * k + i] : pb[i * n + j]; });
    sums.insert(sums.end(), part.begin(), part.end());
  }
  const std::vector<double> sizes = sizes_of(sums);
  for (std::size_t i = 0; o.accumulate && i < sums.size(); ++i) sums[i] += before[i];
  if (!o.accumulate) c.forget();
  run<kernel::MatMul>(c.view(), a.view(), b.view(), o);
  CHECK(same(c, sums, sizes, type));
}

void check_linear(DType type, Index rows = extent(), Index in = extent(), Index out = extent()) {
  const bool with_bias = pick(0, 1), relu = pick(0, 1), accumulate = pick(0, 1);
  INFO(name_of(type) << " rows " << rows << " in " << in << " out " << out << " bias " << with_bias << " relu " << relu
                     << " accumulate " << accumulate);
  Fenced x({rows, in}, type), w({out, in}, type), dy({rows, out}, type), bias({out}, type), y({rows, out}, type),
      dx({rows, in}, type), dw({out, in}, type), db({out}, type);
  const std::vector<double> vx = x.numbers(), vw = w.numbers(), vdy = dy.numbers();
  const auto element = [](const std::vector<double>& v, Index row, Index column, Index columns) {
    return v[static_cast<std::size_t>(row * columns + column)];
  };
  std::vector<double> ey(vdy.size()), ex(vx.size()), ew(vw.size()), eb(static_cast<std::size_t>(out));
  add_product(
      ey, rows, out, in, [&](Index i, Index j) { return element(vx, i, j, in); },
      [&](Index i, Index j) { return element(vw, j, i, in); });
  add_product(
      ex, rows, in, out, [&](Index i, Index j) { return element(vdy, i, j, out); },
      [&](Index i, Index j) { return element(vw, i, j, in); });
  add_product(
      ew, out, in, rows, [&](Index i, Index j) { return element(vdy, j, i, out); },
      [&](Index i, Index j) { return element(vx, i, j, in); });
  for (std::size_t i = 0; i < vdy.size(); ++i) eb[i % eb.size()] += vdy[i];
  const std::vector<double> x_sizes = sizes_of(ex), w_sizes = sizes_of(ew), b_sizes = sizes_of(eb);
  for (std::size_t i = 0; i < ey.size(); ++i) {
    if (with_bias) ey[i] += bias.get(static_cast<Index>(i % eb.size()));
    if (relu) ey[i] = std::max(ey[i], 0.0);
  }
  for (std::size_t i = 0; accumulate && i < ew.size(); ++i) ew[i] += dw.get(static_cast<Index>(i));
  for (std::size_t i = 0; accumulate && i < eb.size(); ++i) eb[i] += db.get(static_cast<Index>(i));
  y.forget();
  dx.forget();
  if (!accumulate) {
    dw.forget();
    db.forget();
  }
  const View none;
  run<kernel::Linear>(y.view(), x.view(), w.view(), with_bias ? bias.view() : none, relu);
  CHECK(same(y, ey, sizes_of(ey), type));
  run<kernel::LinearBackwardInput>(dx.view(), dy.view(), w.view());
  CHECK(same(dx, ex, x_sizes, type));
  run<kernel::LinearBackwardWeight>(dw.view(), with_bias ? db.view() : none, x.view(), dy.view(), accumulate);
  CHECK(same(dw, ew, w_sizes, type));
  if (with_bias) CHECK(same(db, eb, b_sizes, type));
}

void check_many(int cases) {
  const int before = threads();
  for (int i = 0; i < cases; ++i) {
    set_threads(i % 8 == 0 ? 1 + static_cast<int>(pick(1, 2)) : 1);
    spoil_scratch();
    const DType type = i % 16 == 0 ? DType::f64 : pick(0, 1) ? DType::bf16 : DType::f32;
    check_matmul(type);
    check_linear(type);
  }
  set_threads(before);
}

}  // namespace

TEST_CASE("random matrix products equal their definition", "[matmul]") { check_many(100); }

TEST_CASE("products larger than the tiles that they are cut into equal their definition", "[matmul]") {
  const int before = threads();
  for (int i = 0; i < 12; ++i) {
    set_threads(1 + i % 3);
    check_matmul(DType::f32, pick(100, 300), pick(400, 1100), pick(1, 24));
    check_matmul(DType::f32, pick(9, 60), pick(5, 60), pick(300, 1300));
    check_linear(DType::f32, pick(9, 60), pick(300, 900), pick(5, 60));
    check_linear(DType::f32, pick(300, 900), pick(9, 60), pick(5, 60));
  }
  set_threads(before);
}

TEST_CASE("below AVX-512 products have the same bits on any number of threads", "[matmul]") {
  if (vector_level() == VectorLevel::v4) {
    SUCCEED("this CPU has AVX-512");
    return;
  }
  const int before = threads();
  for (int i = 0; i < 30; ++i) {
    const Index m = pick(1, 400), n = pick(1, 700), k = pick(1, i % 5 == 0 ? 6000 : 600);
    const MatMulOptions o{.transpose_a = pick(0, 1) == 1, .transpose_b = pick(0, 1) == 1};
    INFO("m " << m << " n " << n << " k " << k << " transposed " << o.transpose_a << ", " << o.transpose_b);
    Fenced a(o.transpose_a ? Shape{k, m} : Shape{m, k}, DType::f32),
        b(o.transpose_b ? Shape{n, k} : Shape{k, n}, DType::f32), c({m, n}, DType::f32);
    for (Fenced* each : {&a, &b})
      for (float& v : each->view().span<float>()) v *= 1 + 1e-4f * static_cast<float>(pick(0, 9999));
    std::vector<float> alone;
    for (const int team : {1, 2, 3}) {
      set_threads(team);
      c.forget();
      run<kernel::MatMul>(c.view(), a.view(), b.view(), o);
      const auto got = c.view().span<float>();
      if (team == 1) alone.assign(got.begin(), got.end());
      CHECK(std::memcmp(got.data(), alone.data(), got.size_bytes()) == 0);
    }
  }
  set_threads(before);
}

TEST_CASE("a row's product has the same bits alone, among few rows and on any number of threads", "[matmul]") {
  const int before = threads();
  const Index rows = 8;
  for (int i = 0; i < 20; ++i) {
    const Index n = pick(1, 300), k = pick(1, 900);
    INFO("n " << n << " k " << k);
    Fenced x({rows, k}, DType::f32), w({n, k}, DType::f32), bias({n}, DType::f32);
    for (Fenced* each : {&x, &w})
      for (float& v : each->view().span<float>()) v *= 1 + 1e-4f * static_cast<float>(pick(0, 9999));
    std::vector<float> alone;
    for (Index row = 0; row < rows; ++row) {
      Fenced y({1, n}, DType::f32), one({1, k}, DType::f32);
      std::memcpy(one.view().data, x.view().as<float>() + row * k, static_cast<std::size_t>(k) * sizeof(float));
      set_threads(static_cast<int>(pick(1, 3)));
      run<kernel::Linear>(y.view(), one.view(), w.view(), bias.view(), true);
      for (const float v : y.view().span<float>()) alone.push_back(v);
    }
    for (const int team : {1, 2, 3}) {
      set_threads(team);
      Fenced y({rows, n}, DType::f32);
      run<kernel::Linear>(y.view(), x.view(), w.view(), bias.view(), true);
      CHECK(std::memcmp(y.view().data, alone.data(), alone.size() * sizeof(float)) == 0);
    }
  }
  set_threads(before);
}

// tests/long.sh runs it.
TEST_CASE("five thousand random matrix products equal their definition", "[.][long]") { check_many(5000); }

}  // namespace test_product_random

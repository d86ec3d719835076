// Counts of right answers: against sorting, and cut into ranks' shares.
#include "framework/metrics/metrics.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/random.h"
#include "tests/support/catch.h"

using namespace trireme;
using test::contains;

TEST_CASE("the label is counted when a stable sort puts it among the first k") {
  constexpr Index rows = 60, classes = 9;
  std::vector<double> x(rows * classes), y(rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Philox{3}(0, i)[0] % 5;  // many ties
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Philox{3}(1, i)[0] % classes;
  for (DType type : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor logits = Tensor::of(x, {rows, classes}, type), labels = Tensor::of(y, {rows}, DType::i64);
    for (Index k : {1, 2, 5, 9, 20}) {
      Index expected = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        std::vector<std::size_t> order(classes);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return x[row * classes + a] > x[row * classes + b]; });
        expected += std::find(order.begin(), order.end(), static_cast<std::size_t>(y[row])) - order.begin() < k;
      }
      CHECK(count_in_top(logits, labels, k) == expected);
      CHECK(count_in_top(logits.rows(0, 7), labels.rows(0, 7), k) +
                count_in_top(logits.rows(7, 7), labels.rows(7, 7), k) +
                count_in_top(logits.rows(7, rows), labels.rows(7, rows), k) ==
            expected);
      if (k == 1) CHECK(count_correct(logits, labels) == expected);
    }
  }
}

TEST_CASE("NaN is no answer, and an ignored label none either") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = Tensor::of(std::vector<double>{nan, 1, 2, 0}, {1, 4});
  const auto in_top = [&](double label, Index k) {
    return count_in_top(logits, Tensor::of(std::vector<double>{label}, {1}, DType::i64), k);
  };
  CHECK(in_top(0, 4) == 0);
  CHECK(in_top(2, 1) == 0);
  CHECK(in_top(2, 2) == 1);
  CHECK(in_top(-100, 4) == 0);
  CHECK_THROWS_WITH(in_top(1, 0), contains("k is 0"));
  CHECK_THROWS_WITH(count_in_top(logits, Tensor::zeros({2}, DType::i64), 1), contains("[1, 4] for 2 labels"));
}

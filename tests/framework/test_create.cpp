// Tensors in, out and in print; NumPy says how they print.
#include <sstream>

#include "framework/layers/layers.h"
#include "framework/tensor/create.h"
#include "framework/tensor/print.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_create {

using namespace trireme;
using test::contains;
using Values = std::vector<double>;

TEST_CASE("memory of any type comes and goes bit for bit") {
  const std::vector<std::int64_t> far{(Index{1} << 62) + 1, -3, 0, 7};
  const Tensor i = Tensor::from(far, {2, 2});
  CHECK(i.dtype() == DType::i64);
  CHECK(i.to_vector<std::int64_t>() == far);
  const std::vector<double> fine{0.1, -1e300, 5e-324};
  CHECK(Tensor::from(fine).dtype() == DType::f64);
  CHECK(Tensor::from(fine).to_vector<double>() == fine);
  CHECK(Tensor::from(fine.data(), {3, 1}).shape() == Shape{3, 1});
  const Tensor f = Tensor::from({{1.5F, 2.F}, {3.F, 4.F}, {5.F, 6.F}});
  CHECK(f.shape() == Shape{3, 2});
  CHECK(f.dtype() == DType::f32);
  CHECK(f.to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  CHECK(Tensor::from({1, 2, 3}).dtype() == DType::i32);
  CHECK(Tensor::from(std::vector<std::uint8_t>{255}).to_vector() == Values{255});
  CHECK(Tensor::from(std::vector<float>{}).shape() == Shape{0});
  CHECK_ERROR(Tensor::from(fine, {2}), usage, 3, "[2]", 2);
  CHECK_ERROR(Tensor::from({{1, 2}, {3}}), usage, 2, 1);
}

TEST_CASE("ranges and other new tensors") {
  CHECK(arange(4).to_vector<Index>() == std::vector<Index>{0, 1, 2, 3});
  CHECK(arange(0).numel() == 0);
  CHECK(arange(1, 2.5, 0.5).to_vector() == Values{1, 1.5, 2});
  CHECK(arange(3, 0, -1, DType::i32).to_vector() == Values{3, 2, 1});
  CHECK(arange(2, 2).numel() == 0);
  CHECK_ERROR(arange(0, 1, -1), usage, -1, 0, 1);
  CHECK_ERROR(arange(0, 1, 0), usage, 0, 1);
  CHECK_ERROR(arange(-1), usage, "empty", -1);
  CHECK(linspace(0, 1, 5).to_vector() == Values{0, 0.25, 0.5, 0.75, 1});
  CHECK(linspace(2, 9, 1).to_vector() == Values{2});
  CHECK(linspace(2, 9, 0).numel() == 0);
  CHECK(eye(2, DType::f64).to_vector() == Values{1, 0, 0, 1});
  CHECK(ones({2}, DType::i32).to_vector() == Values{1, 1});
  CHECK(one_hot(Tensor::from(std::vector<Index>{2, 0}), 3).to_vector() == Values{0, 0, 1, 1, 0, 0});
  CHECK_ERROR(one_hot(arange(3), 2), data, "one_hot", 2);
  CHECK(uniform({3, 4}, 1, 2, 5).to_vector() == uniform({3, 4}, 1, 2, 5).to_vector());
  CHECK(normal({3}, 0, 1, 5).to_vector() != normal({3}, 0, 1, 6).to_vector());
  CHECK(normal({3}, 0, 1, 5, DType::f64).dtype() == DType::f64);
}

TEST_CASE("tensors print as NumPy's arrays do") {
  CHECK(to_string(Tensor()) == "undefined");
  std::ostringstream out;
  out << Tensor::from({{1.F, 2.5F}, {-3.F, 4.F}}) << fmt::format("{}", arange(3));
  CHECK(out.str() == "[[ 1.   2.5]\n [-3.   4. ]][0 1 2]");

  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Tensor> all{
      Tensor::scalar(0.1, DType::f64), Tensor::scalar(-3, DType::f64), Tensor::from({7}).reshape({}),
      Tensor::from({0.1, 1. / 3, 100.}), Tensor::from({0.1F, 1.F / 3, 100.F}), Tensor::from({1e-5, 1.}),
      Tensor::from({1e10, 1.}), Tensor::from({1e300, -1e-300, 0.}), Tensor::from({inf, -inf, std::nan(""), 1.5}),
      Tensor::from({std::nan(""), inf}), Tensor::zeros({2, 3}), Tensor::zeros({0, 3}), Tensor::zeros({1, 1, 1}),
      Tensor::from({-1, 10, 100}), arange(1000), arange(1001), arange(2000).reshape({2, 1000}),
      arange(0, 3000, 1, DType::f64).reshape({3, 10, 100}), uniform({10, 10, 20}, -1, 1, 1), uniform({30}, -1, 1, 2),
      uniform({2, 3, 4, 2}, 0, 1000, 3), uniform({200}, 0, 1e9, 4, DType::f64), Tensor::full({40}, 12345678)};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Shape shapes[] = {{7}, {3, 5}, {40}, {2, 2, 3}, {1, 12}, {8, 200}};
    const double size = std::pow(10, static_cast<double>(seed % 13) - 5);
    all.push_back(uniform(shapes[seed % 6], -size, size, seed, seed % 2 == 0 ? DType::f32 : DType::f64));
    all.push_back(all.back().to(seed % 3 == 0 ? DType::i64 : DType::i32));
  }
  test::Oracle oracle;
  std::string kinds;
  for (std::size_t i = 0; i < all.size(); ++i) {
    oracle.put(fmt::format("{}", i), all[i]);  // as f64: the script converts back
    kinds += fmt::format("{}\n", all[i].dtype() == DType::f32   ? "float32"
                                 : all[i].dtype() == DType::f64 ? "float64"
                                 : all[i].dtype() == DType::i32 ? "int32"
                                                                : "int64");
    oracle.note(fmt::format("{}.txt", i), to_string(all[i]));
  }
  oracle.note("kinds", kinds);
  CHECK(oracle.run("numpy_print.py"));
}

TEST_CASE("products over nothing are zero, of nothing empty") {
  CHECK(matmul(Tensor::zeros({2, 3, 0}), Tensor::zeros({0, 2})).to_vector() == Values(12));
  CHECK(matmul(Tensor::zeros({2, 3, 0}), Tensor::zeros({2, 1, 0, 1})).shape() == Shape{2, 2, 3, 1});
  CHECK(matmul(Tensor::zeros({0, 3, 2}), Tensor::zeros({2, 5})).shape() == Shape{0, 3, 5});
  CHECK(matmul(Tensor::zeros({0}), Tensor::zeros({0})).to_vector() == Values{0});
  CHECK_ERROR(matmul(Tensor::zeros({2, 3, 4}), Tensor::zeros({3, 4, 5})), usage, "[2, 3, 4]", "[3, 4, 5]");
  CHECK_ERROR(matmul(Tensor::scalar(1), Tensor::zeros({2})), usage, "[]", "[2]");
}

TEST_CASE("an embedding gives rows by id; ids that come twice add their gradients") {
  Embedding layer(5, 2);
  const Tensor y = layer(Tensor::from({{Index{1}, Index{4}}, {Index{1}, Index{0}}}));
  CHECK(y.shape() == Shape{2, 2, 2});
  const Values w = layer.weight.to_vector();
  CHECK(y.to_vector() == Values{w[2], w[3], w[8], w[9], w[2], w[3], w[0], w[1]});
  Tensor weight = layer.weight.clone();
  weight.require_grad();
  sum(take(weight, Tensor::from(std::vector<Index>{1, 4, 1}))).backward();
  CHECK(weight.grad().to_vector() == Values{0, 0, 2, 2, 0, 0, 0, 0, 1, 1});
  CHECK_ERROR(layer(Tensor::from(std::vector<Index>{0, 5})), data, 1, 5, 0);
  CHECK_ERROR(layer(Tensor::from({1})), usage, "i32", "i64");
  CHECK_ERROR(Embedding(0, 2), usage, 0, 2);
  CHECK_ERROR(slice(y, 1, 0, 2, 0), usage, "slice", 0);
  CHECK(slice(arange(10), 0, 1, -2, 3).to_vector() == Values{1, 4, 7});
  CHECK(slice(arange(10), 0, 8, 3).numel() == 0);
}

TEST_CASE("an embedding in two bytes rounds the rows that it takes, and no others") {
  for (const DType type : {DType::bf16, DType::f16}) {
    Embedding layer(9, 37);
    layer.weight.copy_from(uniform({9, 37}, -1, 1, 4));
    layer.dtype = type;
    layer.weight.require_grad();
    const Tensor ids = Tensor::from({{Index{1}, Index{8}, Index{1}}, {Index{1}, Index{0}, Index{8}}});
    const Tensor y = layer(ids), dy = uniform(y.shape(), -1, 1, 7).to(type);
    CHECK(y.dtype() == type);
    backward(std::vector{y}, std::vector{dy});
    const Values found = layer.weight.grad().to_vector();
    Tensor whole = layer.weight.detach().clone();
    whole.require_grad();
    const Tensor want = take(whole, ids).to(type);
    CHECK(y.to_vector() == want.to_vector());
    backward(std::vector{want}, std::vector{dy});
    CHECK(found == whole.grad().to_vector());
    CHECK_ERROR(layer(Tensor::from(std::vector<Index>{0, 9})), data, 1, 9);
  }
}

}  // namespace test_create

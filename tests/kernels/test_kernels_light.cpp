// Elementwise kernels, dropout, moves and optimizer updates against plain loops in f64.
#include <numeric>

#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"
#include "kernels/core/random.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/formulas/update_rules.h"
#include "tests/kernels/naive.h"

namespace test_kernels_light {

using namespace trireme;

namespace {

/// value and slope against a function and its central difference; sizes reach past one vector and one thread.
template <class F>
void check_formula(double (*f)(double), double low, double high, F formula = {}) {
  for (DType t : floating)
    for (Index n : {Index{0}, Index{1}, Index{7}, Index{33}, Index{1000}, Index{70001}}) {
      if (n > 1000 && t != DType::f32) continue;
      INFO(F::name << " " << name_of(t) << " " << n);
      Data x = random({n}, t, low, high), y({n}, t), dy = random({n}, t, -1, 1, 2), dx({n}, t);
      run<kernel::Map<F>>(y, x, formula);
      run<kernel::MapBackward<F>>(dx, dy, F::needs_x ? View(x) : View{}, F::needs_y ? View(y) : View{}, formula);
      Numbers in = x.values(), seed = dy.values(), value, slope;
      for (std::size_t i = 0; i < in.size(); ++i) {
        value.push_back(f(in[i]));
        slope.push_back(seed[i] * (f(in[i] + 1e-6) - f(in[i] - 1e-6)) / 2e-6);
      }
      require_near(y.values(), value, tolerance(t));
      require_near(dx.values(), slope, t == DType::f64 ? 1e-8 : t == DType::f32 ? 1e-5 : 3e-2);
    }
  Numbers nan(5, std::nan(""));
  Data x({5}, DType::f32, nan), y({5}, DType::f32);
  run<kernel::Map<F>>(y, x, formula);
  require_near(y.values(), nan, 0);
}

template <class F>
void check_binary(double (*f)(double, double)) {
  const Shape cases[][3] = {{{4, 33}, {4, 33}, {4, 33}},
                            {{7, 5}, {7, 5}, {}},
                            {{7, 5}, {1}, {7, 5}},
                            {{300, 3}, {300, 3}, {3}},
                            {{9, 10}, {1, 10}, {9, 10}},
                            {{20, 100}, {20, 100}, {100}},
                            {{2, 3, 4, 5}, {2, 1, 4, 1}, {3, 1, 5}},
                            {{6, 7}, {6, 1}, {7}},
                            {{0, 7}, {0, 7}, {7}},
                            {{3, 0}, {3, 1}, {1, 0}},
                            {{3, 4}, {1, 1}, {1}},
                            {{2, 20000}, {2, 20000}, {2, 1}}};
  std::vector<DType> types(std::begin(floating), std::end(floating));
  if constexpr (requires { F::integers; })
    types.insert(types.end(), {DType::i8, DType::i16, DType::u8, DType::i32, DType::i64});
  for (DType t : types)
    for (auto& [sy, sa, sb] : cases) {
      INFO(F::name << " " << name_of(t) << " " << to_string(sy) << to_string(sa) << to_string(sb));
      // Whole numbers whose differences and products fit every type.
      Data a = is_float(t) ? random(sa, t, 0.5, 2, 3) : random(sa, t, 9, 16, 3), y(sy, t);
      Data b = is_float(t) ? random(sb, t, 0.5, 2, 4) : random(sb, t, 1, 9, 4);
      run<kernel::Zip<F>>(y, a, b, F{});
      auto at = [whole = sy](const Shape& s, Index i) {
        Index place = 0, step = 1;
        for (int k = 1; k <= whole.rank(); i /= whole[-k], ++k)
          if (k <= s.rank()) {
            place += s[-k] == 1 ? 0 : i % whole[-k] * step;
            step *= s[-k];
          }
        return static_cast<std::size_t>(place);
      };
      Numbers va = a.values(), vb = b.values(), expected;
      for (Index i = 0; i < sy.numel(); ++i) expected.push_back(f(va[at(sa, i)], vb[at(sb, i)]));
      require_near(y.values(), expected, tolerance(t));
    }
}

}  // namespace

TEST_CASE("every unary formula and its slope") {
  check_formula<pointwise::Relu>([](double x) { return x > 0 || x != x ? x : 0; }, -2, 2);
  check_formula<pointwise::LeakyRelu>([](double x) { return x > 0 ? x : 0.01 * x; }, -2, 2);
  check_formula<pointwise::Elu>([](double x) { return x > 0 ? x : std::expm1(x); }, -9, 2);
  check_formula<pointwise::LeakyRelu>([](double x) { return x > 0 ? x : 0.3 * x; }, -2, 2, {0.3});
  check_formula<pointwise::Elu>([](double x) { return x > 0 ? x : 1.7 * std::expm1(x); }, -9, 2, {1.7});
  check_formula<pointwise::Gelu>([](double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.))); }, -6, 6);
  check_formula<pointwise::Sigmoid>([](double x) { return 1 / (1 + std::exp(-x)); }, -9, 9);
  check_formula<pointwise::Silu>([](double x) { return x / (1 + std::exp(-x)); }, -9, 9);
  check_formula<pointwise::Tanh>([](double x) { return std::tanh(x); }, -5, 5);
  check_formula<pointwise::Softplus>([](double x) { return std::log1p(std::exp(x)); }, -9, 9);
  check_formula<pointwise::Softplus>([](double x) { return std::log1p(std::exp(3 * x)) / 3; }, -9, 9, {3});
  check_formula<pointwise::Softsign>([](double x) { return x / (1 + std::abs(x)); }, -9, 9);
  check_formula<pointwise::Hardtanh>([](double x) { return std::clamp(x, -1.53, 0.77); }, -3, 3, {-1.53, 0.77});
  check_formula<pointwise::Clamp>([](double x) { return std::clamp(x, -1.53, 0.77); }, -3, 3, {-1.53, 0.77});
  check_formula<pointwise::Hardsigmoid>([](double x) { return std::clamp(x + 3, 0., 6.) / 6; }, -2.9, 2.9);
  check_formula<pointwise::Hardswish>([](double x) { return x * std::clamp(x + 3, 0., 6.) / 6; }, -2.9, 2.9);
  check_formula<pointwise::Exp>([](double x) { return std::exp(x); }, -3, 1);
  check_formula<pointwise::Log>([](double x) { return std::log(x); }, 0.5, 9);
  check_formula<pointwise::Sqrt>([](double x) { return std::sqrt(x); }, 0.5, 9);
  check_formula<pointwise::Rsqrt>([](double x) { return 1 / std::sqrt(x); }, 0.5, 9);
  check_formula<pointwise::Reciprocal>([](double x) { return 1 / x; }, 0.5, 9);
  check_formula<pointwise::AddScalar>([](double x) { return x + 0.3; }, -2, 2, {0.3});
  check_formula<pointwise::Square>([](double x) { return x * x; }, -2, 2);
  check_formula<pointwise::Abs>([](double x) { return std::abs(x); }, -2, 2);
  check_formula<pointwise::Neg>([](double x) { return -x; }, -2, 2);
}

TEST_CASE("f32 functions at their limits") {
  float inf = std::numeric_limits<float>::infinity();
  CHECK(math::exp(-inf) == 0);
  CHECK(math::exp(inf) == inf);
  CHECK(math::exp(89.f) == inf);
  CHECK(math::exp(-103.f) > 0);
  CHECK(math::expm1(-inf) == -1);
  CHECK(math::log(0.f) == -inf);
  CHECK(math::log(inf) == inf);
  CHECK(std::isnan(math::log(-1.f)));
  CHECK(math::log(1.f) == 0);
  CHECK(math::tanh(-inf) == -1);
  CHECK(math::erf(inf) == 1);
  for (double x = -87; x < 88.7; x += 0.01) {
    float f = static_cast<float>(x);
    REQUIRE(math::exp(f) == Approx(std::exp(static_cast<double>(f))).epsilon(2e-7));
    if (f > -30) REQUIRE(math::expm1(f) == Approx(std::expm1(static_cast<double>(f))).epsilon(3e-7));
    if (f > 0) REQUIRE(math::log(f) == Approx(std::log(static_cast<double>(f))).epsilon(3e-7));
  }
  CHECK(math::erf(-inf) == -1);
  CHECK(std::isnan(math::erf_and_gauss(std::nanf("")).erf));
  CHECK(std::isnan(math::erf_and_gauss(std::nanf("")).gauss));
  for (float gauss : {math::erf_and_gauss(inf).gauss, math::erf_and_gauss(-9.4f).gauss}) CHECK(gauss == 0);
  for (double x = -9.3; x < 9.3; x += 0.001) {
    const float f = static_cast<float>(x);
    const double exact = static_cast<double>(f);
    const auto [erf, gauss] = math::erf_and_gauss(f);
    REQUIRE(erf == Approx(std::erf(exact)).epsilon(3e-7));
    REQUIRE(gauss == Approx(std::exp(-exact * exact)).epsilon(1e-7 * (1 + exact * exact)));
  }
}

TEST_CASE("every binary formula broadcasts as NumPy does") {
  check_binary<pointwise::Add>([](double a, double b) { return a + b; });
  check_binary<pointwise::Sub>([](double a, double b) { return a - b; });
  check_binary<pointwise::Mul>([](double a, double b) { return a * b; });
  check_binary<pointwise::Div>([](double a, double b) { return a / b; });
  check_binary<pointwise::Maximum>([](double a, double b) { return std::max(a, b); });
  check_binary<pointwise::Minimum>([](double a, double b) { return std::min(a, b); });
  Data a({4}, DType::f32, {1, 2, 3, std::nan("")}), b({4}, DType::f32, {2, 2, 2, 2}), y({4}, DType::f32);
  run<kernel::Zip<pointwise::MaximumShare>>(y, a, b, pointwise::MaximumShare{});
  require_near(y.values(), {0, 0.5, 1, 1}, 0);
  run<kernel::Zip<pointwise::MinimumShare>>(y, a, b, pointwise::MinimumShare{});
  require_near(y.values(), {1, 0.5, 0, 1}, 0);
  run<kernel::Zip<pointwise::Maximum>>(y, b, a, pointwise::Maximum{});
  require_near(y.values(), {2, 2, 3, std::nan("")}, 0);
  run<kernel::Zip<pointwise::Sub>>(a, a, b, pointwise::Sub{});  // in place
  require_near(a.values(), {-1, 0, 1, std::nan("")}, 0);
  CHECK(complaint([&] { run<kernel::Zip<pointwise::Add>>(y, a, Data({3}, DType::f32), pointwise::Add{}); }) ==
        "add: cannot broadcast f32 [4] and f32 [3] to f32 [4]");
}

TEST_CASE("axpby, fill, cast and normalize") {
  for (DType t : floating)
    for (Index n : awkward) {
      Data x = random({n}, t), y = random({n}, t, -2, 2, 9),
           z({n}, t, Numbers(static_cast<std::size_t>(n), std::nan("")));
      Numbers vx = x.values(), vy = y.values(), sum, scaled;
      for (std::size_t i = 0; i < vx.size(); ++i) {
        sum.push_back(0.5 * vx[i] + 2 * vy[i]);
        scaled.push_back(3 * vx[i]);
      }
      run<kernel::Axpby>(y, x, 0.5, 2.0);
      require_near(y.values(), sum, tolerance(t));
      run<kernel::Axpby>(z, x, 3.0, 0.0);
      require_near(z.values(), scaled, tolerance(t));
    }
  constexpr DType all[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32,
                           DType::i64, DType::u8,  DType::i8,   DType::i16, DType::boolean};
  constexpr Index n = 1200;  // past two of the blocks in which a cast may take several steps
  Numbers whole(n), truth(n), fraction(n), truncated(n);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    whole[i] = static_cast<double>(i % 101);
    truth[i] = i % 101 == 0 ? 0 : 1;
    fraction[i] = (static_cast<double>(i % 101) - 50) / 4;
    truncated[i] = std::trunc(fraction[i]);
  }
  for (DType from : all)
    for (DType to : all) {
      INFO(name_of(from) << " to " << name_of(to));
      Data x({n}, from, whole), y({n}, to);
      run<kernel::Cast>(y, x);
      require_near(y.values(), from == DType::boolean || to == DType::boolean ? truth : whole, 0);
      if (is_float(from) && to != DType::boolean && to != DType::u8) {
        run<kernel::Cast>(y, Data({n}, from, fraction));
        require_near(y.values(), is_float(to) ? fraction : truncated, 0);
      }
      run<kernel::Fill>(y, 7.0);
      require_near(y.values(), Numbers(n, to == DType::boolean ? 1 : 7), 0);
    }
  for (Index c : {Index{1}, Index{3}, Index{100}}) {
    Data x({5, 7, c}, DType::u8), y({5, 7, c}, DType::f32), a = random({c}, DType::f32), b = random({c}, DType::f32);
    Numbers in, expected;
    for (Index i = 0; i < x.shape().numel(); ++i) in.push_back(static_cast<double>(i * 37 % 256));
    x = Data(x.shape(), DType::u8, in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      std::size_t k = i % static_cast<std::size_t>(c);
      expected.push_back(in[i] * a.values()[k] + b.values()[k]);
    }
    run<kernel::Normalize>(y, x, a, b);
    require_near(y.values(), expected, 1e-5);
  }
}

TEST_CASE("dropout is Philox keyed by sample id") {
  constexpr std::uint64_t key = 0x123456789abcdefull;
  for (DType t : floating)
    for (Index width : {Index{1}, Index{3}, Index{7}, Index{33}, Index{1000}})
      for (double p : {0.0, 0.1, 0.25, 0.5, 1.0}) {
        Index rows = 5;
        Numbers ids{12, 0, 5000000000, 3, -1};
        Data x = random({rows, width}, t, 1, 2), y({rows, width}, t), sample({rows}, DType::i64, ids);
        run<kernel::Dropout>(y, x, sample, View{}, p, key);
        Numbers in = x.values(), expected;
        for (Index r = 0; r < rows; ++r)
          for (Index e = 0; e < width; ++e) {
            auto id = static_cast<std::uint64_t>(static_cast<Index>(ids[static_cast<std::size_t>(r)]));
            auto bits = Philox{key}(id, static_cast<std::uint64_t>(e / 4));
            bool kept = uniform_float(bits[static_cast<std::size_t>(e % 4)]) >= p;
            expected.push_back(kept ? in[static_cast<std::size_t>(r * width + e)] / (1 - p) : 0);
          }
        require_near(y.values(), expected, tolerance(t));
      }
  // Known answer of Philox4x32-10 (Random123's kat_vectors): counter and key all zero.
  CHECK(Philox{0}(0, 0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

  Data x({300, 1000}, DType::f32, Numbers(300000, 1)), y(x.shape(), DType::f32), z(x.shape(), DType::f32);
  Data reversed({300}, DType::i64);
  for (Index i = 0; i < 300; ++i) View(reversed).as<Index>()[i] = 299 - i;
  run<kernel::Dropout>(y, x, View{}, View{}, 0.25, key);
  run<kernel::Dropout>(z, x, reversed, View{}, 0.25, key);
  Numbers a = y.values(), b = z.values();
  for (std::size_t r = 0; r < 300; ++r)
    REQUIRE(std::equal(a.begin() + static_cast<Index>(r) * 1000, a.begin() + static_cast<Index>(r + 1) * 1000,
                       b.begin() + static_cast<Index>(299 - r) * 1000));
  double kept = static_cast<double>(std::count_if(a.begin(), a.end(), [](double v) { return v != 0; })) / 300000;
  CHECK(std::abs(kept - 0.75) < 5 * std::sqrt(0.25 * 0.75 / 300000));  // five deviations
  Data none({0, 8}, DType::f32);
  run<kernel::Dropout>(none, none, View{}, View{}, 0.5, key);
}

TEST_CASE("copy_box and permute move every type") {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8}) {
    Shape from_shape{3, 4, 5}, to_shape{4, 6, 5};
    Numbers in(60);
    std::iota(in.begin(), in.end(), 1);
    Data from(from_shape, t, in), to(to_shape, t);
    for (auto [box, at, to_at] : {std::array<Shape, 3>{Shape{2, 3, 5}, Shape{1, 1, 0}, Shape{2, 3, 0}},
                                  {Shape{3, 4, 2}, Shape{0, 0, 3}, Shape{1, 0, 1}},
                                  {Shape{0, 4, 5}, Shape{0, 0, 0}, Shape{0, 0, 0}}}) {
      run<kernel::Fill>(to, 0.0);
      run<kernel::CopyBox>(to, to_at, from, at, box);
      Numbers expected(120);
      for (Index i = 0; i < box[0]; ++i)
        for (Index j = 0; j < box[1]; ++j)
          for (Index k = 0; k < box[2]; ++k)
            expected[static_cast<std::size_t>(((to_at[0] + i) * 6 + to_at[1] + j) * 5 + to_at[2] + k)] =
                in[static_cast<std::size_t>(((at[0] + i) * 4 + at[1] + j) * 5 + at[2] + k)];
      require_near(to.values(), expected, 0);
    }
    CHECK_THROWS_AS(run<kernel::CopyBox>(to, Shape{2, 3, 1}, from, Shape{0, 0, 0}, Shape{2, 3, 5}), Error);
  }
  const Shape shapes[] = {{2, 3, 1, 5}, {17, 33, 3, 2}, {4, 1, 1, 40}, {1, 1, 1, 1}, {3, 0, 2, 2}};
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (auto& s : shapes) {
      Numbers in(static_cast<std::size_t>(s.numel()));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i % 251);
      Data x(s, t, in);
      Index order[] = {0, 1, 2, 3};
      do {
        Shape o{std::span<const Index>(order)}, out;
        for (Index k : order) out.push_back(s[static_cast<int>(k)]);
        Data y(out, t);
        run<kernel::Permute>(y, x, o);
        Numbers expected;
        for (Index i = 0; i < out.numel(); ++i) {
          Index rest = i, place = 0;
          for (int k = 3; k >= 0; --k) {
            int axis = static_cast<int>(order[k]);
            place += rest % out[k] * s.product(axis + 1, 4);
            rest /= out[k];
          }
          expected.push_back(in[static_cast<std::size_t>(place)]);
        }
        REQUIRE(y.values() == expected);
      } while (std::next_permutation(order, order + 4));
    }
}

namespace {
/// Runs three steps of an update on f32 and f64 and of step(value, grad, a, b, first) on plain numbers.
template <class F, class G>
void check_update(F launch, G step) {
  for (DType t : {DType::f32, DType::f64})
    for (Index n : awkward) {
      Data v = random({n}, t), a({n}, t), b({n}, t);
      Numbers value = v.values(), sa(value.size()), sb(value.size());
      for (unsigned k = 0; k < 3; ++k) {
        Data g = random({n}, t, -1, 1, k + 5);
        launch(v, g, a, b, static_cast<int>(k));
        Numbers grad = g.values();
        for (std::size_t i = 0; i < value.size(); ++i) step(value[i], grad[i], sa[i], sb[i], static_cast<int>(k));
      }
      require_near(v.values(), value, t == DType::f64 ? 1e-13 : 3e-6);
      require_near(a.values(), sa, t == DType::f64 ? 1e-13 : 3e-6);
      require_near(b.values(), sb, t == DType::f64 ? 1e-13 : 3e-6);
    }
}
}  // namespace

TEST_CASE("updates follow PyTorch's formulas") {
  using kernel::Update;
  for (bool nesterov : {false, true})
    for (double momentum : {0.0, 0.9}) {
      double damp = nesterov ? 0 : 0.3;
      check_update(
          [=](View v, View g, View a, View, int k) {
            if (momentum == 0)
              return run<Update<update::Sgd>>(v, g, View{}, View{}, View{}, update::Sgd{0.1, 0.01, 0.5});
            run<Update<update::Momentum>>(v, g, a, View{}, View{},
                                          update::Momentum{0.1, 0.01, 0.5, momentum, damp, nesterov, k == 0});
          },
          [=](double& v, double g, double& m, double&, int k) {
            g = g * 0.5 + 0.01 * v;
            if (momentum != 0) {
              m = k == 0 ? g : momentum * m + (1 - damp) * g;
              g = nesterov ? g + momentum * m : m;
            }
            v -= 0.1 * g;
          });
    }
  check_update(
      [](View v, View g, View a, View, int) {
        run<Update<update::Adagrad>>(v, g, a, View{}, View{}, update::Adagrad{0.1, 0.01, 0.5, 1e-10});
      },
      [](double& v, double g, double& s, double&, int) {
        g = g * 0.5 + 0.01 * v;
        s += g * g;
        v -= 0.1 * g / (std::sqrt(s) + 1e-10);
      });
  check_update(
      [](View v, View g, View a, View b, int) {
        run<Update<update::Adadelta>>(v, g, a, b, View{}, update::Adadelta{1, 0.01, 0.5, 0.9, 1e-6});
      },
      [](double& v, double g, double& s, double& d, int) {
        g = g * 0.5 + 0.01 * v;
        s = 0.9 * s + 0.1 * g * g;
        double step = std::sqrt(d + 1e-6) / std::sqrt(s + 1e-6) * g;
        d = 0.9 * d + 0.1 * step * step;
        v -= step;
      });
  for (bool decoupled : {false, true})
    check_update(
        [=](View v, View g, View a, View b, int k) {
          run<Update<update::Adam>>(v, g, a, b, View{},
                                    update::Adam{0.01, 0.1, 0.5, 0.9, 0.999, 1e-8, 1 - std::pow(0.9, k + 1),
                                                 1 - std::pow(0.999, k + 1), decoupled});
        },
        [=](double& v, double g, double& m, double& s, int k) {
          g *= 0.5;
          if (decoupled)
            v *= 1 - 0.01 * 0.1;
          else
            g += 0.1 * v;
          m = 0.9 * m + 0.1 * g;
          s = 0.999 * s + 0.001 * g * g;
          v -= 0.01 * (m / (1 - std::pow(0.9, k + 1))) / (std::sqrt(s / (1 - std::pow(0.999, k + 1))) + 1e-8);
        });
  check_update(  // of which the first operand is the gradient, and the second one the value
      [](View g, View v, View a, View b, int k) {
        run<Update<update::LambDirection>>(
            g, v, a, b, View{},
            update::LambDirection{0.1, 0.5, 0.9, 0.999, 1e-6, 1 - std::pow(0.9, k + 1), 1 - std::pow(0.999, k + 1)});
      },
      [](double& g, double v, double& m, double& s, int k) {
        g *= 0.5;
        m = 0.9 * m + 0.1 * g;
        s = 0.999 * s + 0.001 * g * g;
        g = m / (1 - std::pow(0.9, k + 1)) / (std::sqrt(s / (1 - std::pow(0.999, k + 1))) + 1e-6) + 0.1 * v;
      });
}

}  // namespace test_kernels_light

// Elementwise kernels, dropout, moves and optimizer updates on a CUDA device beside the CPU's: all types, odd sizes,
// blocks that are aligned and slices that are not.
#include <numeric>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"
#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/formulas/update_rules.h"
#include "tests/kernels/naive.h"
#include "tests/support/oracle.h"

namespace test_cuda_light {

using namespace trireme;

namespace {

constexpr DType device_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr DType all_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

bool no_device() {
  const Backend& gpus = open_backend(DeviceKind::cuda);
  if (gpus.devices > 0) return false;
  test::note_missing("no GPU: " + gpus.absent);
  return true;
}

/// A copy on the device, some elements behind the start of its block.
class DeviceData {
 public:
  DeviceData(const Data& host, Index shift = 0)
      : type_(View(host).dtype),
        shape_(host.shape()),
        start_(shift * size_of(type_)),
        block_(Tensor::empty({start_ + View(host).bytes() + 1}, DType::u8, cuda())) {
    runtime(DeviceKind::cuda).copy(View(*this).data, cuda(), View(host).data, cpu(), bytes());
  }
  operator View() const { return {block_.data<char>() + start_, shape_, type_, cuda()}; }
  Numbers values() const {
    const Data host(shape_, type_);
    runtime(DeviceKind::cuda).copy(View(host).data, cpu(), View(*this).data, cuda(), bytes());
    return host.values();
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(View(*this).bytes()); }
  DType type_;
  Shape shape_;
  Index start_;
  Tensor block_;
};

template <class Op, class... A>
void run_there(const A&... arguments) {
  Kernel<Op>::on(DeviceKind::cuda)(arguments...);
}

Data as_f64(const Data& d) { return Data(d.shape(), DType::f64, d.values()); }
Data not_a_number(const Shape& s, DType t) {
  return Data(s, t, Numbers(static_cast<std::size_t>(s.numel()), is_float(t) ? std::nan("") : 9));
}
/// What both kinds of device say to the same mistake.
template <class Op, class... A>
void require_same_complaint(const A&... arguments) {
  const std::string here = complaint([&] { run<Op>(arguments...); });
  CHECK_FALSE(here.empty());
  CHECK(complaint([&] { run_there<Op>(arguments...); }) == here);
}

template <class F>
void check_formula(double low, double high, F formula = {}) {
  for (DType t : device_types)
    for (Index n : {Index{0}, Index{1}, Index{7}, Index{33}, Index{5000}})
      for (Index shift : {0, 1}) {
        INFO(F::name << " " << name_of(t) << " " << n << " behind " << shift);
        const Data x = random({n}, t, low, high), dy = random({n}, t, -1, 1, 2), exact({n}), exact_slope({n});
        const DeviceData there_x(x, shift), y(not_a_number({n}, t), shift), dx(dy, shift);
        run<kernel::Map<F>>(exact, as_f64(x), formula);
        run_there<kernel::Map<F>>(y, there_x, formula);
        require_near(y.values(), exact.values(), tolerance(t));
        const Data rounded({n}, DType::f64, y.values());
        run<kernel::MapBackward<F>>(exact_slope, as_f64(dy), F::needs_x ? View(as_f64(x)) : View{},
                                    F::needs_y ? View(rounded) : View{}, formula);
        run_there<kernel::MapBackward<F>>(dx, dx, F::needs_x ? View(there_x) : View{}, F::needs_y ? View(y) : View{},
                                          formula);
        require_near(dx.values(), exact_slope.values(), t == DType::f32 ? 1e-5 : tolerance(t));
      }
  const DeviceData x(not_a_number({5}, DType::f32)), y(Data({5}, DType::f32));
  run_there<kernel::Map<F>>(y, x, formula);
  require_near(y.values(), Numbers(5, std::nan("")), 0);
}

template <class F>
void check_binary() {
  const Shape cases[][3] = {{{4, 33}, {4, 33}, {4, 33}},
                            {{7, 5}, {7, 5}, {}},
                            {{7, 5}, {1}, {7, 5}},
                            {{5}, {1}, {}},
                            {{300, 3}, {300, 3}, {3}},
                            {{300, 3}, {3}, {300, 3}},
                            {{9, 16}, {1, 16}, {9, 16}},
                            {{9, 16}, {9, 1}, {1, 16}},
                            {{20, 100}, {20, 100}, {100}},
                            {{2, 3, 4, 5}, {2, 1, 4, 1}, {3, 1, 5}},
                            {{2, 3, 4, 8}, {2, 1, 4, 1}, {3, 1, 8}},
                            {{3, 2, 3, 2, 3, 8}, {3, 1, 3, 1, 3, 8}, {2, 1, 2, 1, 8}},
                            {{3, 2, 3, 2, 3, 2}, {3, 1, 3, 1, 3, 1}, {1, 2, 1, 2, 1, 2}},
                            {{6, 7}, {6, 1}, {7}},
                            {{0, 7}, {0, 7}, {7}},
                            {{3, 0}, {3, 1}, {1, 0}},
                            {{3, 4}, {1, 1}, {1}},
                            {{1, 1}, {1, 1}, {1}},
                            {{2, 4000}, {2, 4000}, {2, 1}}};
  for (DType t : device_types)
    for (auto& [sy, sa, sb] : cases)
      for (Index shift : {0, 1, 2}) {
        INFO(F::name << " " << name_of(t) << " " << to_string(sy) << to_string(sa) << to_string(sb) << shift);
        const Data a = random(sa, t, 0.5, 2, 3), b = random(sb, t, 0.5, 2, 4), exact(sy);
        run<kernel::Zip<F>>(exact, as_f64(a), as_f64(b), F{});
        const DeviceData y(not_a_number(sy, t), shift == 1);
        run_there<kernel::Zip<F>>(y, DeviceData(a, shift == 1), DeviceData(b, shift > 0), F{});
        require_near(y.values(), exact.values(), tolerance(t));
      }
}

}  // namespace

TEST_CASE("every unary formula and its slope on a device") {
  if (no_device()) return;
  check_formula<pointwise::Relu>(-2, 2);
  check_formula<pointwise::LeakyRelu>(-2, 2);
  check_formula<pointwise::Elu>(-9, 2);
  check_formula<pointwise::LeakyRelu>(-2, 2, {0.3});
  check_formula<pointwise::Elu>(-9, 2, {1.7});
  check_formula<pointwise::Gelu>(-6, 6);
  check_formula<pointwise::Sigmoid>(-9, 9);
  check_formula<pointwise::Silu>(-9, 9);
  check_formula<pointwise::Tanh>(-5, 5);
  check_formula<pointwise::Softplus>(-9, 9);
  check_formula<pointwise::Softplus>(-9, 9, {3});
  check_formula<pointwise::Softsign>(-9, 9);
  check_formula<pointwise::Hardtanh>(-3, 3, {-1.53, 0.77});
  check_formula<pointwise::Clamp>(-3, 3, {-1.53, 0.77});
  check_formula<pointwise::Hardsigmoid>(-9, 9);
  check_formula<pointwise::Hardswish>(-9, 9);
  check_formula<pointwise::Rsqrt>(0.5, 9);
  check_formula<pointwise::Reciprocal>(0.5, 9);
  check_formula<pointwise::AddScalar>(-2, 2, {0.3});
  check_formula<pointwise::Exp>(-3, 1);
  check_formula<pointwise::Log>(0.5, 9);
  check_formula<pointwise::Sqrt>(0.5, 9);
  check_formula<pointwise::Square>(-2, 2);
  check_formula<pointwise::Abs>(-2, 2);
  check_formula<pointwise::Neg>(-2, 2);
  require_same_complaint<kernel::Map<pointwise::Exp>>(Data({2}, DType::f32), Data({3}, DType::f32), pointwise::Exp{});
  require_same_complaint<kernel::MapBackward<pointwise::Exp>>(Data({2}), Data({2}), View{}, View{}, pointwise::Exp{});
}

TEST_CASE("every binary formula on a device broadcasts as the CPU's") {
  if (no_device()) return;
  check_binary<pointwise::Add>();
  check_binary<pointwise::Sub>();
  check_binary<pointwise::Mul>();
  check_binary<pointwise::Div>();
  check_binary<pointwise::Maximum>();
  check_binary<pointwise::Minimum>();
  check_binary<pointwise::MaximumShare>();
  check_binary<pointwise::MinimumShare>();
  const double nan = std::nan("");
  const DeviceData a(Data({4}, DType::f32, {1, 2, 3, nan})), b(Data({4}, DType::f32, {2, 2, 2, 2})),
      y(Data({4}, DType::f32));
  run_there<kernel::Zip<pointwise::MaximumShare>>(y, a, b, pointwise::MaximumShare{});
  require_near(y.values(), {0, 0.5, 1, 1}, 0);
  run_there<kernel::Zip<pointwise::Maximum>>(y, b, a, pointwise::Maximum{});
  require_near(y.values(), {2, 2, 3, nan}, 0);
  run_there<kernel::Zip<pointwise::Sub>>(a, a, b, pointwise::Sub{});  // in place
  require_near(a.values(), {-1, 0, 1, nan}, 0);
  require_same_complaint<kernel::Zip<pointwise::Add>>(Data({4}), Data({4}), Data({3}), pointwise::Add{});
}

TEST_CASE("rows in two bytes of an f32 table on a device") {
  if (no_device()) return;
  for (const DType t : {DType::bf16, DType::f16})
    for (const Index width : {1, 37, 128}) {
      INFO(name_of(t) << " " << width);
      const Data table = random({2, 9, width}, DType::f32), ids({5}, DType::i64, {1, 8, 1, 0, 8}), y({2, 5, width}, t),
                 dy = random({2, 5, width}, t, -1, 1, 7), dx({2, 9, width}, DType::f32, Numbers(18 * width, 0.0));
      const DeviceData there_y(y), there_ids(ids), there_dx(dx);
      run<kernel::Take>(y, table, ids);
      run_there<kernel::Take>(there_y, DeviceData(table), there_ids);
      require_near(there_y.values(), y.values(), 0);
      run<kernel::TakeBackward>(dx, dy, ids);
      run_there<kernel::TakeBackward>(there_dx, DeviceData(dy), there_ids);
      require_near(there_dx.values(), dx.values(), 0);
    }
}

TEST_CASE("axpby, fill and cast on a device") {
  if (no_device()) return;
  for (DType t : device_types)
    for (Index n : awkward)
      for (Index shift : {0, 1}) {
        INFO(name_of(t) << " " << n << " behind " << shift);
        const Data x = random({n}, t), y = random({n}, t, -2, 2, 9), sum = as_f64(y), scaled({n});
        const DeviceData there_x(x, shift), there_y(y, shift), z(not_a_number({n}, t));
        run<kernel::Axpby>(sum, as_f64(x), 0.5, 2.0);
        run_there<kernel::Axpby>(there_y, there_x, 0.5, 2.0);
        require_near(there_y.values(), sum.values(), tolerance(t));
        run<kernel::Axpby>(scaled, as_f64(x), 3.0, 0.0);
        run_there<kernel::Axpby>(z, there_x, 3.0, 0.0);
        require_near(z.values(), scaled.values(), tolerance(t));
      }
  for (DType from : all_types)
    for (DType to : all_types)
      for (Index shift : {0, 1}) {
        INFO(name_of(from) << " to " << name_of(to) << " behind " << shift);
        Numbers v(100);
        for (std::size_t i = 0; i < v.size(); ++i)
          v[i] = static_cast<double>(i) * (is_float(from) ? 1.37 : 1) - (from == DType::u8 ? 0 : 30);
        const Data x({100}, from, v), y = not_a_number({100}, to), here({100}, to);
        run<kernel::Cast>(here, x);
        const DeviceData there(y, shift);
        run_there<kernel::Cast>(there, DeviceData(x, shift));
        require_near(there.values(), here.values(), 0);
        run<kernel::Fill>(here, -7.0);
        run_there<kernel::Fill>(there, -7.0);
        require_near(there.values(), here.values(), 0);
      }
  const Numbers edges{0, 65519, 65520, 1e9, -1e-9, 3e-8, 6e-8, 1.00048828125, 1.0014648, std::nan("")};
  for (DType to : {DType::bf16, DType::f16}) {  // rounding, overflow, subnormal numbers
    const Data x({10}, DType::f32, edges), here({10}, to);
    const DeviceData there(here);
    run<kernel::Cast>(here, x);
    run_there<kernel::Cast>(there, DeviceData(x));
    require_near(there.values(), here.values(), 0);
  }
  require_same_complaint<kernel::Cast>(Data({2}), Data({3}));
}

TEST_CASE("pixels become numbers on a device") {
  if (no_device()) return;
  for (Index c : {Index{1}, Index{3}, Index{4}, Index{100}, Index{600}})
    for (DType t : device_types)
      for (DType scales : {DType::f32, DType::f64, DType::bf16})
        for (Index shift : {0, 1}) {
          INFO(c << " channels " << name_of(t) << " " << name_of(scales) << " behind " << shift);
          const Shape shape{6, c == 3 ? 1400 : 4, c};
          Numbers in(static_cast<std::size_t>(shape.numel()));
          for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i * 37 % 256);
          const Data x(shape, DType::u8, in), a = random({c}, scales), b = random({c}, scales, -2, 2, 5), exact(shape);
          run<kernel::Normalize>(exact, x, a, b);
          const DeviceData y(not_a_number(shape, t), shift);
          run_there<kernel::Normalize>(y, DeviceData(x, shift), DeviceData(a, shift), DeviceData(b, shift));
          require_near(y.values(), exact.values(), t == DType::f32 ? 1e-5 : tolerance(t));
        }
  require_same_complaint<kernel::Normalize>(Data({2, 3}), Data({2, 3}), Data({3}), Data({3}));
}

TEST_CASE("dropout on a device keeps what the CPU keeps, bitwise") {
  if (no_device()) return;
  const Numbers ids{12, 0, 5000000000, 3, -1}, begins{0, 4, 4000000000, 7, 13}, odd{1, 2, 3, 5, 6};
  for (DType t : device_types)
    for (Index width : {Index{1}, Index{4}, Index{7}, Index{8}, Index{12}, Index{33}, Index{1000}})
      for (const Numbers* begin : {static_cast<const Numbers*>(nullptr), &begins, &odd})
        for (double p : {0.0, 0.1, 0.5, 1.0}) {
          INFO(name_of(t) << " " << width << " " << p << (begin ? " from elsewhere" : ""));
          const Shape shape{5, width};
          const DType same = t == DType::f16 ? DType::f32 : t;
          const Data x = random(shape, t, 1, 2), sample({5}, DType::i64, ids), here(shape, same);
          const Data first({5}, DType::i64, begin ? *begin : ids);
          const DeviceData y(not_a_number(shape, t)), there_sample(sample), there_first(first);
          constexpr std::uint64_t key = 0x123456789abcdefull;
          run<kernel::Dropout>(here, Data(shape, same, x.values()), begin ? View{} : View(sample),
                               begin ? View(first) : View{}, p, key);
          run_there<kernel::Dropout>(y, DeviceData(x), begin ? View{} : View(there_sample),
                                     begin ? View(there_first) : View{}, p, key);
          REQUIRE(y.values() == Data(shape, t, here.values()).values());
        }
  require_same_complaint<kernel::Dropout>(Data({2}), Data({2}), View{}, View{}, 1.5, std::uint64_t{0});
  require_same_complaint<kernel::Dropout>(Data({2}), Data({2}), Data({2}), View{}, 0.5, std::uint64_t{0});
}

TEST_CASE("copy_box on a device moves every type") {
  if (no_device()) return;
  struct Box {
    Shape to, to_at, from, from_at, extent;
  };
  const Box boxes[] = {
      {{4, 6, 5}, {2, 3, 0}, {3, 4, 5}, {1, 1, 0}, {2, 3, 5}},
      {{4, 6, 5}, {1, 0, 1}, {3, 4, 5}, {0, 0, 3}, {3, 4, 2}},
      {{4, 6, 5}, {0, 0, 0}, {3, 4, 5}, {0, 0, 0}, {0, 4, 5}},
      {{}, {}, {}, {}, {}},
      {{40, 1}, {3, 0}, {40, 7}, {0, 5}, {37, 1}},
      {{2, 10, 12, 16}, {0, 1, 2, 0}, {2, 8, 8, 16}, {0, 0, 0, 0}, {2, 8, 8, 16}},
      {{2, 10, 12, 32}, {0, 0, 0, 16}, {2, 10, 12, 16}, {0, 0, 0, 0}, {2, 10, 12, 16}},
      {{2, 3, 2, 3, 2, 5}, {0, 1, 0, 1, 0, 1}, {2, 2, 2, 2, 2, 4}, {0, 0, 0, 0, 0, 0}, {2, 2, 2, 2, 2, 4}},
      {{5000}, {3}, {6000}, {900}, {4900}}};
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (const Box& b : boxes)
      for (Index shift : {0, 1}) {
        INFO(name_of(t) << " " << to_string(b.from) << to_string(b.extent) << " behind " << shift);
        const Data from = random(b.from, t, 1, 200), to = random(b.to, t, 1, 200, 4);
        const DeviceData there(to, shift);
        run_there<kernel::CopyBox>(there, b.to_at, DeviceData(from, shift), b.from_at, b.extent);
        run<kernel::CopyBox>(to, b.to_at, from, b.from_at, b.extent);
        REQUIRE(there.values() == to.values());
      }
  require_same_complaint<kernel::CopyBox>(Data({2}), Shape{1}, Data({2}), Shape{0}, Shape{2});
}

TEST_CASE("permute on a device moves every type in every order") {
  if (no_device()) return;
  const Shape shapes[] = {{2, 3, 1, 5},   {17, 33, 3, 2}, {4, 1, 1, 40},  {1, 1, 1, 1},  {3, 0, 2, 2},  {2, 9, 11, 3},
                          {3, 70, 67, 1}, {2, 3, 3, 64},  {1, 1, 130, 3}, {5, 2, 65, 4}, {2, 200, 7, 1}};
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (auto& s : shapes) {
      Numbers in(static_cast<std::size_t>(s.numel()));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i % 251);
      const Data x(s, t, in);
      const DeviceData there_x[] = {DeviceData(x, 0), DeviceData(x, 1)};
      Index order[] = {0, 1, 2, 3};
      int turn = 0;
      do {
        Shape o{std::span<const Index>(order)}, out;
        for (Index k : order) out.push_back(s[static_cast<int>(k)]);
        INFO(name_of(t) << " " << to_string(s) << " by " << to_string(o));
        const Data y(out, t);
        const DeviceData there(y, ++turn % 2);
        run<kernel::Permute>(y, x, o);
        run_there<kernel::Permute>(there, there_x[turn % 2], o);
        REQUIRE(there.values() == y.values());
      } while (std::next_permutation(order, order + 4));
    }
  const Data x = random({2, 3, 2, 5, 3, 7}, DType::f32), y({7, 2, 3, 3, 5, 2}, DType::f32);
  const DeviceData there(y);
  const Shape order{5, 2, 4, 1, 3, 0};
  run<kernel::Permute>(y, x, order);
  run_there<kernel::Permute>(there, DeviceData(x), order);
  REQUIRE(there.values() == y.values());
  require_same_complaint<kernel::Permute>(Data({2, 3}), Data({2, 3}), Shape{1, 0});
}

namespace {
/// Three steps of an update on a device in f32 and f64 beside the CPU's in f64. launch(kernel, value, grad, a, b,
/// step).
template <class Op, class F>
void check_update(F launch) {
  for (DType t : {DType::f32, DType::f64})
    for (Index n : awkward)
      for (Index shift : {0, 1}) {
        INFO(Op::name << " " << name_of(t) << " " << n << " behind " << shift);
        const Data start = random({n}, t), zero({n}, t), value = as_f64(start), a({n}), b({n}), c({n});
        const DeviceData there_value(start, shift), there_a(zero, shift), there_b(zero), there_c(zero, shift);
        for (unsigned k = 0; k < 3; ++k) {
          const Data grad = random({n}, t, -1, 1, k + 5);
          launch(Kernel<Op>::on(DeviceKind::cpu), value, as_f64(grad), a, b, c, static_cast<int>(k));
          launch(Kernel<Op>::on(DeviceKind::cuda), there_value, DeviceData(grad, shift), there_a, there_b, there_c,
                 static_cast<int>(k));
        }
        const double bound = t == DType::f64 ? 1e-13 : 3e-6;
        require_near(there_value.values(), value.values(), bound);
        require_near(there_a.values(), a.values(), bound);
        require_near(there_b.values(), b.values(), bound);
        require_near(there_c.values(), c.values(), bound);
      }
}
}  // namespace

TEST_CASE("updates on a device equal the CPU's") {
  if (no_device()) return;
  using kernel::Update;
  check_update<Update<update::Sgd>>([](auto* kernel, View v, View g, View, View, View, int) {
    kernel(v, g, {}, {}, {}, update::Sgd{0.1, 0.01, 0.5});
  });
  for (bool nesterov : {false, true})
    check_update<Update<update::Momentum>>([=](auto* kernel, View v, View g, View a, View, View, int k) {
      kernel(v, g, a, {}, {}, update::Momentum{0.1, 0.01, 0.5, 0.9, nesterov ? 0 : 0.3, nesterov, k == 0});
    });
  check_update<Update<update::Adagrad>>([](auto* kernel, View v, View g, View a, View, View, int) {
    kernel(v, g, a, {}, {}, update::Adagrad{0.1, 0.01, 0.5, 1e-10});
  });
  check_update<Update<update::Adadelta>>([](auto* kernel, View v, View g, View a, View b, View, int) {
    kernel(v, g, a, b, View{}, update::Adadelta{1, 0.01, 0.5, 0.9, 1e-6});
  });
  for (bool centered : {false, true})
    check_update<Update<update::RMSprop>>([=](auto* kernel, View v, View g, View a, View b, View c, int) {
      kernel(v, g, a, b, c, update::RMSprop{0.01, 0.1, 0.5, 0.9, 1e-3, 0.8, centered});
    });
  for (bool decoupled : {false, true})
    check_update<Update<update::Adam>>([=](auto* kernel, View v, View g, View a, View b, View, int k) {
      const double bias1 = 1 - std::pow(0.9, k + 1), bias2 = 1 - std::pow(0.999, k + 1);
      kernel(v, g, a, b, View{}, update::Adam{0.01, 0.1, 0.5, 0.9, 0.999, 1e-8, bias1, bias2, decoupled});
    });
  check_update<Update<update::LambDirection>>([](auto* kernel, View g, View v, View a, View b, View, int k) {
    const double bias1 = 1 - std::pow(0.9, k + 1), bias2 = 1 - std::pow(0.999, k + 1);
    kernel(g, v, a, b, View{}, update::LambDirection{0.1, 0.5, 0.9, 0.999, 1e-6, bias1, bias2});
  });
  require_same_complaint<Update<update::Momentum>>(Data({2}), Data({2}), View{}, View{}, View{},
                                                   update::Momentum{0.1, 0, 1, 0.9, 0, false, true});
  require_same_complaint<Update<update::Adagrad>>(Data({2}), Data({3}), Data({2}), View{}, View{}, update::Adagrad{});
}

}  // namespace test_cuda_light

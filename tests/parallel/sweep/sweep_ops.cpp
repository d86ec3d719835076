// Random graphs of ops on random shapes: f32 and bf16 equal f64 within their rounding, and f64's gradients are the
// slopes of its own outputs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/ops/ops.h"
#include "tests/parallel/sweep/random_graph.h"
#include "tests/parallel/sweep/sweep.h"

namespace trireme::test {
namespace {

using Values = std::vector<double>;
using Inputs = std::vector<Tensor>;

Index reach(Index size, Index window, Index stride, Index pad, Index dilation) {
  return (size + 2 * pad - dilation * (window - 1) - 1) / stride + 1;
}

Graph convolution(RandomChoice& dice) {
  const int axes = static_cast<int>(dice.between(1, 3));
  const Index groups = dice.of({1, 1, 1, 2, 3}), in = groups * dice.between(1, 20), out = groups * dice.between(1, 20);
  ConvOptions o{.groups = groups};
  Shape x{dice.between(1, 4)}, w{out};
  for (int a = 0; a < axes; ++a) {
    const auto at = static_cast<std::size_t>(a);
    const Index k = dice.of({1, 1, 2, 3, 3, 5}), pad = dice.between(0, k);
    o.stride[at] = dice.between(1, 3);
    o.dilation[at] = dice.of({1, 1, 1, 2});
    o.pad_begin[at] = o.pad_end[at] = pad;
    Index size = dice.between(1, 9);
    while (reach(size, k, o.stride[at], pad, o.dilation[at]) < 1 || size + 2 * pad < o.dilation[at] * (k - 1) + 1)
      ++size;
    x.push_back(size);
    w.push_back(k);
  }
  x.push_back(in);
  w.push_back(in / groups);
  const bool bias = dice.chance(60);
  std::vector<Shape> inputs{x, w};
  if (bias) inputs.push_back({out});
  return {fmt::format("conv x {} w {} groups {} stride {} pad {} dilation {}{}", x, w, groups, fmt::join(o.stride, ","),
                      fmt::join(o.pad_begin, ","), fmt::join(o.dilation, ","), bias ? " bias" : ""),
          inputs, [o, bias](const Inputs& t) { return conv(t[0], t[1], bias ? t[2] : Tensor(), o); }};
}

Graph pooling(RandomChoice& dice) {
  const int axes = static_cast<int>(dice.between(1, 3));
  const bool max = dice.chance(50);
  PoolOptions o{.count_padding = dice.chance(50)};
  Shape x{dice.between(1, 3)};
  for (int a = 0; a < axes; ++a) {
    const auto at = static_cast<std::size_t>(a);
    o.window[at] = dice.between(1, 4);
    o.stride[at] = dice.between(1, 4);
    o.pad_begin[at] = o.pad_end[at] = dice.between(0, o.window[at] / 2);
    x.push_back(std::max(o.window[at], dice.between(1, 10)));
  }
  x.push_back(dice.of({1, 3, 7, 16, 33, 64, 257}));
  return {fmt::format("{} x {} window {} stride {} pad {} count {}", max ? "max_pool" : "avg_pool", x,
                      fmt::join(o.window, ","), fmt::join(o.stride, ","), fmt::join(o.pad_begin, ","), o.count_padding),
          {x},
          [o, max](const Inputs& t) { return max ? max_pool(t[0], o) : avg_pool(t[0], o); },
          max};
}

Graph product(RandomChoice& dice) {
  const Index m = dice.between(1, 40), k = dice.between(1, 70), n = dice.between(1, 50);
  if (dice.chance(50)) {
    const bool bias = dice.chance(60);
    std::vector<Shape> inputs{{m, k}, {n, k}};
    if (bias) inputs.push_back({n});
    return {fmt::format("linear {}x{} to {}{}", m, k, n, bias ? " bias" : ""), inputs,
            [bias](const Inputs& t) { return linear(t[0], t[1], bias ? t[2] : Tensor()); }};
  }
  const bool ta = dice.chance(40), tb = dice.chance(40);
  Shape a{ta ? k : m, ta ? m : k}, b{tb ? n : k, tb ? k : n};
  if (dice.chance(40)) {
    const Index batch = dice.between(1, 5);
    a = {batch, a[0], a[1]};
    b = {batch, b[0], b[1]};
  }
  const MatMulOptions o{.transpose_a = ta, .transpose_b = tb};
  return {fmt::format("matmul {} by {} {}{}", a, b, ta, tb), {a, b}, [o](const Inputs& t) {
            return matmul(t[0], t[1], o);
          }};
}

Shape any_shape(RandomChoice& dice) {
  Shape s;
  for (Index axes = dice.between(1, 4); axes > 0; --axes) s.push_back(dice.of({1, 2, 3, 5, 8, 17, 33}));
  return s;
}

Graph norm(RandomChoice& dice) {
  Shape x{dice.between(3, 9)};
  for (Index axes = dice.between(0, 2); axes > 0; --axes) x.push_back(dice.between(1, 6));
  const Index c = dice.of({1, 2, 5, 16, 33, 70});
  x.push_back(c);
  if (dice.chance(50) && c > 1)
    return {
        fmt::format("layer_norm {}", x), {x, {c}, {c}}, [](const Inputs& t) { return layer_norm(t[0], t[1], t[2]); }};
  return {fmt::format("batch_norm {}", x), {x, {c}, {c}}, [c](const Inputs& t) {
            const DType d = t[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
            return batch_norm(t[0], t[1], t[2], Tensor::zeros({c}, d), Tensor::full({c}, 1, d));
          }};
}

Graph elementwise(RandomChoice& dice) {
  const Shape a = any_shape(dice);
  Shape b = a;
  for (int axis = 0; axis < b.rank(); ++axis)
    if (dice.chance(30)) b[axis] = 1;
  using Two = Tensor (*)(const Tensor&, const Tensor&);
  struct Row {
    const char* name;
    Two op;
    bool kinks;
  };
  const Row row = dice.of({Row{"add", add, false}, Row{"sub", sub, false}, Row{"mul", mul, false},
                           Row{"maximum", maximum, true}, Row{"minimum", minimum, true}});
  return {fmt::format("{} {} {}", row.name, a, b),
          {a, b},
          [row](const Inputs& t) { return row.op(t[0], t[1]); },
          row.kinks};
}

Graph reduction(RandomChoice& dice) {
  const Shape x = any_shape(dice);
  std::vector<int> axes;
  for (int a = 0; a < x.rank(); ++a)
    if (dice.chance(60)) axes.push_back(a);
  if (axes.empty()) axes = {0};
  const ReduceKind kind = dice.of({ReduceKind::sum, ReduceKind::mean, ReduceKind::max});
  return {fmt::format("reduce {} over {} kind {}", x, fmt::join(axes, ","), static_cast<int>(kind)),
          {x},
          [=](const Inputs& t) { return reduce(t[0], kind, axes); },
          kind == ReduceKind::max};
}

/// Rows and pieces taken out of the inputs and put together again, permuted and padded.
Graph pieces(RandomChoice& dice) {
  const Shape x = any_shape(dice);
  const int axis = static_cast<int>(dice.between(0, x.rank() - 1));
  Shape more = x;
  more[axis] = dice.between(1, 5);
  const Index cut = dice.between(0, x[axis]), begin = dice.between(0, x[0]), end = dice.between(begin, x[0]);
  std::vector<Index> order(static_cast<std::size_t>(x.rank()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
  for (std::size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[static_cast<std::size_t>(dice.between(0, static_cast<Index>(i)))]);
  Shape before = x, after = x;
  for (int a = 0; a < x.rank(); ++a) {
    before[a] = dice.between(0, 2);
    after[a] = dice.between(0, 2);
  }
  const bool padded = dice.chance(40), turned = dice.chance(50), rows = dice.chance(50);
  return {fmt::format("concat {} and {} cut at {} of axis {}{}{}{}", x, more, cut, axis,
                      rows ? fmt::format(", rows {} to {} added", begin, end) : "", padded ? ", padded" : "",
                      turned ? fmt::format(", permuted {}", fmt::join(order, ",")) : ""),
          {x, more},
          [=](const Inputs& t) {
            const auto halves = split(t[0], {cut, x[axis] - cut}, axis);
            Tensor y = concat({halves[1], t[1], halves[0]}, axis);
            if (rows && end > begin) y = concat({y, y.rows(0, std::min(end - begin, y.dim(0)))}, 0);
            if (padded) y = pad(y, before, after);
            if (turned) y = permute(y, Shape(order));
            return y.reshape({-1, y.dim(-1)});
          }};
}

/// The same shape, with axes of extent 1 and without some in front.
Shape narrower(Shape s, int keep, RandomChoice& dice) {
  for (int a = 0; a < s.rank() - keep; ++a)
    if (dice.chance(30)) s[a] = 1;
  Shape t;
  const int gone = s.rank() > keep ? static_cast<int>(dice.between(0, s.rank() - keep)) : 0;
  for (int a = gone; a < s.rank(); ++a) t.push_back(s[a]);
  return t;
}

/// Matrices behind axes that broadcast, and vectors.
Graph products(RandomChoice& dice) {
  const Index m = dice.between(1, 9), k = dice.between(1, 17), n = dice.between(1, 9);
  Shape batch;
  for (Index axes = dice.between(0, 3); axes > 0; --axes) batch.push_back(dice.between(1, 3));
  const MatMulOptions o{.transpose_a = dice.chance(30), .transpose_b = dice.chance(30)};
  const auto matrices = [&](Index rows, Index columns, bool turned) {
    Shape s = batch;
    s.push_back(turned ? columns : rows);
    s.push_back(turned ? rows : columns);
    return narrower(s, 2, dice);
  };
  Shape a = matrices(m, k, o.transpose_a), b = matrices(k, n, o.transpose_b);
  if (dice.chance(15)) a = o.transpose_a ? a : Shape{k};
  if (dice.chance(15)) b = o.transpose_b ? b : Shape{k};
  return {fmt::format("matmul {} by {} {}{}", a, b, o.transpose_a, o.transpose_b), {a, b}, [o](const Inputs& t) {
            return matmul(t[0], t[1], o);
          }};
}

/// Elements by number, in any order and more than once, and what is made of that.
Graph taken(RandomChoice& dice) {
  const Shape x = any_shape(dice);
  const int axis = static_cast<int>(dice.between(0, x.rank() - 1));
  const Index extent = x[axis], from = dice.between(-extent, extent), to = dice.between(-extent, extent + 2),
              step = dice.between(1, 3), shift = dice.between(-40, 40);
  std::vector<Index> ids;
  for (Index i = dice.between(1, 12); i > 0; --i) ids.push_back(dice.between(0, extent - 1));
  const bool square = x.rank() < 4 && dice.chance(30) && ids.size() % 2 == 0;
  return {fmt::format("take {} of {} along {}{}, slice {}:{}:{}, roll {}", fmt::join(ids, ","), x, axis,
                      square ? " in two rows" : "", from, to, step, shift),
          {x},
          [=](const Inputs& t) {
            const auto n = static_cast<Index>(ids.size());
            const Tensor some = take(t[0], square ? Tensor::from(ids, {2, n / 2}) : Tensor::from(ids), axis);
            const Tensor turned = roll(flip(t[0], {axis}), shift, axis);
            const Tensor both = concat({turned, slice(t[0], axis, from, to, step), turned}, axis);
            return concat({some.reshape({-1}), both.reshape({-1})}, 0).reshape({1, -1});
          }};
}

/// A statistic over some axes.
Graph statistic(RandomChoice& dice) {
  const Shape x = any_shape(dice);
  std::vector<int> axes;
  Index count = 1;
  for (int a = 0; a < x.rank(); ++a)
    if (dice.chance(60)) {
      axes.push_back(dice.chance(50) ? a : a - x.rank());
      count *= x[a];
    }
  const bool keep = dice.chance(50), many = count > 1;
  const Index kind = dice.between(0, many ? 3 : 2);
  constexpr std::array names{"sum", "mean", "logsumexp", "var"};
  return {fmt::format("{} of {} over {}{}", names[static_cast<std::size_t>(kind)], x, fmt::join(axes, ","),
                      keep ? ", kept" : ""),
          {x},
          [=](const Inputs& t) {
            const Tensor y = kind == 0   ? sum(t[0], axes, keep)
                             : kind == 1 ? mean(t[0], axes, keep)
                             : kind == 2 ? logsumexp(t[0], axes, keep)
                                         : var(t[0], axes, keep);
            return expand(y.reshape({1, y.numel()}), {3, y.numel()});
          }};
}

/// Of a layer that has drawn before, of samples in any order.
Graph dropped(RandomChoice& dice) {
  const Shape x = any_shape(dice);
  const double p = dice.of({0.0, 0.1, 0.5, 0.9});
  const auto layer = static_cast<std::uint64_t>(dice.between(0, 5)),
             step = static_cast<std::uint64_t>(dice.between(0, 9));
  std::vector<double> ids;
  for (Index i = 0; i < x[0]; ++i) ids.push_back(static_cast<double>(dice.between(0, 1'000'000)));
  const bool twice = dice.chance(50);
  return {fmt::format("dropout({}) of {}, layer {}, step {}{}", p, x, layer, step, twice ? ", twice" : ""),
          {x},
          [=](const Inputs& t) {
            const Tensor of =
                t[0].with_batch({.seed = 7, .step = step, .samples = Tensor::of(ids, {x[0]}, DType::i64)});
            const Tensor y = dropout(of, p, layer);
            return twice ? add(dropout(tanh(of), p, layer), y) : y;
          }};
}

Graph loss(RandomChoice& dice) {
  const Index rows = dice.between(1, 20), classes = dice.between(2, 40), positions = dice.between(1, 4);
  if (dice.chance(40))
    return {fmt::format("mse_loss {}x{}", rows, classes), {{rows, classes}, {rows, classes}}, [](const Inputs& t) {
              return mse_loss(t[0], t[1]);
            }};
  std::vector<double> labels;
  for (Index i = 0; i < rows * positions; ++i)
    labels.push_back(dice.chance(15) ? -1.0 : static_cast<double>(dice.between(0, classes - 1)));
  labels[0] = 0;
  const bool ignored = std::count(labels.begin(), labels.end(), -1.0) > 0;
  const Index total = ignored ? rows : rows * dice.between(1, 3);  // how many labels others ignore, a Step would say
  return {fmt::format("cross_entropy of {} rows of {}, {} positions, {} classes", rows, total, positions, classes),
          {{rows * positions, classes}},
          [=](const Inputs& t) {
            const BatchContext batch{.samples = Tensor::zeros({rows}, DType::i64), .global_batch = total};
            const Tensor of = t[0].with_batch(batch), truth = Tensor::of(labels, {rows * positions}, DType::i64);
            return ignored ? cross_entropy_with({.ignore_index = -1})(of, truth) : cross_entropy(of, truth);
          }};
}

/// Some smooth ops behind it, whose shape is its own.
Graph prolonged(Graph g, RandomChoice& dice) {
  using One = Tensor (*)(const Tensor&);
  struct Row {
    const char* name;
    One op;
  };
  for (Index more = dice.between(0, 3); more > 0; --more) {
    const Row row =
        dice.of({Row{"tanh", tanh}, Row{"sigmoid", sigmoid}, Row{"gelu", gelu}, Row{"silu", silu},
                 Row{"softplus", softplus}, Row{"softmax", softmax}, Row{"log_softmax", log_softmax}, Row{"sin", sin},
                 Row{"cos", cos}, Row{"erf", erf}, Row{"mish", mish}, Row{"gelu_tanh", gelu_tanh}});
    g.text += std::string(" ") + row.name;
    g.run = [run = g.run, op = row.op](const Inputs& t) { return op(run(t)); };
  }
  if (dice.chance(30)) {
    g.text += " times itself";
    g.run = [run = g.run](const Inputs& t) {
      const Tensor y = run(t);
      return mul(y, tanh(y));
    };
  }
  return g;
}

struct Result {
  Values y;
  std::vector<Values> dx;
  std::string error = {};
};
/// Exact in bf16, and no two alike nearby.
Values numbers(const Shape& s, std::uint64_t salt) {
  Values v(static_cast<std::size_t>(s.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(mix(salt * 7919 + i) % 255) / 128 - 0.99609375;
  return v;
}
Result compute(const Graph& g, const std::vector<Values>& values, DType dtype, bool slopes) {
  Result r;
  try {
    Inputs x;
    for (std::size_t k = 0; k < g.inputs.size(); ++k) x.push_back(Tensor::of(values[k], g.inputs[k], dtype));
    if (slopes)
      for (Tensor& t : x) t.require_grad();
    const Tensor y = g.run(x);
    r.y = y.to_vector();
    if (!slopes) return r;
    y.backward(Tensor::of(numbers(y.shape(), 99), y.shape(), y.dtype()));
    for (Tensor& t : x) r.dx.push_back(t.grad().to_vector());
  } catch (const Error& e) { r.error = e.what(); }
  return r;
}

double norm_of(const Values& a) {
  double sum = 0;
  for (double v : a) sum += v * v;
  return std::sqrt(sum);
}
void compare(const std::string& what, const Values& a, const Values& b, double tolerance) {
  check(a.size() == b.size(), "sweep", "{}: {} values, not {}", what, a.size(), b.size());
  Values d(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) d[i] = a[i] - b[i];
  const double allowed = tolerance * (norm_of(b) + 0.1 * std::sqrt(static_cast<double>(b.size())));
  check(norm_of(d) <= allowed, "sweep", "{}: differs by {:.3g} of {:.3g}", what, norm_of(d), norm_of(b));
}
double along(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::string sweep_ops(RandomChoice dice) {
  Graph (*const makers[])(RandomChoice&) = {convolution, convolution, convolution, pooling,   product,
                                            norm,        elementwise, reduction,   pieces,    dropped,
                                            loss,        products,    taken,       statistic, transposed_convolution,
                                            resampled,   grouped,     selected};
  const Graph one = makers[dice.between(0, std::ssize(makers) - 1)](dice), g = prolonged(one, dice);
  StepContext context;
  const StepScope scope(context);
  std::vector<Values> x;
  for (auto& shape : g.inputs) x.push_back(numbers(shape, static_cast<std::uint64_t>(dice.between(0, 1 << 20))));
  const Result exact = compute(g, x, DType::f64, true);
  const auto agree = [&](const Graph& graph, DType dtype, double tolerance, const Result& right) {
    const Result r = compute(graph, x, dtype, true);
    const std::string what = fmt::format("{} in {}", graph.text, dtype);
    check(r.error.empty() == right.error.empty(), "sweep", "{}: '{}', but '{}' in f64", what, r.error, right.error);
    if (!right.error.empty()) return;
    compare(what, r.y, right.y, tolerance);
    for (std::size_t k = 0; k < r.dx.size(); ++k)
      compare(fmt::format("{}, gradient of input {}", what, k), r.dx[k], right.dx[k], 2 * tolerance);
  };
  agree(g, DType::f32, 2e-5, exact);
  // An op alone: behind a tanh near 1 the rounding of bf16 is as large as the gradient.
  agree(one, DType::bf16, 0.04, g.text == one.text ? exact : compute(one, x, DType::f64, true));
  if (!exact.error.empty()) return "refused";
  if (g.kinks) return "equal";
  const Values seed = numbers({static_cast<Index>(exact.y.size())}, 99);
  const double h = 1e-6;
  double slope = 0;
  auto up = x, down = x;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const Values way = numbers(g.inputs[k], 4242 + k);
    slope += along(exact.dx[k], way);
    for (std::size_t i = 0; i < way.size(); ++i) {
      up[k][i] += h * way[i];
      down[k][i] -= h * way[i];
    }
  }
  const double rise =
      along(compute(g, up, DType::f64, false).y, seed) - along(compute(g, down, DType::f64, false).y, seed);
  const double size = 1 + norm_of(exact.y) + std::abs(slope);
  check(std::abs(rise / (2 * h) - slope) <= 1e-4 * size, "sweep", "{}: slope {} by the tape, {} by differences", g.text,
        slope, rise / (2 * h));
  return "equal";
}

}  // namespace trireme::test

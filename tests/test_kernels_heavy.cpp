// Convolution, matrix product and pooling kernels against loops written from their definitions; the
// allocator.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/matmul.h"
#include "kernels/pool.h"
#include "kernels/random.h"
#include "kernels/runtime.h"
#include "tests/catch.h"

using namespace trireme;

namespace {

constexpr DType all_types[] = {DType::f32, DType::f64, DType::bf16};

template <class Op, class... A>
void run(A&&... a) {
  Kernel<Op>::on(DeviceKind::cpu)(std::forward<A>(a)...);
}

/// A host tensor whose numbers the test sees as doubles.
struct Array {
  Array() = default;
  Array(Shape shape, DType type)
      : shape(shape), type(type), bytes(static_cast<std::size_t>(shape.numel() * size_of(type))) {}
  View view() { return bytes.empty() && shape.rank() == 0 ? View{} : View{data(), shape, type, cpu()}; }
  void* data() { return bytes.empty() ? static_cast<void*>(&nothing) : bytes.data(); }
  Index size() const { return shape.numel(); }
  double get(Index i) {
    return dispatch_any(type,
                        [&](auto t) { return static_cast<double>(static_cast<decltype(t)*>(data())[i]); });
  }
  void set(Index i, double v) {
    dispatch_any(type, [&](auto t) {
      using T = decltype(t);
      if constexpr (std::is_same_v<T, bf16>)
        static_cast<T*>(data())[i] = T(static_cast<float>(v));
      else
        static_cast<T*>(data())[i] = static_cast<T>(v);
    });
  }
  Shape shape;
  DType type = DType::f32;
  std::vector<unsigned char> bytes;
  double nothing = 0;
};

std::mt19937_64 engine(7);
Index pick(Index from, Index to) { return std::uniform_int_distribution<Index>(from, to)(engine); }

/// Integers in [-2, 2], or, for whole = false, numbers in [-1, 1).
Array filled(Shape shape, DType type, bool whole = true) {
  Array a(shape, type);
  for (Index i = 0; i < a.size(); ++i)
    a.set(i, whole ? static_cast<double>(pick(-2, 2)) : std::uniform_real_distribution<>(-1, 1)(engine));
  return a;
}

/// Rounding allowed in a sum of k products of numbers below 1.
double tolerance(DType type, Index k) {
  double eps = type == DType::f64 ? 0x1p-52 : type == DType::f32 ? 0x1p-23 : 0x1p-8;
  return (type == DType::bf16 ? 4 : 64) * eps * std::sqrt(static_cast<double>(k));
}

void close(Array& got, const std::vector<double>& expected, double within) {
  REQUIRE(got.size() == static_cast<Index>(expected.size()));
  double worst = 0;
  for (Index i = 0; i < got.size(); ++i)
    worst = std::fmax(worst, std::fabs(got.get(i) - expected[static_cast<std::size_t>(i)]));
  bool finite = true;
  for (Index i = 0; i < got.size(); ++i) finite = finite && std::isfinite(got.get(i));
  CHECK(finite);
  CHECK(worst <= within);
}

std::vector<double> numbers(Array& a) {
  std::vector<double> v;
  for (Index i = 0; i < a.size(); ++i) v.push_back(a.get(i));
  return v;
}

struct ConvCase {
  int dims;
  Index n, c_in, c_out;
  Extents in, filter;
  ConvOptions o;
  Extents out{1, 1, 1};
  Shape x{0}, w{0}, y{0};
};

ConvCase random_conv(int dims) {
  ConvCase c{dims, pick(1, 3), 0, 0, {1, 1, 1}, {1, 1, 1}, {}};
  c.o.groups = pick(1, 3);
  bool depthwise = pick(0, 3) == 0;
  if (depthwise) c.o.groups = 2 * pick(1, 4);
  c.c_in = c.o.groups * (depthwise ? 1 : pick(1, 4)), c.c_out = c.o.groups * (depthwise ? 1 : pick(1, 4));
  if (pick(0, 4) == 0) c.o.groups = 1, c.c_in = 1, c.c_out = 16 * pick(1, 2);
  c.x = {c.n}, c.w = {c.c_out}, c.y = {c.n};
  for (int d = 0; d < dims; ++d) {
    auto i = static_cast<std::size_t>(d);
    c.filter[i] = pick(1, 3), c.o.stride[i] = pick(1, 2), c.o.dilation[i] = pick(1, 2);
    c.o.pad_begin[i] = pick(0, 2), c.o.pad_end[i] = pick(0, 2);
    Index reach = (c.filter[i] - 1) * c.o.dilation[i] + 1;
    c.in[i] = std::max<Index>(1, reach + pick(0, 4) - c.o.pad_begin[i] - c.o.pad_end[i]);
    c.out[i] = (c.in[i] + c.o.pad_begin[i] + c.o.pad_end[i] - reach) / c.o.stride[i] + 1;
    c.x.push_back(c.in[i]), c.w.push_back(c.filter[i]), c.y.push_back(c.out[i]);
  }
  c.x.push_back(c.c_in), c.w.push_back(c.c_in / c.o.groups), c.y.push_back(c.c_out);
  return c;
}

/// f(x index, w index, y index) for every product in the convolution.
template <class F>
void for_products(const ConvCase& c, F f) {
  const auto& o = c.o;
  Index gi = c.c_in / o.groups, go = c.c_out / o.groups;
  for (Index n = 0; n < c.n; ++n)
    for (Index y0 = 0; y0 < c.out[0]; ++y0)
      for (Index y1 = 0; y1 < c.out[1]; ++y1)
        for (Index y2 = 0; y2 < c.out[2]; ++y2)
          for (Index f0 = 0; f0 < c.filter[0]; ++f0)
            for (Index f1 = 0; f1 < c.filter[1]; ++f1)
              for (Index f2 = 0; f2 < c.filter[2]; ++f2) {
                Index x0 = y0 * o.stride[0] - o.pad_begin[0] + f0 * o.dilation[0];
                Index x1 = y1 * o.stride[1] - o.pad_begin[1] + f1 * o.dilation[1];
                Index x2 = y2 * o.stride[2] - o.pad_begin[2] + f2 * o.dilation[2];
                if (x0 < 0 || x1 < 0 || x2 < 0 || x0 >= c.in[0] || x1 >= c.in[1] || x2 >= c.in[2]) continue;
                Index x = (((n * c.in[0] + x0) * c.in[1] + x1) * c.in[2] + x2) * c.c_in;
                Index y = (((n * c.out[0] + y0) * c.out[1] + y1) * c.out[2] + y2) * c.c_out;
                for (Index k = 0; k < c.c_out; ++k)
                  for (Index i = 0; i < gi; ++i)
                    f(x + k / go * gi + i,
                      (((k * c.filter[0] + f0) * c.filter[1] + f1) * c.filter[2] + f2) * gi + i, y + k);
              }
}

/// Leaves NaN in blocks that the next kernels will get as scratch memory.
void spoil_free_blocks() {
  Runtime& r = runtime(DeviceKind::cpu);
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (std::size_t bytes = 64; bytes <= std::size_t{1} << 18; bytes += bytes / 16 / 64 * 64 + 64) {
    blocks.emplace_back(r.allocate(bytes, cpu()), bytes);
    std::memset(blocks.back().first, 0xff, bytes);
  }
  for (auto [block, bytes] : blocks) r.release(block, bytes, cpu());
}

void check_conv(ConvCase c, DType type, bool whole) {
  spoil_free_blocks();
  bool with_bias = pick(0, 1), accumulate = pick(0, 1);
  c.o.relu = pick(0, 1);
  INFO("x " << to_string(c.x) << " w " << to_string(c.w) << " y " << to_string(c.y) << " groups "
            << c.o.groups << " type " << name_of(type) << " bias " << with_bias << " relu " << c.o.relu);
  Array x = filled(c.x, type, whole), w = filled(c.w, type, whole), dy = filled(c.y, type, whole);
  Array bias = with_bias ? filled({c.c_out}, type, whole) : Array();
  Array y(c.y, type), dx = filled(c.x, type), dw = filled(c.w, type),
                      db = with_bias ? filled({c.c_out}, type) : Array();
  std::vector<double> ey(static_cast<std::size_t>(y.size())), ex(static_cast<std::size_t>(dx.size()));
  std::vector<double> ew(static_cast<std::size_t>(dw.size())), eb(static_cast<std::size_t>(c.c_out));
  if (accumulate) ew = numbers(dw);
  if (accumulate && with_bias) eb = numbers(db);
  for (Index i = 0; i < y.size(); ++i) {
    if (with_bias) ey[static_cast<std::size_t>(i)] = bias.get(i % c.c_out);
    eb[static_cast<std::size_t>(i % c.c_out)] += dy.get(i);
  }
  std::vector<double> vx = numbers(x), vw = numbers(w), vy = numbers(dy);
  for_products(c, [&](Index xi, Index wi, Index yi) {
    auto a = static_cast<std::size_t>(xi), b = static_cast<std::size_t>(wi), k = static_cast<std::size_t>(yi);
    ey[k] += vx[a] * vw[b], ex[a] += vy[k] * vw[b], ew[b] += vy[k] * vx[a];
  });
  if (c.o.relu)
    for (double& v : ey) v = std::max(v, 0.0);
  run<kernel::Conv>(y.view(), x.view(), w.view(), bias.view(), c.o);
  run<kernel::ConvBackwardInput>(dx.view(), dy.view(), w.view(), c.o);
  run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), dy.view(), c.o, accumulate);
  bool exact = whole && type != DType::bf16;
  Index taps = dw.size() / c.c_out + 1, places = y.size() / c.c_out + 1;
  // Whole numbers reach 4 per product and 2 per starting value: bf16 rounds their sums relative to their
  // size.
  double size = whole ? 8 : 1;
  close(y, ey, exact ? 0 : size * tolerance(type, taps));
  close(dx, ex, exact ? 0 : size * tolerance(type, taps * c.c_out));
  close(dw, ew, exact ? 0 : size * tolerance(type, places));
  if (with_bias) close(db, eb, exact ? 0 : size * tolerance(type, places));
}

}  // namespace

TEST_CASE("convolution equals its definition", "[conv]") {
  int before = threads();
  for (DType type : all_types)
    for (int dims = 1; dims <= 3; ++dims)
      for (int i = 0; i < 20; ++i) {
        set_threads(i % 5 == 0 ? 2 : 1);
        check_conv(random_conv(dims), type, i % 2 == 0);
      }
  set_threads(before);
}

TEST_CASE("convolution of one channel, at several thread counts", "[conv]") {
  int before = threads();
  for (int count : {1, 2, 3}) {
    set_threads(count);
    for (Index out : {16, 32, 48})
      for (Index width : {3, 9, 28, 31}) {
        ConvCase c{2, 3, 1, out, {5, width, 1}, {3, 3, 1}, {}};
        c.out = {3, width - 2, 1};
        c.x = {3, 5, width, 1}, c.w = {out, 3, 3, 1}, c.y = {3, 3, width - 2, out};
        check_conv(c, DType::f32, true);
        check_conv(c, DType::f32, false);
      }
  }
  set_threads(before);
}

TEST_CASE("convolution's filter gradient with many input channels", "[conv]") {
  int before = threads();
  for (int count : {1, 2})
    for (Index in : {32, 48})
      for (Index dilation : {1, 2})
        for (Index stride : {1, 2}) {
          set_threads(count);
          ConvCase c{2, 2, in, 4, {17 * stride + 2 * dilation, 16 * stride + 2 * dilation, 1}, {3, 3, 1}, {}};
          c.o.stride = {stride, stride, 1}, c.o.dilation = {dilation, dilation, 1}, c.out = {1, 1, 1};
          c.x = {2}, c.w = {4, 3, 3, in}, c.y = {2};
          for (std::size_t d = 0; d < 2; ++d) {
            c.out[d] = (c.in[d] - 2 * dilation - 1) / stride + 1;
            c.x.push_back(c.in[d]), c.y.push_back(c.out[d]);
          }
          c.x.push_back(in), c.y.push_back(4);
          check_conv(c, DType::f32, stride == 1);
        }
  set_threads(before);
}

TEST_CASE("convolution sees weights that change between calls", "[conv]") {
  ConvCase c = random_conv(2);
  for (int i = 0; i < 3; ++i) check_conv(c, DType::f32, true);
}

TEST_CASE("convolution of an empty batch", "[conv]") {
  for (DType type : all_types) {
    Array x({0, 4, 4, 2}, type), w = filled({3, 3, 3, 2}, type), y({0, 2, 2, 3}, type), b = filled({3}, type);
    Array dw = filled(w.shape, type), db = filled({3}, type);
    auto kept = numbers(dw);
    run<kernel::Conv>(y.view(), x.view(), w.view(), b.view(), ConvOptions{});
    run<kernel::ConvBackwardInput>(x.view(), y.view(), w.view(), ConvOptions{});
    run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), y.view(), ConvOptions{}, true);
    close(dw, kept, 0);
    run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), y.view(), ConvOptions{}, false);
    close(dw, std::vector<double>(54, 0.0), 0);
    close(db, {0, 0, 0}, 0);
  }
}

TEST_CASE("convolution refuses what does not fit", "[conv]") {
  Array x({1, 4, 4, 3}, DType::f32), w({2, 3, 3, 64}, DType::f32), y({1, 2, 2, 2}, DType::f32);
  CHECK_THROWS_WITH(run<kernel::Conv>(y.view(), x.view(), w.view(), View{}, ConvOptions{}),
                    "conv: input has 3 channels, the filter expects 64");
  Array small({1, 2, 4, 64}, DType::f32);
  CHECK_THROWS_AS(run<kernel::Conv>(y.view(), small.view(), w.view(), View{}, ConvOptions{}), Error);
}

TEST_CASE("matrix products equal their definition", "[matmul]") {
  for (DType type : all_types)
    for (int i = 0; i < 40; ++i) {
      bool whole = i % 2 == 0;
      Index batch = pick(1, 3), m = pick(1, 9), n = pick(1, 9), k = pick(1, 20);
      MatMulOptions o{
          .transpose_a = pick(0, 1) == 1, .transpose_b = pick(0, 1) == 1, .accumulate = pick(0, 1) == 1};
      bool batched_a = pick(0, 1), batched_b = pick(0, 1);
      if (!batched_a && !batched_b) batch = 1;
      auto shape = [&](bool batched, Index rows, Index cols, bool transposed) {
        if (transposed) std::swap(rows, cols);
        return batched ? Shape{batch, rows, cols} : Shape{rows, cols};
      };
      Array a = filled(shape(batched_a, m, k, o.transpose_a), type, whole);
      Array b = filled(shape(batched_b, k, n, o.transpose_b), type, whole);
      Array c = filled(batched_a || batched_b ? Shape{batch, m, n} : Shape{m, n}, type);
      auto expected = o.accumulate ? numbers(c) : std::vector<double>(static_cast<std::size_t>(c.size()));
      for (Index s = 0; s < batch; ++s)
        for (Index p = 0; p < m; ++p)
          for (Index q = 0; q < n; ++q)
            for (Index r = 0; r < k; ++r)
              expected[static_cast<std::size_t>((s * m + p) * n + q)] +=
                  a.get((batched_a ? s * m * k : 0) + (o.transpose_a ? r * m + p : p * k + r)) *
                  b.get((batched_b ? s * k * n : 0) + (o.transpose_b ? q * k + r : r * n + q));
      run<kernel::MatMul>(c.view(), a.view(), b.view(), o);
      close(c, expected, whole && type != DType::bf16 ? 0 : (whole ? 8 : 2) * tolerance(type, k + 1));
    }
}

TEST_CASE("large matrix products, as a layer's backward makes them", "[matmul]") {
  for (bool transposed : {false, true})
    for (bool accumulate : {false, true}) {
      Index m = 33, n = 520, k = 70;
      Array a = filled(transposed ? Shape{k, m} : Shape{m, k}, DType::f32), b = filled({k, n}, DType::f32);
      Array c = filled({m, n}, DType::f32);
      auto expected = accumulate ? numbers(c) : std::vector<double>(static_cast<std::size_t>(m * n));
      for (Index p = 0; p < m; ++p)
        for (Index r = 0; r < k; ++r)
          for (Index q = 0; q < n; ++q)
            expected[static_cast<std::size_t>(p * n + q)] +=
                a.get(transposed ? r * m + p : p * k + r) * b.get(r * n + q);
      run<kernel::MatMul>(c.view(), a.view(), b.view(),
                          MatMulOptions{.transpose_a = transposed, .accumulate = accumulate});
      close(c, expected, 0);
    }
}

TEST_CASE("a linear layer equals its definition", "[matmul]") {
  for (DType type : all_types)
    for (int i = 0; i < 30; ++i) {
      bool whole = i % 2 == 0, relu = pick(0, 1), with_bias = pick(0, 1), accumulate = pick(0, 1);
      Index rows = pick(0, 7), in = pick(1, 40), out = pick(1, 20);
      INFO(name_of(type) << " " << rows << " " << in << " " << out << " bias " << with_bias << " acc "
                         << accumulate);
      Array x = filled({rows, in}, type, whole), w = filled({out, in}, type, whole),
            dy = filled({rows, out}, type, whole);
      Array bias = with_bias ? filled({out}, type, whole) : Array(),
            db = with_bias ? filled({out}, type) : Array();
      Array y({rows, out}, type), dx({rows, in}, type), dw = filled({out, in}, type);
      std::vector<double> ey, ex(static_cast<std::size_t>(rows * in)), ew(static_cast<std::size_t>(out * in));
      std::vector<double> eb(static_cast<std::size_t>(out));
      if (accumulate) ew = numbers(dw);
      if (accumulate && with_bias) eb = numbers(db);
      for (Index r = 0; r < rows; ++r)
        for (Index o = 0; o < out; ++o) {
          double sum = with_bias ? bias.get(o) : 0, g = dy.get(r * out + o);
          for (Index k = 0; k < in; ++k) {
            sum += x.get(r * in + k) * w.get(o * in + k);
            ex[static_cast<std::size_t>(r * in + k)] += g * w.get(o * in + k);
            ew[static_cast<std::size_t>(o * in + k)] += g * x.get(r * in + k);
          }
          ey.push_back(relu ? std::max(sum, 0.0) : sum);
          eb[static_cast<std::size_t>(o)] += g;
        }
      run<kernel::Linear>(y.view(), x.view(), w.view(), bias.view(), relu);
      run<kernel::LinearBackwardInput>(dx.view(), dy.view(), w.view());
      run<kernel::LinearBackwardWeight>(dw.view(), db.view(), x.view(), dy.view(), accumulate);
      double size = whole ? 8 : 2;
      bool exact = whole && type != DType::bf16;
      close(y, ey, exact ? 0 : size * tolerance(type, in + 1));
      close(dx, ex, exact ? 0 : size * tolerance(type, out));
      close(dw, ew, exact ? 0 : size * tolerance(type, rows + 1));
      if (with_bias) close(db, eb, exact ? 0 : size * tolerance(type, rows + 1));
    }
}

namespace {

struct PoolCase {
  int dims;
  Index n, channels;
  PoolOptions o;
  Extents in{1, 1, 1}, out{1, 1, 1};
  Shape x{0}, y{0};
  Index cells = 1;  // of a window
};

PoolCase random_pool(int dims, bool dilated) {
  PoolCase c{dims, pick(1, 3), pick(1, 20), {}};
  c.x = {c.n}, c.y = {c.n};
  for (int d = 0; d < dims; ++d) {
    auto i = static_cast<std::size_t>(d);
    c.o.window[i] = pick(1, 3), c.o.stride[i] = pick(1, 3), c.o.dilation[i] = dilated ? pick(1, 2) : 1;
    Index reach = (c.o.window[i] - 1) * c.o.dilation[i] + 1;
    c.o.pad_begin[i] = pick(0, reach - 1), c.o.pad_end[i] = pick(0, reach - 1);
    c.in[i] = reach + pick(0, 5);
    c.out[i] = (c.in[i] + c.o.pad_begin[i] + c.o.pad_end[i] - reach) / c.o.stride[i] + 1;
    c.x.push_back(c.in[i]), c.y.push_back(c.out[i]), c.cells *= c.o.window[i];
  }
  c.x.push_back(c.channels), c.y.push_back(c.channels);
  return c;
}

/// f(y index, window cell, x index) for every input of every window, in order.
template <class F>
void for_windows(const PoolCase& c, F f) {
  for (Index y = 0; y < c.y.numel(); ++y) {
    Index place = y / c.channels, channel = y % c.channels;
    Index p[3] = {place / c.out[2] / c.out[1] % c.out[0], place / c.out[2] % c.out[1], place % c.out[2]};
    Index n = place / (c.out[0] * c.out[1] * c.out[2]);
    for (Index k = 0; k < c.cells; ++k) {
      Index q[3] = {k / c.o.window[2] / c.o.window[1], k / c.o.window[2] % c.o.window[1], k % c.o.window[2]};
      Index x = n;
      bool inside = true;
      for (std::size_t d = 0; d < 3; ++d) {
        Index at = p[d] * c.o.stride[d] - c.o.pad_begin[d] + q[d] * c.o.dilation[d];
        inside = inside && at >= 0 && at < c.in[d];
        x = x * c.in[d] + at;
      }
      if (inside) f(y, k, x * c.channels + channel);
    }
  }
}

}  // namespace

TEST_CASE("max pooling equals its definition", "[pool]") {
  for (DType type : all_types)
    for (int dims = 1; dims <= 3; ++dims)
      for (int i = 0; i < 15; ++i) {
        PoolCase c = random_pool(dims, true);
        INFO("x " << to_string(c.x) << " y " << to_string(c.y));
        Array x = filled(c.x, type), y(c.y, type), index(c.y, DType::u8), dx(c.x, type),
              dy = filled(c.y, type);
        if (i % 3 == 0) x.set(pick(0, x.size() - 1), std::nan(""));
        std::vector<double> best(static_cast<std::size_t>(y.size()),
                                 -std::numeric_limits<double>::infinity());
        std::vector<double> winner(best.size(), 0), from(best.size(), -1),
            ex(static_cast<std::size_t>(x.size()), 0.0);
        for_windows(c, [&](Index yi, Index k, Index xi) {
          auto at = static_cast<std::size_t>(yi);
          double v = x.get(xi);
          if (from[at] < 0 || v > best[at] || std::isnan(v))
            best[at] = v, winner[at] = static_cast<double>(k), from[at] = static_cast<double>(xi);
        });
        for (std::size_t k = 0; k < from.size(); ++k)
          if (from[k] >= 0) ex[static_cast<std::size_t>(from[k])] += dy.get(static_cast<Index>(k));
        run<kernel::MaxPool>(y.view(), index.view(), x.view(), c.o);
        run<kernel::MaxPoolBackward>(dx.view(), dy.view(), index.view(), c.o);
        bool same = true;
        for (Index k = 0; k < y.size(); ++k) {
          double v = y.get(k), e = best[static_cast<std::size_t>(k)];
          same = same && (v == e || (std::isnan(v) && std::isnan(e)));
        }
        CHECK(same);
        close(index, winner, 0);
        close(dx, ex, 0);
      }
}

TEST_CASE("max pooling over a window of more than 255 cells", "[pool]") {
  Array x = filled({2, 20, 20, 3}, DType::f32, false), y({2, 1, 1, 3}, DType::f32),
        index(y.shape, DType::i32);
  PoolOptions o{.window = {20, 20, 1}};
  run<kernel::MaxPool>(y.view(), index.view(), x.view(), o);
  for (Index n = 0; n < 2; ++n)
    for (Index c = 0; c < 3; ++c) {
      Index best = 0;
      for (Index k = 1; k < 400; ++k)
        if (x.get((n * 400 + k) * 3 + c) > x.get((n * 400 + best) * 3 + c)) best = k;
      CHECK(index.get(n * 3 + c) == static_cast<double>(best));
    }
  Array narrow(y.shape, DType::u8);
  CHECK_THROWS_AS(run<kernel::MaxPool>(y.view(), narrow.view(), x.view(), o), Error);
}

TEST_CASE("average pooling equals its definition", "[pool]") {
  for (DType type : all_types)
    for (int dims = 1; dims <= 3; ++dims)
      for (int i = 0; i < 15; ++i) {
        PoolCase c = random_pool(dims, false);
        c.o.count_padding = pick(0, 1);
        Array x = filled(c.x, type, false), y(c.y, type), dx(c.x, type), dy = filled(c.y, type, false);
        std::vector<double> ey(static_cast<std::size_t>(y.size())), count(ey.size()),
            ex(static_cast<std::size_t>(x.size()));
        for_windows(c, [&](Index yi, Index, Index xi) {
          ey[static_cast<std::size_t>(yi)] += x.get(xi), count[static_cast<std::size_t>(yi)] += 1;
        });
        for (std::size_t k = 0; k < ey.size(); ++k) {
          if (c.o.count_padding) count[k] = static_cast<double>(c.cells);
          ey[k] /= count[k];
        }
        for_windows(c, [&](Index yi, Index, Index xi) {
          ex[static_cast<std::size_t>(xi)] += dy.get(yi) / count[static_cast<std::size_t>(yi)];
        });
        run<kernel::AvgPool>(y.view(), x.view(), c.o);
        run<kernel::AvgPoolBackward>(dx.view(), dy.view(), c.o);
        close(y, ey, tolerance(type, 1));
        close(dx, ex, tolerance(type, c.cells));
      }
}

TEST_CASE("the fused tail equals bias, ReLU, pooling and dropout one after another", "[pool]") {
  for (DType type : all_types)
    for (int i = 0; i < 24; ++i) {
      int dims = 1 + i % 3;
      PoolCase c{dims, pick(1, 3), i % 2 ? pick(1, 9) : 64 + pick(0, 9), {}};
      c.x = {c.n}, c.y = {c.n};
      for (int d = 0; d < dims; ++d) {
        auto at = static_cast<std::size_t>(d);
        c.o.window[at] = c.o.stride[at] = pick(1, 3);
        c.in[at] = c.o.window[at] * pick(1, 4) + pick(0, c.o.window[at] - 1),
        c.out[at] = c.in[at] / c.o.window[at];
        c.x.push_back(c.in[at]), c.y.push_back(c.out[at]), c.cells *= c.o.window[at];
      }
      c.x.push_back(c.channels), c.y.push_back(c.channels);
      double p = i % 4 == 0 ? 0 : i % 4 == 1 ? 0.25 : i % 4 == 2 ? 0.7 : 1;
      INFO("x " << to_string(c.x) << " y " << to_string(c.y) << " p " << p << " " << name_of(type));
      std::uint64_t key = engine();
      bool accumulate = pick(0, 1), with_bias = pick(0, 1);
      Array x = filled(c.x, type, false), bias = with_bias ? filled({c.channels}, type, false) : Array();
      Array sample({c.n}, DType::i64), y(c.y, type), index(c.y, DType::u8);
      for (Index n = 0; n < c.n; ++n) sample.set(n, static_cast<double>(pick(0, 100000)));

      Array summed = x, pooled(c.y, type), winner(c.y, DType::u8), dropped(c.y, type);
      for (Index k = 0; k < x.size(); ++k) {
        summed.set(k, x.get(k) + (with_bias ? bias.get(k % c.channels) : 0));
        if (type == DType::f32 && with_bias)
          summed.set(k, static_cast<float>(x.get(k)) + static_cast<float>(bias.get(k % c.channels)));
        if (summed.get(k) <= 0) summed.set(k, 0);
      }
      run<kernel::MaxPool>(pooled.view(), winner.view(), summed.view(), c.o);
      run<kernel::Dropout>(dropped.view(), pooled.view(), sample.view(), p, key);
      run<kernel::BiasReluPoolDropout>(y.view(), index.view(), x.view(), bias.view(), sample.view(), c.o, p,
                                       key);
      CHECK(std::memcmp(y.data(), dropped.data(), y.bytes.size()) == 0);

      Array dy = filled(c.y, type, false), through(c.y, type), unpooled(c.x, type), dx = filled(c.x, type);
      Array db = filled({c.channels}, type);
      auto eb = accumulate ? numbers(db) : std::vector<double>(static_cast<std::size_t>(c.channels));
      run<kernel::Dropout>(through.view(), dy.view(), sample.view(), p, key);
      run<kernel::MaxPoolBackward>(unpooled.view(), through.view(), winner.view(), c.o);
      for (Index k = 0; k < x.size(); ++k) {
        if (summed.get(k) <= 0) unpooled.set(k, 0);
        eb[static_cast<std::size_t>(k % c.channels)] += unpooled.get(k);
      }
      run<kernel::BiasReluPoolDropoutBackward>(dx.view(), db.view(), dy.view(), index.view(), c.o, p,
                                               accumulate);
      close(dx, numbers(unpooled), 0);
      close(db, eb, 8 * tolerance(type, x.size()));
    }
}

TEST_CASE("the fused tail passes NaN on", "[pool]") {
  Array x = filled({1, 2, 2, 3}, DType::f32), y({1, 1, 1, 3}, DType::f32), index(y.shape, DType::u8);
  x.set(4, std::nan(""));
  PoolOptions o{.window = {2, 2, 1}, .stride = {2, 2, 1}};
  run<kernel::BiasReluPoolDropout>(y.view(), index.view(), x.view(), View{}, View{}, o, 0.0,
                                   std::uint64_t{1});
  CHECK(std::isnan(y.get(1)));
  CHECK(index.get(1) == 1);
}

TEST_CASE("the allocator reuses blocks and counts bytes", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  std::size_t before = r.in_use();
  r.reset_peak();
  for (std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{5000},
        std::size_t{1} << 20, std::size_t{3000000}, (std::size_t{64} << 20) + 1}) {
    void* block = r.allocate(bytes, cpu());
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    if (bytes >= std::size_t{1} << 20)
      CHECK(reinterpret_cast<std::uintptr_t>(block) % (std::size_t{2} << 20) == 0);
    std::memset(block, 1, bytes);
    CHECK(r.in_use() == before + bytes);
    r.release(block, bytes, cpu());
    void* again = r.allocate(bytes, cpu(1));
    CHECK(again == block);
    r.release(again, bytes, cpu(1));
  }
  CHECK(r.in_use() == before);
  CHECK(r.peak() == before + (std::size_t{64} << 20) + 1);
  CHECK_THROWS_AS(r.allocate(std::size_t{1} << 60, cpu()), Error);
}

TEST_CASE("the allocator serves many threads", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  std::size_t before = r.in_use();
  std::vector<std::thread> team;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    team.emplace_back([&, t] {
      for (std::size_t i = 0; i < 2000; ++i) {
        std::size_t bytes = i * 37 % 9000 + 1;
        auto* block = static_cast<unsigned char*>(r.allocate(bytes, cpu()));
        std::memset(block, t, bytes);
        for (std::size_t k = 0; k < bytes; k += 97) wrong += block[k] != t;
        r.release(block, bytes, cpu());
      }
    });
  for (auto& t : team) t.join();
  CHECK(wrong == 0);
  CHECK(r.in_use() == before);
}

TEST_CASE("threads() is the calling thread's own", "[runtime]") {
  int before = threads();
  set_threads(3);
  std::thread([] { set_threads(1); }).join();
  CHECK(threads() == 3);
  set_threads(before);
  CHECK(cores() >= 1);
  CHECK_THROWS_AS(set_threads(0), Error);
}

// Convolution and matrix product kernels against loops written from their definitions.
#include <cstring>

#include "kernels/contracts/matmul.h"
#include "kernels/contracts/norm.h"
#include "kernels/core/runtime.h"
#include "kernels/cpu/dnnl.h"
#include "tests/kernels/heavy_cases.h"

namespace test_kernels_heavy {

using namespace trireme;
using namespace trireme::test;

namespace {

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
                    f(x + k / go * gi + i, (((k * c.filter[0] + f0) * c.filter[1] + f1) * c.filter[2] + f2) * gi + i,
                      y + k);
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
  bool with_bias = pick(0, 1), accumulate = pick(0, 1), with_residual = pick(0, 1), own_block = pick(0, 1);
  c.o.relu = pick(0, 1);
  INFO("x " << to_string(c.x) << " w " << to_string(c.w) << " y " << to_string(c.y) << " groups " << c.o.groups
            << " type " << name_of(type) << " bias " << with_bias << " relu " << c.o.relu);
  Array x = filled(c.x, type, whole), w = filled(c.w, type, whole), dy = filled(c.y, type, whole);
  Array bias = with_bias ? filled({c.c_out}, type, whole) : Array();
  Array y(c.y, type), residual = filled(c.y, type, whole), dx = filled(c.x, type), dw = filled(c.w, type),
                      db = with_bias ? filled({c.c_out}, type) : Array();
  std::vector<double> ey(static_cast<std::size_t>(y.size())), ex(static_cast<std::size_t>(dx.size()));
  std::vector<double> ew(static_cast<std::size_t>(dw.size())), eb(static_cast<std::size_t>(c.c_out));
  if (accumulate) {
    ew = numbers(dw);
    ex = numbers(dx);
  }
  if (accumulate && with_bias) eb = numbers(db);
  for (Index i = 0; i < y.size(); ++i) {
    if (with_bias) ey[static_cast<std::size_t>(i)] = bias.get(i % c.c_out);
    eb[static_cast<std::size_t>(i % c.c_out)] += dy.get(i);
  }
  std::vector<double> vx = numbers(x), vw = numbers(w), vy = numbers(dy);
  for_products(c, [&](Index xi, Index wi, Index yi) {
    auto a = static_cast<std::size_t>(xi), b = static_cast<std::size_t>(wi), k = static_cast<std::size_t>(yi);
    ey[k] += vx[a] * vw[b];
    ex[a] += vy[k] * vw[b];
    ew[b] += vy[k] * vx[a];
  });
  if (with_residual) {
    const std::vector<double> more = numbers(residual);
    for (std::size_t i = 0; i < ey.size(); ++i) ey[i] += more[i];
  }
  if (c.o.relu)
    for (double& v : ey) v = std::max(v, 0.0);
  // A residual may lie in y's own block, where it is overwritten.
  Array& out = with_residual && own_block ? residual : y;
  run<kernel::Conv>(out.view(), x.view(), w.view(), bias.view(), with_residual ? residual.view() : View{}, c.o);
  run<kernel::ConvBackwardInput>(dx.view(), dy.view(), w.view(), c.o, accumulate);
  run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), dy.view(), c.o, accumulate);
  bool exact = whole && type != DType::bf16;
  Index taps = dw.size() / c.c_out + 1, places = y.size() / c.c_out + 1;
  // Whole numbers reach 4 per product and 2 per starting value: bf16 rounds their sums relative to their
  // size.
  double size = whole ? 8 : 1;
  close(out, ey, exact ? 0 : size * tolerance(type, taps));
  close(dx, ex, exact ? 0 : size * tolerance(type, taps * c.c_out));
  close(dw, ew, exact ? 0 : size * tolerance(type, places));
  if (with_bias) close(db, eb, exact ? 0 : size * tolerance(type, places));
}

/// A copy in f64.
Array in_f64(Array& a) {
  Array copy(a.shape, DType::f64);
  for (Index i = 0; i < a.size(); ++i) copy.set(i, a.get(i));
  return copy;
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

TEST_CASE("big filters' gradients, which are products of matrices, equal those in f64", "[conv]") {
  struct Big {
    Shape x, w, y;
    Index stride, pad;
  };
  for (const Big& c : {Big{{2, 4, 5, 512}, {256, 1, 1, 512}, {2, 4, 5, 256}, 1, 0},
                       Big{{3, 5, 4, 256}, {512, 1, 1, 256}, {3, 3, 2, 512}, 2, 0},
                       Big{{2, 5, 6, 64}, {256, 3, 3, 64}, {2, 3, 3, 256}, 2, 1},
                       Big{{2, 4, 4, 64}, {256, 3, 3, 64}, {2, 4, 4, 256}, 1, 1},
                       Big{{2, 4, 4, 128}, {1024, 1, 1, 128}, {2, 6, 6, 1024}, 1, 1}})
    for (bool accumulate : {false, true}) {
      INFO(to_string(c.x) << to_string(c.w) << accumulate);
      const Extents stride{c.stride, c.stride, 1}, pad{c.pad, c.pad, 0};
      const ConvOptions o{.stride = stride, .pad_begin = pad, .pad_end = pad};
      Array x = filled(c.x, DType::f32), dy = filled(c.y, DType::f32), dw = filled(c.w, DType::f32);
      Array x64 = in_f64(x), dy64 = in_f64(dy), dw64 = in_f64(dw);
      run<kernel::ConvBackwardWeight>(dw.view(), View{}, x.view(), dy.view(), o, accumulate);
      run<kernel::ConvBackwardWeight>(dw64.view(), View{}, x64.view(), dy64.view(), o, accumulate);
      close(dw, numbers(dw64), 0);
    }
}

TEST_CASE("3 x 3 convolutions over many tiles, by Winograd's algorithm, equal those in f64", "[conv]") {
  struct Case {
    Index n, high, wide, in, out;
    Extents begin, end;
  };
  // Kept filters go by larger tiles.
  const auto allocate = [](std::size_t bytes) {
    return std::shared_ptr<void>(new float[bytes / 4 + 1], [](void* p) { delete[] static_cast<float*>(p); });
  };
  for (const Case& c : {Case{2, 37, 29, 32, 64, {1, 1, 0}, {1, 1, 0}}, Case{4, 30, 26, 64, 32, {0, 0, 0}, {0, 0, 0}},
                        Case{3, 24, 33, 32, 32, {2, 0, 0}, {1, 2, 0}}})
    for (bool whole : {true, false})
      for (bool kept : {false, true}) {
        const Shape ys{c.n, c.high + c.begin[0] + c.end[0] - 2, c.wide + c.begin[1] + c.end[1] - 2, c.out};
        const bool add = c.in == 32;
        INFO(to_string(ys) << " whole numbers " << whole << " kept " << kept);
        ConvOptions o{.pad_begin = c.begin, .pad_end = c.end, .relu = !add};
        Array x = filled({c.n, c.high, c.wide, c.in}, DType::f32, whole), dy = filled(ys, DType::f32, whole),
              w = filled({c.out, 3, 3, c.in}, DType::f32, whole), bias = filled({c.out}, DType::f32, whole),
              y = filled(ys, DType::f32, whole), dx = filled(x.shape, DType::f32, whole);
        Array x64 = in_f64(x), dy64 = in_f64(dy), w64 = in_f64(w), bias64 = in_f64(bias), y64 = in_f64(y),
              dx64 = in_f64(dx);
        run<kernel::Conv>(y64.view(), x64.view(), w64.view(), bias64.view(), add ? y64.view() : View{}, o);
        run<kernel::ConvBackwardInput>(dx64.view(), dy64.view(), w64.view(), o, add);
        FilterCache filters(allocate);
        o.filters = kept ? &filters : nullptr;
        run<kernel::Conv>(y.view(), x.view(), w.view(), bias.view(), add ? y.view() : View{}, o);
        run<kernel::ConvBackwardInput>(dx.view(), dy.view(), w.view(), o, add);
        double largest = 0;
        for (double v : numbers(y64)) largest = std::max(largest, std::abs(v));
        close(y, numbers(y64), kept ? 2e-5 * largest : whole ? 0 : tolerance(DType::f32, 9 * c.in));
        close(dx, numbers(dx64), whole ? 0 : tolerance(DType::f32, 9 * c.out));
        if (kept) continue;
        Array dw = filled(w.shape, DType::f32, whole), db = filled({c.out}, DType::f32, whole);
        Array dw64 = in_f64(dw), db64 = in_f64(db);
        for (bool accumulate : {true, false}) {
          run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), dy.view(), o, accumulate);
          run<kernel::ConvBackwardWeight>(dw64.view(), db64.view(), x64.view(), dy64.view(), o, accumulate);
          close(dw, numbers(dw64), whole ? 0 : tolerance(DType::f32, c.n * c.high * c.wide));
          close(db, numbers(db64), whole ? 0 : tolerance(DType::f32, c.n * c.high * c.wide));
        }
      }
}

TEST_CASE("1 x 1 convolutions over many rows equal those in f64, with the same bits on any number of threads",
          "[conv]") {
  const auto allocate = [](std::size_t bytes) {
    return std::shared_ptr<void>(new float[bytes / 4 + 1], [](void* p) { delete[] static_cast<float*>(p); });
  };
  const int before = threads();
  struct Case {
    Index high, wide, in, out, stride;  // high and wide: of y
    bool residual, apart;               // apart: not y's block
  };
  for (const Case& c : {Case{32, 16, 32, 32, 1, true, false}, Case{23, 41, 64, 96, 1, true, true},
                        Case{19, 29, 160, 64, 1, false, false}, Case{25, 21, 512, 32, 1, true, false},
                        Case{24, 23, 512, 32, 2, true, true}, Case{29, 19, 32, 64, 3, false, false}})
    for (bool whole : {true, false})
      for (bool kept : {true, false}) {
        INFO(c.high << " x " << c.wide << ", " << c.in << " to " << c.out << " stride " << c.stride << " whole "
                    << whole << " kept " << kept);
        const Shape xs{1, c.high * c.stride, c.wide * c.stride, c.in}, ys{1, c.high, c.wide, c.out};
        ConvOptions o{.stride = {c.stride, c.stride, 1}, .relu = c.apart || !c.residual};
        Array x = filled(xs, DType::f32, whole), dy = filled(ys, DType::f32, whole),
              w = filled({c.out, 1, 1, c.in}, DType::f32, whole), bias = filled({c.out}, DType::f32, whole),
              old = filled(ys, DType::f32, whole), grown = filled(xs, DType::f32, whole);
        Array x64 = in_f64(x), dy64 = in_f64(dy), w64 = in_f64(w), bias64 = in_f64(bias), y64 = in_f64(old),
              dx64 = in_f64(grown), old64 = in_f64(old);
        run<kernel::Conv>(y64.view(), x64.view(), w64.view(), bias64.view(), c.residual ? old64.view() : View{}, o);
        run<kernel::ConvBackwardInput>(dx64.view(), dy64.view(), w64.view(), o, c.residual);
        FilterCache filters(allocate);
        o.filters = kept ? &filters : nullptr;
        std::vector<double> first;
        for (int count : {1, 2, 3}) {
          set_threads(count);
          Array in_place = old, y(ys, DType::f32), dx = grown;
          Array& to = c.apart ? y : in_place;
          View residual = c.apart ? old.view() : in_place.view();
          run<kernel::Conv>(to.view(), x.view(), w.view(), bias.view(), c.residual ? residual : View{}, o);
          run<kernel::ConvBackwardInput>(dx.view(), dy.view(), w.view(), o, c.residual);
          close(to, numbers(y64), whole ? 0 : tolerance(DType::f32, c.in));
          close(dx, numbers(dx64), whole ? 0 : tolerance(DType::f32, c.out));
          std::vector<double> all = numbers(to);
          for (double v : numbers(dx)) all.push_back(v);
          if (count == 1) first = all;
          CHECK(all == first);
        }
      }
  set_threads(before);
}

TEST_CASE("ReLU of a 1 x 1 convolution over many rows keeps NaN", "[conv]") {
  constexpr Index rows = 600, channels = 32;
  Array x({rows, 1, channels}, DType::f32), w({channels, 1, channels}, DType::f32), y({rows, 1, channels}, DType::f32);
  x.set(577 * channels + 3, std::numeric_limits<double>::quiet_NaN());
  run<kernel::Conv>(y.view(), x.view(), w.view(), View{}, View{}, ConvOptions{.relu = true});
  Index wrong = 0;
  for (Index i = 0; i < y.size(); ++i) wrong += std::isnan(y.get(i)) != (i / channels == 577);
  CHECK(wrong == 0);
}

TEST_CASE("convolution of one channel, at several thread counts", "[conv]") {
  int before = threads();
  for (int count : {1, 2, 3}) {
    set_threads(count);
    for (Index out : {8, 16, 24, 32, 48})
      for (Index width : {3, 9, 28, 31}) {
        ConvCase c{2, 3, 1, out, {5, width, 1}, {3, 3, 1}, {}};
        c.out = {3, width - 2, 1};
        c.x = {3, 5, width, 1};
        c.w = {out, 3, 3, 1};
        c.y = {3, 3, width - 2, out};
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
          c.o.stride = {stride, stride, 1};
          c.o.dilation = {dilation, dilation, 1};
          c.out = {1, 1, 1};
          c.x = {2};
          c.w = {4, 3, 3, in};
          c.y = {2};
          for (std::size_t d = 0; d < 2; ++d) {
            c.out[d] = (c.in[d] - 2 * dilation - 1) / stride + 1;
            c.x.push_back(c.in[d]);
            c.y.push_back(c.out[d]);
          }
          c.x.push_back(in);
          c.y.push_back(4);
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
    run<kernel::Conv>(y.view(), x.view(), w.view(), b.view(), View{}, ConvOptions{});
    run<kernel::ConvBackwardInput>(x.view(), y.view(), w.view(), ConvOptions{}, false);
    run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), y.view(), ConvOptions{}, true);
    close(dw, kept, 0);
    run<kernel::ConvBackwardWeight>(dw.view(), db.view(), x.view(), y.view(), ConvOptions{}, false);
    close(dw, std::vector<double>(54, 0.0), 0);
    close(db, {0, 0, 0}, 0);
  }
}

TEST_CASE("what oneDNN refuses is an Error", "[conv]") {
  struct Nothing {};
  const auto refused = []() -> Nothing { throw dnnl::error(dnnl_unimplemented, "no such primitive"); };
  CHECK_ERROR(onednn::cached<Nothing>({}, refused), device, "onednn", 3);
}

TEST_CASE("convolution refuses what does not fit", "[conv]") {
  Array x({1, 4, 4, 3}, DType::f32), w({2, 3, 3, 64}, DType::f32), y({1, 2, 2, 2}, DType::f32);
  CHECK_ERROR(run<kernel::Conv>(y.view(), x.view(), w.view(), View{}, View{}, ConvOptions{}), usage, 3, 64);
  Array small({1, 2, 4, 64}, DType::f32);
  CHECK_THROWS_AS(run<kernel::Conv>(y.view(), small.view(), w.view(), View{}, View{}, ConvOptions{}), Error);
}

TEST_CASE("matrix products equal their definition", "[matmul]") {
  for (DType type : all_types)
    for (int i = 0; i < 40; ++i) {
      bool whole = i % 2 == 0;
      Index batch = pick(1, 3), m = pick(1, 9), n = pick(1, 9), k = pick(1, 20);
      MatMulOptions o{.transpose_a = pick(0, 1) == 1, .transpose_b = pick(0, 1) == 1, .accumulate = pick(0, 1) == 1};
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
      INFO(name_of(type) << " " << rows << " " << in << " " << out << " bias " << with_bias << " acc " << accumulate);
      Array x = filled({rows, in}, type, whole), w = filled({out, in}, type, whole),
            dy = filled({rows, out}, type, whole);
      Array bias = with_bias ? filled({out}, type, whole) : Array(), db = with_bias ? filled({out}, type) : Array();
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

TEST_CASE("a convolution's moments are, bit for bit, batch norm's of its output") {
  for (DType type : all_types) {
    const ConvOptions o{.pad_begin = {1, 1, 0}, .pad_end = {1, 1, 0}};
    Array x = filled({3, 7, 6, 5}, type, false), w = filled({12, 3, 3, 5}, type, false), y({3, 7, 6, 12}, type),
          plain = y, bias = filled({12}, type, false);
    Array mean({12}, type == DType::f64 ? type : DType::f32), m2 = mean, plain_mean = mean, plain_m2 = mean;
    run<kernel::ConvMoments>(y.view(), x.view(), w.view(), bias.view(), mean.view(), m2.view(), o);
    run<kernel::Conv>(plain.view(), x.view(), w.view(), bias.view(), View{}, o);
    run<kernel::BatchNormMoments>(plain_mean.view(), plain_m2.view(), plain.view());
    CHECK((y.bytes == plain.bytes && mean.bytes == plain_mean.bytes && m2.bytes == plain_m2.bytes));
  }
}

}  // namespace test_kernels_heavy

// Random convolutions of whole numbers against their definition: what finds implementations that are wrong for some
// shapes only (kernels/cpu/conv/conv_faults.h says which were found). Scratch memory, and what lies before and behind
// every operand, is full of NaN; what lies around a result must stay so.
#include "tests/kernels/fenced.h"
#include "tests/kernels/heavy_cases.h"

namespace test_conv_random {

using namespace trireme;
using namespace trireme::test;

namespace {

/// tight: few cells, long strides, padding that reaches far, so that windows see little or nothing of the input.
ConvCase draw(int dims, bool tight) {
  ConvCase c{dims, pick(1, 3), 0, 0, {1, 1, 1}, {1, 1, 1}, {}};
  const auto channels = [] {
    const Index kind = pick(0, 3);
    return kind == 0 ? pick(1, 4) : kind == 1 ? pick(1, 24) : kind == 2 ? 8 * pick(1, 4) : 16 * pick(1, 4);
  };
  c.c_in = channels();
  c.c_out = channels();
  if (const Index kind = pick(0, 4); kind == 0)
    c.o.groups = c.c_in = c.c_out = channels();
  else if (kind == 1) {
    c.o.groups = pick(2, 3);
    c.c_in *= c.o.groups;
    c.c_out *= c.o.groups;
  }
  for (int d = 0; d < dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const bool outer = d + 1 < dims;
    c.filter[i] = tight ? pick(1, 5) : !outer && pick(0, 3) == 0 ? pick(4, 9) : pick(1, 3);
    c.o.stride[i] = tight ? pick(1, 5) : pick(1, 2);
    c.o.dilation[i] = pick(0, 3) == 0 ? pick(1, 3) : 1;
    const Index reach = (c.filter[i] - 1) * c.o.dilation[i] + 1, kind = pick(0, 2);
    const Index most = kind == 0 ? 0 : kind == 1 ? reach - 1 : reach + 3;
    c.o.pad_begin[i] = pick(0, most);
    c.o.pad_end[i] = pick(0, most);
    const Index more = tight && (outer || pick(0, 1)) ? 3 : outer ? 5 : 20;
    c.in[i] = std::max<Index>(1, reach - c.o.pad_begin[i] - c.o.pad_end[i]) + pick(0, more);
  }
  set_shapes(c);
  return c;
}

std::string in_words(const ConvCase& c, DType type) {
  std::string text = to_string(c.x) + " filter " + to_string(c.w) + " " + std::string(name_of(type));
  for (std::size_t d = 0; d < static_cast<std::size_t>(c.dims); ++d)
    text += " stride " + std::to_string(c.o.stride[d]) + " dilation " + std::to_string(c.o.dilation[d]) + " padding " +
            std::to_string(c.o.pad_begin[d]) + "," + std::to_string(c.o.pad_end[d]);
  return text + " groups " + std::to_string(c.o.groups);
}

/// f(x index, w index, y index) for every product, group_in of them side by side in x and w.
template <class F>
void for_rows(const ConvCase& c, F f) {
  const Index in = c.c_in / c.o.groups, out = c.c_out / c.o.groups, cells = c.filter[0] * c.filter[1] * c.filter[2];
  const Index places = c.out[0] * c.out[1] * c.out[2];
  for (Index cell = 0; cell < cells; ++cell)
    for (Index place = 0; place < c.n * places; ++place) {
      const Index o[3] = {place / c.out[2] / c.out[1] % c.out[0], place / c.out[2] % c.out[1], place % c.out[2]};
      const Index k[3] = {cell / c.filter[2] / c.filter[1], cell / c.filter[2] % c.filter[1], cell % c.filter[2]};
      Index x = place / places;
      bool inside = true;
      for (std::size_t d = 0; d < 3; ++d) {
        const Index at = o[d] * c.o.stride[d] - c.o.pad_begin[d] + k[d] * c.o.dilation[d];
        inside = inside && at >= 0 && at < c.in[d];
        x = x * c.in[d] + at;
      }
      for (Index j = 0; inside && j < c.c_out; ++j)
        f(x * c.c_in + j / out * in, (j * cells + cell) * in, place * c.c_out + j, in);
    }
}

void check_random(ConvCase c, DType type) {
  const bool with_bias = pick(0, 1), accumulate = pick(0, 1), with_residual = pick(0, 1), own = pick(0, 3) > 0;
  c.o.relu = pick(0, 1);
  Fenced x(c.x, type), w(c.w, type), dy(c.y, type), bias({c.c_out}, type), residual(c.y, type), other(c.y, type),
      dx(c.x, type), dw(c.w, type), db({c.c_out}, type);
  const std::vector<double> vx = x.numbers(), vw = w.numbers(), vdy = dy.numbers(), zeros(vdy.size());
  std::vector<double> y(vdy.size()), ex(vx.size()), ew(vw.size()), eb(static_cast<std::size_t>(c.c_out));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto channel = i % static_cast<std::size_t>(c.c_out);
    if (with_bias) y[i] = bias.get(static_cast<Index>(channel));
    eb[channel] += vdy[i];
  }
  for_rows(c, [&](Index xi, Index wi, Index yi, Index count) {
    const double g = vdy[static_cast<std::size_t>(yi)];
    double sum = 0;
    for (auto i = static_cast<std::size_t>(xi), k = static_cast<std::size_t>(wi),
              end = i + static_cast<std::size_t>(count);
         i < end; ++i, ++k) {
      sum += vx[i] * vw[k];
      ex[i] += g * vw[k];
      ew[k] += g * vx[i];
    }
    y[static_cast<std::size_t>(yi)] += sum;
  });
  const std::vector<double> y_sizes = sizes_of(y), x_sizes = sizes_of(ex), w_sizes = sizes_of(ew),
                            b_sizes = sizes_of(eb);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (with_residual) y[i] += residual.get(static_cast<Index>(i));
    if (c.o.relu) y[i] = std::max(y[i], 0.0);
  }
  const auto add = [&](std::vector<double>& to, Fenced& from) {
    for (std::size_t i = 0; accumulate && i < to.size(); ++i) to[i] += from.get(static_cast<Index>(i));
  };
  add(ex, dx);
  add(ew, dw);
  add(eb, db);
  INFO(in_words(c, type) << " bias " << with_bias << " residual " << with_residual << " its own block " << own
                         << " relu " << c.o.relu << " accumulate " << accumulate << " threads " << threads());
  Fenced& out = with_residual && own ? residual : other;
  other.forget();
  if (!accumulate) {
    dx.forget();
    dw.forget();
    db.forget();
  }
  spoil_scratch();
  run<kernel::Conv>(out.view(), x.view(), w.view(), with_bias ? bias.view() : View{},
                    with_residual ? residual.view() : View{}, c.o);
  CHECK(same(out, y, y_sizes, type));
  run<kernel::ConvBackwardInput>(dx.view(), dy.view(), w.view(), c.o, accumulate);
  CHECK(same(dx, ex, x_sizes, type));
  run<kernel::ConvBackwardWeight>(dw.view(), with_bias ? db.view() : View{}, x.view(), dy.view(), c.o, accumulate);
  CHECK(same(dw, ew, w_sizes, type));
  if (with_bias) CHECK(same(db, eb, b_sizes, type));
}

void check_many(int cases) {
  const int before = threads();
  for (int i = 0; i < cases; ++i) {
    set_threads(i % 8 == 0 ? 1 + static_cast<int>(pick(1, 2)) : 1);
    // Most faults were found with three axes and with tight shapes.
    const ConvCase c = draw(i % 4 == 0 ? 1 : i % 4 == 1 ? 2 : 3, pick(0, 3) > 0);
    check_random(c, i % 16 == 0 ? DType::f64 : pick(0, 1) ? DType::bf16 : DType::f32);
  }
  set_threads(before);
}

}  // namespace

TEST_CASE("bf16 convolutions that AMX implementations compute wrongly equal their definition", "[conv]") {
  // in, filter, stride, padding, channels of conv_faults.h's cases
  ConvCase crash{2, 2, 32, 9, {3, 2, 1}, {2, 1, 1}, {}}, gradient{3, 1, 48, 16, {5, 2, 18}, {2, 2, 3}, {}},
      narrow{3, 3, 48, 24, {4, 4, 19}, {1, 1, 1}, {}};
  crash.o.stride = {2, 1, 1};
  crash.o.pad_begin = {1, 0, 0};
  crash.o.pad_end = {3, 0, 0};
  gradient.o.stride = {2, 1, 2};
  gradient.o.pad_begin = gradient.o.pad_end = {0, 0, 1};
  narrow.o.stride = {2, 2, 1};
  for (ConvCase c : {crash, gradient, narrow}) {
    c.x = {c.n};
    c.w = {c.c_out};
    c.y = {c.n};
    for (std::size_t d = 0; d < static_cast<std::size_t>(c.dims); ++d) {
      c.out[d] = (c.in[d] + c.o.pad_begin[d] + c.o.pad_end[d] - c.filter[d]) / c.o.stride[d] + 1;
      c.x.push_back(c.in[d]);
      c.w.push_back(c.filter[d]);
      c.y.push_back(c.out[d]);
    }
    c.x.push_back(c.c_in);
    c.w.push_back(c.c_in);
    c.y.push_back(c.c_out);
    for (int i = 0; i < 8; ++i) check_random(c, DType::bf16);
  }
}

TEST_CASE("convolutions that brgconv computes wrongly equal their definition", "[conv]") {
  struct Line {  // one axis
    Index in, filter, stride, begin, end, channels;
  };
  for (const Line& l : {Line{8, 4, 4, 3, 0, 8}, Line{10, 4, 3, 2, 0, 3}, Line{15, 5, 5, 4, 0, 9},
                        Line{9, 3, 6, 3, 2, 16}, Line{7, 9, 1, 4, 4, 64}, Line{7, 5, 1, 4, 0, 64},
                        Line{12, 5, 1, 0, 0, 64}, Line{7, 5, 1, 0, 4, 64}, Line{11, 8, 1, 1, 6, 64}})
    for (int dims = 1; dims <= 2; ++dims) {
      const auto last = static_cast<std::size_t>(dims - 1);
      ConvCase c{dims, 2, l.channels, l.channels, {2, 1, 1}, {1, 1, 1}, {}};
      c.in[last] = l.in;
      c.filter[last] = l.filter;
      c.o.stride[last] = l.stride;
      c.o.pad_begin[last] = l.begin;
      c.o.pad_end[last] = l.end;
      set_shapes(c);
      for (int i = 0; i < 8; ++i) check_random(c, i % 2 == 0 ? DType::f32 : DType::bf16);
    }
}

TEST_CASE("strided 1 x 1 convolutions of few channels equal their definition", "[conv]") {
  for (int i = 0; i < 120; ++i) {
    ConvCase c = draw(1 + i % 3, false);
    c.filter = {1, 1, 1};
    c.o.groups = 1;
    c.c_in = pick(1, 24);
    c.c_out = pick(1, 40);
    c.x = {c.n};
    c.w = {c.c_out};
    c.y = {c.n};
    for (std::size_t d = 0; d < static_cast<std::size_t>(c.dims); ++d) {
      c.o.stride[d] = pick(1, 3);
      c.o.pad_begin[d] = c.o.pad_end[d] = i % 8 == 0;
      c.o.dilation[d] = 1;
      c.in[d] = pick(1, 9);
      c.out[d] = (c.in[d] + c.o.pad_begin[d] + c.o.pad_end[d] - 1) / c.o.stride[d] + 1;
      c.x.push_back(c.in[d]);
      c.w.push_back(1);
      c.y.push_back(c.out[d]);
    }
    c.x.push_back(c.c_in);
    c.w.push_back(c.c_in);
    c.y.push_back(c.c_out);
    check_random(c, i % 2 == 0 ? DType::f32 : DType::bf16);
  }
}

TEST_CASE("random convolutions equal their definition", "[conv]") { check_many(400); }

// tests/long.sh runs it.
TEST_CASE("twenty thousand random convolutions equal their definition", "[.][long]") { check_many(20000); }

}  // namespace test_conv_random

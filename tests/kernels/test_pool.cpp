// Pooling kernels against loops written from their definitions, and the fused tail of a convolution block
// against its parts.
#include <cstring>
#include <limits>

#include "kernels/contracts/elementwise.h"
#include "tests/kernels/heavy_cases.h"

namespace test_pool {

using namespace trireme;
using namespace trireme::test;

namespace {

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

/// Channels around the counts that kernels take at a time.
std::vector<PoolCase> around_blocks() {
  std::vector<PoolCase> cases;
  for (Index channels : {63, 64, 65, 127, 255, 256, 257, 512, 513, 600}) {
    PoolCase c{1,         1,        channels, {.window = {3, 1, 1}, .stride = {2, 1, 1}, .pad_begin = {1, 0, 0}},
               {4, 1, 1}, {2, 1, 1}};
    c.x = {1, 4, channels};
    c.y = {1, 2, channels};
    c.cells = 3;
    cases.push_back(c);
  }
  return cases;
}

void check_max(const PoolCase& c, DType type, bool with_nan) {
  INFO("x " << to_string(c.x) << " y " << to_string(c.y) << " " << name_of(type));
  Array x = filled(c.x, type), y(c.y, type), index(c.y, DType::u8), dx(c.x, type), dy = filled(c.y, type);
  if (with_nan) x.set(pick(0, x.size() - 1), std::nan(""));
  std::vector<double> best(static_cast<std::size_t>(y.size()), -std::numeric_limits<double>::infinity());
  std::vector<double> winner(best.size(), 0), from(best.size(), -1), ex(static_cast<std::size_t>(x.size()), 0.0);
  for_windows(c, [&](Index yi, Index k, Index xi) {
    auto at = static_cast<std::size_t>(yi);
    double v = x.get(xi);
    if (from[at] < 0 || v > best[at] || std::isnan(v)) {
      best[at] = v;
      winner[at] = static_cast<double>(k);
      from[at] = static_cast<double>(xi);
    }
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

void check_average(PoolCase c, DType type) {
  c.o.count_padding = pick(0, 1);
  INFO("x " << to_string(c.x) << " y " << to_string(c.y) << " " << name_of(type));
  Array x = filled(c.x, type, false), y(c.y, type), dx(c.x, type), dy = filled(c.y, type, false);
  std::vector<double> ey(static_cast<std::size_t>(y.size())), count(ey.size()), ex(static_cast<std::size_t>(x.size()));
  for_windows(c, [&](Index yi, Index, Index xi) {
    ey[static_cast<std::size_t>(yi)] += x.get(xi);
    count[static_cast<std::size_t>(yi)] += 1;
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

}  // namespace

TEST_CASE("max pooling equals its definition", "[pool]") {
  for (DType type : all_types)
    for (int dims = 1; dims <= 3; ++dims)
      for (int i = 0; i < 15; ++i) check_max(random_pool(dims, true), type, i % 3 == 0);
  for (DType type : all_types)
    for (const PoolCase& c : around_blocks()) check_max(c, type, false);
}
TEST_CASE("max pooling over a window of more than 255 cells", "[pool]") {
  Array x = filled({2, 20, 20, 3}, DType::f32, false), y({2, 1, 1, 3}, DType::f32), index(y.shape, DType::i32);
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
      for (int i = 0; i < 15; ++i) check_average(random_pool(dims, false), type);
  for (DType type : all_types)
    for (const PoolCase& c : around_blocks()) check_average(c, type);
}
TEST_CASE("the fused tail equals bias, ReLU, pooling and dropout one after another", "[pool]") {
  for (DType type : all_types)
    for (int i = 0; i < 24; ++i) {
      int dims = 1 + i % 3;
      PoolCase c{dims, pick(1, 3), i % 2 ? pick(1, 9) : i % 4 ? 64 + pick(0, 9) : 126 + pick(0, 4), {}};
      c.x = {c.n};
      c.y = {c.n};
      for (int d = 0; d < dims; ++d) {
        auto at = static_cast<std::size_t>(d);
        c.o.window[at] = c.o.stride[at] = pick(1, 3);
        c.in[at] = c.o.window[at] * pick(1, 4) + pick(0, c.o.window[at] - 1);
        c.out[at] = c.in[at] / c.o.window[at];
        c.x.push_back(c.in[at]);
        c.y.push_back(c.out[at]);
        c.cells *= c.o.window[at];
      }
      c.x.push_back(c.channels);
      c.y.push_back(c.channels);
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
      run<kernel::Dropout>(dropped.view(), pooled.view(), sample.view(), View{}, p, key);
      run<kernel::BiasReluPoolDropout>(y.view(), index.view(), x.view(), bias.view(), sample.view(), c.o, p, key);
      CHECK(std::memcmp(y.data(), dropped.data(), y.bytes.size()) == 0);

      Array dy = filled(c.y, type, false), through(c.y, type), unpooled(c.x, type), dx = filled(c.x, type);
      Array db = filled({c.channels}, type);
      auto eb = accumulate ? numbers(db) : std::vector<double>(static_cast<std::size_t>(c.channels));
      run<kernel::Dropout>(through.view(), dy.view(), sample.view(), View{}, p, key);
      run<kernel::MaxPoolBackward>(unpooled.view(), through.view(), winner.view(), c.o);
      for (Index k = 0; k < x.size(); ++k) {
        if (summed.get(k) <= 0) unpooled.set(k, 0);
        eb[static_cast<std::size_t>(k % c.channels)] += unpooled.get(k);
      }
      run<kernel::BiasReluPoolDropoutBackward>(dx.view(), db.view(), dy.view(), index.view(), c.o, p, accumulate);
      close(dx, numbers(unpooled), 0);
      close(db, eb, 8 * tolerance(type, x.size()));
    }
}

TEST_CASE("the fused tail passes NaN on", "[pool]") {
  Array x = filled({1, 2, 2, 3}, DType::f32), y({1, 1, 1, 3}, DType::f32), index(y.shape, DType::u8);
  x.set(4, std::nan(""));
  PoolOptions o{.window = {2, 2, 1}, .stride = {2, 2, 1}};
  run<kernel::BiasReluPoolDropout>(y.view(), index.view(), x.view(), View{}, View{}, o, 0.0, std::uint64_t{1});
  CHECK(std::isnan(y.get(1)));
  CHECK(index.get(1) == 1);
}

}  // namespace test_pool

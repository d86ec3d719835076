// Reductions, normalisation and losses against plain loops in f64, and numbers that PyTorch 1.13 gives.
#include <numeric>

#include "kernels/contracts/loss.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/norm.h"
#include "kernels/core/runtime.h"
#include "tests/kernels/naive.h"
#include "tests/kernels/reduce_shapes.h"

namespace test_kernels_norm {

using namespace trireme;

namespace {

/// The type of statistics and losses beside x's.
DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
/// Sums of `terms` numbers of size about 1 in the accumulator's type, then rounding to t.
double sum_tolerance(DType t, Index terms) {
  return tolerance(t) * (t == DType::bf16 ? 1 : std::sqrt(static_cast<double>(std::max<Index>(terms, 1))));
}

Numbers naive_reduce(const Shape& y, const Shape& x, const Numbers& v, ReduceKind kind) {
  double start = kind == ReduceKind::max ? -INFINITY : 0;
  Numbers out(static_cast<std::size_t>(y.numel()), start);
  for (Index i = 0; i < x.numel(); ++i) {
    Index rest = i, place = 0, step = 1;
    for (int k = 1; k <= x.rank(); rest /= x[-k], ++k) {
      place += y[-k] == 1 ? 0 : rest % x[-k] * step;
      step *= y[-k];
    }
    double& o = out[static_cast<std::size_t>(place)];
    o = kind == ReduceKind::max ? std::max(o, v[static_cast<std::size_t>(i)]) : o + v[static_cast<std::size_t>(i)];
  }
  if (kind == ReduceKind::mean)
    for (double& o : out) o *= static_cast<double>(y.numel()) / static_cast<double>(x.numel());
  return out;
}

}  // namespace

TEST_CASE("reduce over any axes") {
  for (DType t : floating)
    for (auto& [sx, sy] : test::reduce_shapes)
      for (ReduceKind kind : {ReduceKind::sum, ReduceKind::mean, ReduceKind::max}) {
        INFO(name_of(t) << to_string(sx) << to_string(sy));
        Data x = random(sx, t), y(sy, t);
        run<kernel::Reduce>(y, x, kind);
        Index terms = sx.numel() / std::max<Index>(sy.numel(), 1);
        require_near(y.values(), naive_reduce(sy, sx, x.values(), kind), sum_tolerance(t, terms));
      }
  // Integers: exact, on any number of threads.
  Numbers v(200000);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i % 7) - 3;
  Data x({2000, 100}, DType::f32, v), y({1, 100}, DType::f32), all({1, 1}, DType::f32);
  int before = threads();
  for (int n : {1, 2, 3}) {
    set_threads(n);
    run<kernel::Reduce>(y, x, ReduceKind::sum);
    run<kernel::Reduce>(all, x, ReduceKind::sum);
    require_near(y.values(), naive_reduce(y.shape(), x.shape(), v, ReduceKind::sum), 0);
    require_near(all.values(), {std::accumulate(v.begin(), v.end(), 0.0)}, 0);
  }
  set_threads(before);
  Data nan({2, 3}, DType::f32, {1, std::nan(""), 2, 3, 4, 5}), largest({2, 1}, DType::f32), columns({1, 3}, DType::f32);
  run<kernel::Reduce>(largest, nan, ReduceKind::max);
  require_near(largest.values(), {std::nan(""), 5}, 0);
  run<kernel::Reduce>(columns, nan, ReduceKind::max);
  require_near(columns.values(), {3, std::nan(""), 5}, 0);
}

TEST_CASE("argmax takes the first of equals, and a NaN before all") {
  for (DType t : floating) {
    Data x({4, 5}, t, {1, 5, 3, 5, 2, -1, -2, -1, -5, -3, 0, 0, 0, 0, 0, 1, 9, std::nan(""), 10, 2}),
        index({4}, DType::i64);
    run<kernel::ArgMax>(index, x);
    require_near(index.values(), {1, 0, 0, 2}, 0);
  }
  run<kernel::ArgMax>(Data({0}, DType::i64), Data({0, 10}, DType::f32));
}

TEST_CASE("sum of squares") {
  for (DType t : floating)
    for (Index n : {Index{0}, Index{1}, Index{33}, Index{100000}}) {
      Data x = random({n}, t), sum(Shape{}, DType::f64);
      run<kernel::SumSquares>(sum, x, View{});
      const Numbers values = x.values();
      double expected = 0;
      for (double v : values) expected += v * v;
      require_near(sum.values(), {expected}, 1e-12);
      if (n < 33) continue;
      const Numbers bounds{0, 0, 0, 5, 5, 6, 16, 32, 7, static_cast<double>(n)};
      Data slices({5, 2}, DType::i64, bounds), sums({5}, DType::f64);
      run<kernel::SumSquares>(sums, x, slices);
      Numbers each(5);
      for (std::size_t i = 0; i < 5; ++i)
        for (auto k = static_cast<std::size_t>(bounds[2 * i]); k < static_cast<std::size_t>(bounds[2 * i + 1]); ++k)
          each[i] += values[k] * values[k];
      require_near(sums.values(), each, 1e-12);
    }
  REQUIRE_ERROR(run<kernel::SumSquares>(Data({2}, DType::f64), Data({4}, DType::f32), View{}), usage, "f64", 1);
  REQUIRE_ERROR(run<kernel::SumSquares>(Data({2}, DType::f64), Data({4}, DType::f32), Data({4}, DType::i64)), usage,
                "i64", "[n, 2]");
}

namespace {
struct Norm {
  Numbers mean, m2, rstd;
};
Norm moments(const Numbers& x, std::size_t channels) {
  Norm s{Numbers(channels), Numbers(channels), Numbers(channels)};
  double rows = static_cast<double>(x.size() / channels);
  for (std::size_t i = 0; i < x.size(); ++i) s.mean[i % channels] += x[i] / rows;
  for (std::size_t i = 0; i < x.size(); ++i) s.m2[i % channels] += std::pow(x[i] - s.mean[i % channels], 2);
  for (std::size_t c = 0; c < channels; ++c) s.rstd[c] = 1 / std::sqrt(s.m2[c] / rows + 1e-5);
  return s;
}
}  // namespace

TEST_CASE("batch norm, forward and backward") {
  for (DType t : floating)
    for (Index c : {Index{1}, Index{3}, Index{33}, Index{100}, Index{1000}})
      for (Index rows : {Index{1}, Index{2}, Index{65}, Index{300}})
        for (auto [relu, residual] : {std::pair{false, true}, {true, false}, {true, true}}) {
          INFO(name_of(t) << " " << rows << " x " << c << " relu " << relu << " residual " << residual);
          Shape s{rows, 1, c};
          DType w = wide(t);
          double bound = t == DType::f64 ? 1e-10 : t == DType::f32 ? 2e-5 : 3e-2;
          Data x = random(s, t), gamma = random({c}, w, 0.5, 1.5), beta = random({c}, w, -1, 1, 3),
               add = random(s, t, -1, 1, 4);
          Data mean({c}, w), m2({c}, w), y(s, t), dy = random(s, t, -1, 1, 5), dx(s, t), dadd(s, t), dgamma({c}, w),
                                                  dbeta({c}, w);
          auto width = static_cast<std::size_t>(c);
          Numbers in = x.values(), g = gamma.values(), b = beta.values(), r = add.values();
          Norm n = moments(in, width);
          run<kernel::BatchNormMoments>(mean, m2, x);
          require_near(mean.values(), n.mean, bound);
          require_near(m2.values(), n.m2, bound);
          Data rstd({c}, w, n.rstd);
          n.mean = mean.values();
          n.rstd = rstd.values();  // as rounded
          run<kernel::BatchNormApply>(y, x, mean, rstd, gamma, beta, residual ? View(add) : View{}, relu);
          Numbers out;
          for (std::size_t i = 0; i < in.size(); ++i) {
            double v =
                (in[i] - n.mean[i % width]) * n.rstd[i % width] * g[i % width] + b[i % width] + (residual ? r[i] : 0);
            out.push_back(relu ? std::max(v, 0.0) : v);
          }
          require_near(y.values(), out, bound * 5);

          // After a residual the mask is read off y and dz is written; without one it is found from x.
          const bool read = relu && residual, found = relu && !read;
          run<kernel::BatchNormBackwardReduce>(dgamma, dbeta, read ? View(dadd) : View{}, dy, x, mean, rstd, gamma,
                                               found ? View(beta) : View{}, read ? View(y) : View{});
          run<kernel::BatchNormBackwardApply>(dx, read ? View(dadd) : View(dy), x, mean, rstd, gamma,
                                              found ? View(beta) : View{}, dgamma, dbeta, static_cast<double>(rows));
          Numbers dz = dy.values(), kept = y.values(), sum(width), weighted(width), expected;
          for (std::size_t i = 0; i < dz.size(); ++i) {
            if (relu && !(kept[i] > 0)) dz[i] = 0;
            sum[i % width] += dz[i];
            weighted[i % width] += dz[i] * (in[i] - n.mean[i % width]) * n.rstd[i % width];
          }
          require_near(dbeta.values(), sum, bound);
          require_near(dgamma.values(), weighted, bound * 10);
          for (std::size_t i = 0; i < dz.size(); ++i) {
            std::size_t k = i % width;
            double hat = (in[i] - n.mean[k]) * n.rstd[k], count = static_cast<double>(rows);
            expected.push_back(g[k] * n.rstd[k] * (dz[i] - (sum[k] + hat * weighted[k]) / count));
          }
          if (rows > 2) require_near(dx.values(), expected, bound * 5);
          if (read) require_near(dadd.values(), dz, 0);
        }
}

TEST_CASE("batch norm statistics are safe, equal on any number of threads, and zero over no rows") {
  Numbers v(40000 * 5);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = 3000 + static_cast<double>(i * 7919 % 1000) / 1000;
  Data x({40000, 5}, DType::f32, v), mean({5}, DType::f32), m2({5}, DType::f32);
  Norm n = moments(x.values(), 5);
  Numbers first;
  int before = threads();
  for (int k : {1, 2, 5}) {
    set_threads(k);
    run<kernel::BatchNormMoments>(mean, m2, x);
    require_near(mean.values(), n.mean, 1e-7);
    require_near(m2.values(), n.m2, 1e-5);
    if (first.empty()) first = m2.values();
    CHECK(m2.values() == first);
  }
  set_threads(before);
  Data none({0, 5}, DType::f32), y({0, 5}, DType::f32), g({5}, DType::f32, Numbers(5, 1)),
      sum({5}, DType::f32, Numbers(5, 9));
  run<kernel::BatchNormMoments>(mean, m2, none);
  require_near(m2.values(), Numbers(5, 0), 0);
  require_near(mean.values(), Numbers(5, 0), 0);
  run<kernel::BatchNormApply>(y, none, mean, g, g, g, View{}, true);
  run<kernel::BatchNormBackwardReduce>(sum, g, none, none, none, mean, g, g, View{}, none);
  require_near(sum.values(), Numbers(5, 0), 0);
}

TEST_CASE("moments of ranks merge into those of all rows, far from zero too") {
  for (DType t : {DType::f32, DType::f64})
    for (Index c : {Index{1}, Index{5}, Index{33}}) {
      INFO(name_of(t) << " " << c);
      const std::vector<Index> rows{3, 0, 1, 40, 7};  // by rank
      const auto width = static_cast<std::size_t>(c);
      Data parts({5, 1 + 2 * c}, DType::f64), mean({c}, t), m2({c}, t), count({1}, DType::f64);
      Numbers whole, packed;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const Numbers own = random({rows[r], c}, DType::f64, 999, 1001, 7 + r).values();
        whole.insert(whole.end(), own.begin(), own.end());
        packed.push_back(static_cast<double>(rows[r]));
        const Norm n = rows[r] > 0 ? moments(own, width) : Norm{Numbers(width, NAN), Numbers(width, NAN), {}};
        packed.insert(packed.end(), n.mean.begin(), n.mean.end());
        packed.insert(packed.end(), n.m2.begin(), n.m2.end());
      }
      Data given({5, 1 + 2 * c}, DType::f64, packed);
      run<kernel::BatchNormMerge>(mean, m2, count, given);
      const Norm n = moments(whole, width);
      CHECK(count.values() == Numbers{51});
      require_near(mean.values(), n.mean, t == DType::f64 ? 1e-12 : 1e-7);
      require_near(m2.values(), n.m2, t == DType::f64 ? 1e-11 : 1e-6);
      Data nobody({2, 1 + 2 * c}, DType::f64);
      run<kernel::BatchNormMerge>(mean, m2, count, nobody);
      CHECK(count.values() == Numbers{0});
      require_near(m2.values(), Numbers(width, 0), 0);
    }
  Data parts({2, 4}, DType::f64), mean({2}, DType::f32), m2({2}, DType::f32), count({1}, DType::f64);
  CHECK_ERROR(run<kernel::BatchNormMerge>(mean, m2, count, parts), usage, "f64", 5, "[ranks, 5]");
}

TEST_CASE("layer norm, forward and backward, with and without weights") {
  for (DType t : floating)
    for (Index c : {Index{1}, Index{7}, Index{33}, Index{1000}})
      for (bool affine : {false, true}) {
        INFO(name_of(t) << " " << c << " affine " << affine);
        constexpr Index rows = 70;
        DType w = wide(t);
        double bound = t == DType::f64 ? 1e-10 : t == DType::f32 ? 3e-5 : 4e-2;
        Shape s{rows, c};
        Data x = random(s, t), dy = random(s, t, -1, 1, 3), y(s, t), dx(s, t), mean({rows}, w), rstd({rows}, w);
        Data gamma = random({c}, w, 0.5, 1.5), beta = random({c}, w, -1, 1, 5);
        Data dgamma({c}, w, Numbers(static_cast<std::size_t>(c), 10)), dbeta({c}, w);
        View a = affine ? View(gamma) : View{}, b = affine ? View(beta) : View{};
        run<kernel::LayerNorm>(y, mean, rstd, x, a, b, 1e-5, true);
        run<kernel::LayerNormBackwardInput>(dx, dy, x, mean, rstd, a, true);
        run<kernel::LayerNormBackwardWeight>(dgamma, dbeta, dy, x, mean, rstd, true);
        auto width = static_cast<std::size_t>(c);
        Numbers in = x.values(), seed = dy.values(), ey, edx, eg(width, 10), eb(width), g = gamma.values(),
                shift = beta.values();
        for (std::size_t r = 0; r < rows; ++r) {
          Numbers row(in.begin() + static_cast<Index>(r * width), in.begin() + static_cast<Index>((r + 1) * width)),
              hat;
          double m = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(c), var = 0, plain = 0,
                 weighted = 0;
          for (double v : row) var += (v - m) * (v - m) / static_cast<double>(c);
          double inverse = 1 / std::sqrt(var + 1e-5);
          for (std::size_t i = 0; i < width; ++i) {
            hat.push_back((row[i] - m) * inverse);
            double d = seed[r * width + i], scaled = d * (affine ? g[i] : 1);
            ey.push_back(affine ? hat[i] * g[i] + shift[i] : hat[i]);
            plain += scaled / static_cast<double>(c);
            weighted += scaled * hat[i] / static_cast<double>(c);
            eg[i] += d * hat[i];
            eb[i] += d;
          }
          for (std::size_t i = 0; i < width; ++i)
            edx.push_back(inverse * (seed[r * width + i] * (affine ? g[i] : 1) - plain - hat[i] * weighted));
        }
        require_near(y.values(), ey, bound);
        if (c > 1) require_near(dx.values(), edx, bound);
        require_near(dgamma.values(), eg, bound);
        require_near(dbeta.values(), eb, bound);
      }
  Data none({0, 8}, DType::f32), rows({0}, DType::f32), w({8}, DType::f32, Numbers(8, 3));
  run<kernel::LayerNorm>(none, rows, rows, none, w, w, 1e-5, true);
  run<kernel::LayerNormBackwardInput>(none, none, none, rows, rows, w, true);
  run<kernel::LayerNormBackwardWeight>(w, View{}, none, none, rows, rows, true);
  require_near(w.values(), Numbers(8, 3), 0);
}

namespace {
Numbers naive_log_softmax(const Numbers& x, std::size_t n) {
  Numbers y;
  for (std::size_t r = 0; r * n < x.size(); ++r) {
    double top = *std::max_element(x.begin() + static_cast<Index>(r * n), x.begin() + static_cast<Index>((r + 1) * n)),
           sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += std::exp(x[r * n + i] - top);
    for (std::size_t i = 0; i < n; ++i) y.push_back(x[r * n + i] - top - std::log(sum));
  }
  return y;
}
}  // namespace

TEST_CASE("softmax, log-softmax and their gradients") {
  for (DType t : floating)
    for (Index c : {Index{1}, Index{7}, Index{33}, Index{1000}}) {
      INFO(name_of(t) << " " << c);
      Shape s{3, 5, c};
      auto n = static_cast<std::size_t>(c);
      Data x = random(s, t, -50, 50), dy = random(s, t, -1, 1, 2), y(s, t), dx(s, t);
      Numbers log_p = naive_log_softmax(x.values(), n), seed = dy.values(), p, ed, el;
      for (double v : log_p) p.push_back(std::exp(v));
      double bound = t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 2e-2;
      run<kernel::LogSoftmax>(y, x);
      require_near(y.values(), log_p, bound);
      run<kernel::LogSoftmaxBackward>(dx, dy, y);
      for (std::size_t r = 0; r < 15; ++r) {
        double dot = 0, sum = 0;
        for (std::size_t i = r * n; i < (r + 1) * n; ++i) {
          dot += seed[i] * p[i];
          sum += seed[i];
        }
        for (std::size_t i = r * n; i < (r + 1) * n; ++i) {
          ed.push_back(p[i] * (seed[i] - dot));
          el.push_back(seed[i] - p[i] * sum);
        }
      }
      if (t != DType::bf16) require_near(dx.values(), el, bound * 10);
      run<kernel::Softmax>(y, x);
      require_near(y.values(), p, bound);
      run<kernel::SoftmaxBackward>(dx, dy, y);
      require_near(dx.values(), ed, bound * 10);
    }
  Data x({2, 3}, DType::f32, {1, std::nan(""), 2, 1e30, -1e30, 0}), y({2, 3}, DType::f32);
  run<kernel::Softmax>(y, x);
  require_near(y.values(), {std::nan(""), std::nan(""), std::nan(""), 1, 0, 0}, 0);
  run<kernel::Softmax>(Data({0, 10}), Data({0, 10}));
}

TEST_CASE("cross entropy with smoothing and an ignored label") {
  for (DType t : floating)
    for (Index c : {Index{1}, Index{10}, Index{1000}})
      for (const auto& [smoothing, z] : {std::pair(0.0, 0.0), {0.1, 0.0}, {0.0, 0.2}, {0.1, 0.05}}) {
        INFO(name_of(t) << " " << c << " smoothing " << smoothing << " z " << z);
        constexpr Index rows = 33;
        auto n = static_cast<std::size_t>(c);
        Numbers labels;
        for (Index r = 0; r < rows; ++r) labels.push_back(r % 5 == 4 ? -100.0 : static_cast<double>(r * 7 % c));
        Data x = random({rows, c}, t, -5, 5), label({rows}, DType::i64, labels), loss({rows}, wide(t)),
             log_z({rows}, wide(t)), log_p({rows, c}, t);
        Data dx({rows, c}, t), scale(Shape{}, wide(t), {0.25});
        CrossEntropyOptions options{.label_smoothing = smoothing, .z_loss = z};
        run<kernel::CrossEntropy>(loss, log_p, log_z, x, label, options);
        run<kernel::CrossEntropyBackward>(dx, log_p, log_z, label, scale, options);
        const Numbers in = x.values();
        Numbers logs = naive_log_softmax(in, n), el, ed;
        for (std::size_t r = 0; r < rows; ++r) {
          const double whole = in[r * n] - logs[r * n];
          double sum = z * whole * whole;
          for (std::size_t i = 0; i < n; ++i) {
            double target =
                (labels[r] == static_cast<double>(i) ? 1 - smoothing : 0) + smoothing / static_cast<double>(c);
            sum -= target * logs[r * n + i];
            ed.push_back(labels[r] < 0 ? 0 : (std::exp(logs[r * n + i]) * (1 + 2 * z * whole) - target) * 0.25);
          }
          el.push_back(labels[r] < 0 ? 0 : sum);
        }
        double bound = t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 3e-2;
        require_near(loss.values(), el, t == DType::bf16 ? 1e-5 : bound);
        require_near(log_p.values(), logs, bound);
        require_near(dx.values(), ed, bound);
      }
  // torch.nn.functional.cross_entropy([[1, 2, 3], [1, 2, 3]], [0, 2], reduction='none', label_smoothing=0.1)
  Data x({2, 3}, DType::f64, {1, 2, 3, 1, 2, 3}), label({2}, DType::i64, {0, 2}), loss({2}), log_p({2, 3}), none({0});
  run<kernel::CrossEntropy>(loss, log_p, none, x, label, CrossEntropyOptions{.label_smoothing = 0.1});
  require_near(loss.values(), {2.3076059644443806, 0.5076059644443807}, 1e-14);
  CHECK(complaint([&] {
          run<kernel::CrossEntropy>(loss, log_p, none, x, Data({2}, DType::i64, {0, 3}), CrossEntropyOptions{});
        }) == "cross_entropy: row 1 has label 3, but there are 3 classes: labels must lie in [0, 3)");
  run<kernel::CrossEntropy>(Data({0}), Data({0, 3}), none, Data({0, 3}), Data({0}, DType::i64), CrossEntropyOptions{});
}

}  // namespace test_kernels_norm

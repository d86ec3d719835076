// Each codec beside a serial loop that does what its paper says.
#include <set>

#include "tests/parallel/codec_runs.h"

namespace test_codecs {

using namespace trireme;
using namespace trireme::test;

namespace {

/// The positions of the k largest, the first of equals first.
std::vector<std::size_t> largest(const Vector& v, Index k) {
  std::vector<std::size_t> order(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return std::abs(v[i]); });
  order.resize(static_cast<std::size_t>(k));
  return order;
}
Index share_of(double ratio, Index n) {
  return std::clamp(static_cast<Index>(std::ceil(ratio * static_cast<double>(n))), Index{1}, n);
}

/// Algorithm 1 of the paper with momentum correction and factor masking (Lin et al., arXiv 1712.01887), serially.
struct SerialDgc {
  double ratio, momentum = 0;
  bool masking = true, residual = true;
  int warmup = 0;
  double clip = 0;
  std::vector<Vector> run(int ranks, int steps, const Gradient& gradient) const {
    std::vector<Vector> u(static_cast<std::size_t>(ranks)), v = u, sums;
    for (int step = 0; step < steps; ++step) {
      Vector sum(gradient(0, 0).size());
      for (std::size_t r = 0; r < u.size(); ++r) {
        Vector g = gradient(static_cast<int>(r), step);
        double squares = 0;
        for (const double v : g) squares += v * v;
        const double threshold = clip / std::sqrt(static_cast<double>(ranks));  // N^(-1/2) of the global one
        for (double& v : g)
          if (clip > 0 && std::sqrt(squares) > threshold) v *= threshold / std::sqrt(squares);
        u[r].resize(g.size());
        v[r].resize(g.size());
        for (std::size_t i = 0; i < g.size(); ++i) {
          u[r][i] = momentum * u[r][i] + g[i];
          v[r][i] = (residual ? v[r][i] : 0) + u[r][i];
        }
        const double now = step < warmup ? std::max(ratio, std::pow(4.0, -1 - 4 * step / warmup)) : ratio;
        for (const std::size_t i : largest(v[r], share_of(now, std::ssize(g)))) {
          sum[i] += v[r][i];
          v[r][i] = 0;
          if (masking) u[r][i] = 0;
        }
      }
      sums.push_back(sum);
    }
    return sums;
  }
};

void check_equal(const std::vector<Reduced>& got, const std::vector<Vector>& want, double tolerance = 0) {
  REQUIRE(got.size() == want.size());
  for (std::size_t s = 0; s < got.size(); ++s) {
    INFO("step " << s);
    CHECK(got[s].agreed);
    CHECK(distance(got[s].sum, want[s]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("topk and dgc send what the paper's loop sends") {
  for (const int ranks : rank_counts({1, 3}))
    for (const Index n : {1, 7, 64, 1000})
      for (const DType type : {DType::f32, DType::f64})
        for (const auto& [options, serial] : std::vector<std::pair<std::string, SerialDgc>>{
                 {"topk, ratio=0.1", {.ratio = 0.1}},
                 {"codec=topk, ratio=1", {.ratio = 1}},
                 {"topk, ratio=0.25, momentum=0.5", {.ratio = 0.25, .momentum = 0.5}},
                 {"topk, ratio=0.2, residual=false", {.ratio = 0.2, .residual = false}},
                 {"codec=dgc, ratio=0.05, momentum=0.5", {.ratio = 0.05, .momentum = 0.5}},
                 {"dgc, ratio=0.1, momentum=0.5, masking=false", {.ratio = 0.1, .momentum = 0.5, .masking = false}},
                 {"dgc, momentum=0, warmup=6, ratio=0.001", {.ratio = 0.001, .warmup = 6}}}) {
          INFO(options << " of " << n << " on " << ranks);
          check_equal(reduced(options, ranks, 8, integers(n), {32, 32 + n}, type), serial.run(ranks, 8, integers(n)));
        }
}

TEST_CASE("dgc clips what each rank adds by its share of the threshold") {
  // Waves of sqrt(n / 2) or so: some thresholds clip all ranks' gradients, some none.
  for (const int ranks : rank_counts({1, 2, 4}))
    for (const Index n : {7, 64, 1000})
      for (const double clip : {0.01, 1.0, std::sqrt(static_cast<double>(n * ranks) / 2), 1e4}) {
        INFO("clip=" << clip << " of " << n << " on " << ranks);
        const SerialDgc serial{.ratio = 0.1, .momentum = 0.5, .clip = clip};
        check_equal(reduced(fmt::format("dgc, ratio=0.1, momentum=0.5, clip={}", clip), ranks, 6, waves(n), {0, n}),
                    serial.run(ranks, 6, waves(n)), 1e-11 * std::max(1.0, clip));
      }
}

TEST_CASE("chunks sends the chunks whose norms over all ranks are largest") {
  for (const int ranks : rank_counts({1, 2, 3}))
    for (const Index n : {5, 48, 50}) {
      constexpr Index chunk = 8;
      const Index chunks = (n + chunk - 1) / chunk;
      std::vector<Vector> v(static_cast<std::size_t>(ranks)), want;
      for (int step = 0; step < 6; ++step) {
        Vector norms(static_cast<std::size_t>(chunks)), sum(static_cast<std::size_t>(n));
        for (int r = 0; r < ranks; ++r) {
          v[r].resize(sum.size());
          v[r] = plus(v[r], integers(n)(r, step));
          for (Index i = 0; i < n; ++i) norms[i / std::min(chunk, n)] += std::abs(v[r][i]);
        }
        for (const std::size_t c : largest(norms, share_of(0.4, chunks)))
          for (Index i = c * chunk; i < std::min<Index>(n, (c + 1) * chunk); ++i)
            for (Vector& mine : v) {
              sum[i] += mine[i];
              mine[i] = 0;
            }
        want.push_back(sum);
      }
      INFO(n << " on " << ranks);
      check_equal(reduced("chunks, chunk=8, ratio=0.4", ranks, 6, integers(n), {0, n}), want);
    }
}

TEST_CASE("randomk draws alike on all ranks, each position as often, others in other steps") {
  constexpr Index n = 50;
  constexpr int steps = 400;
  const auto ones = [](int rank, int) { return Vector(n, rank + 1); };
  for (const int ranks : rank_counts({1, 3})) {
    const auto got = reduced("randomk, ratio=0.2", ranks, steps, ones, {16, 16 + n});
    const double all = ranks * (ranks + 1) / 2.0;
    Vector waiting(n), drawn(n);
    std::set<Vector> different;
    for (const Reduced& step : got) {
      Index sent = 0;
      for (std::size_t i = 0; i < n; ++i) {
        waiting[i] += all;
        if (step.sum[i] == 0) continue;
        REQUIRE(step.sum[i] == waiting[i]);  // what any rank has kept there goes with it
        waiting[i] = 0;
        ++drawn[i];
        ++sent;
      }
      REQUIRE(sent == 10);
      different.insert(step.residual);
    }
    CHECK(different.size() > steps * 9 / 10);
    for (const double times : drawn) CHECK(std::abs(times - 0.2 * steps) < 5 * std::sqrt(steps * 0.2 * 0.8));
    CHECK(reduced("randomk, ratio=0.2", ranks, 1, ones, {16, 16 + n})[0].sum == got[0].sum);
    CHECK(reduced("randomk, ratio=0.2, seed=1", ranks, 1, ones, {16, 16 + n})[0].sum != got[0].sum);
    CHECK(reduced("randomk, ratio=0.2", ranks, 1, ones, {32, 32 + n})[0].sum != got[0].sum);
  }
}

TEST_CASE("qsgd rounds to neighbouring levels without bias, each rank and step for itself") {
  constexpr Index n = 100;
  constexpr int steps = 2000;
  const auto same = [](int, int) { return waves(n)(0, 0); };
  const Vector g = same(0, 0);
  for (const int levels : {1, 2, 7, 8, 127}) {
    const std::string options = fmt::format("qsgd, block=64, levels={}", levels);
    const auto got = reduced(options, 1, steps, same, {0, n});
    INFO(options);
    for (std::size_t i = 0; i < n; ++i) {
      double norm = 0, mean = 0;
      for (std::size_t j = i / 64 * 64; j < std::min<std::size_t>(n, i / 64 * 64 + 64); ++j) norm += g[j] * g[j];
      const double unit = std::sqrt(norm) / levels;
      double worst = 0;
      for (const Reduced& step : got) {
        const double level = step.sum[i] / unit;
        worst = std::max({worst, std::abs(level - std::round(level)), std::abs(level - g[i] / unit) - 1});
        mean += step.sum[i] / steps;
      }
      CHECK(worst < 1e-9);
      CHECK(std::abs(mean - g[i]) < 5 * unit / 2 / std::sqrt(steps));
    }
    CHECK(reduced(options, 1, 1, same, {0, n})[0].sum == got[0].sum);
    CHECK(got[1].sum != got[0].sum);
    for (const int ranks : rank_counts({2})) {
      const auto both = reduced(options, ranks, 1, same, {0, n});
      CHECK(both[0].agreed);
      Vector alike(n);
      for (int r = 0; r < ranks; ++r) alike = plus(alike, got[0].sum);
      CHECK(both[0].sum != alike);
    }
  }
}

TEST_CASE("onebit sends means by sign and block, with error feedback") {
  for (const int ranks : rank_counts({1, 3}))
    for (const Index n : {3, 20, 64}) {
      std::vector<Vector> kept(static_cast<std::size_t>(ranks)), want;
      for (int step = 0; step < 5; ++step) {
        Vector sum(static_cast<std::size_t>(n));
        for (int r = 0; r < ranks; ++r) {
          Vector& v = kept[r];
          v.resize(sum.size());
          v = plus(v, waves(n)(r, step));
          for (Index begin = 0; begin < n; begin += 8) {
            const Index end = std::min(n, begin + 8);
            double total[2] = {}, count[2] = {};
            for (Index i = begin; i < end; ++i) {
              total[v[i] >= 0] += v[i];
              ++count[v[i] >= 0];
            }
            for (Index i = begin; i < end; ++i) {
              const double sent = total[v[i] >= 0] / count[v[i] >= 0];
              sum[i] += sent;
              v[i] -= sent;
            }
          }
        }
        want.push_back(sum);
      }
      check_equal(reduced("onebit, block=8", ranks, 5, waves(n), {0, n}), want, 1e-13);
    }
  const auto two = [](int, int) { return Vector{-3, 5, 5, -3, -3, -3, 5, -3, 2, 2}; };  // nothing is lost
  CHECK(reduced("onebit, block=8", 1, 2, two, {0, 10})[1].sum == two(0, 0));
}

TEST_CASE("what is sent and what is kept are the gradient and what was kept before") {
  for (std::string options : lossy()) {
    if (options.find("qsgd") != options.npos) continue;  // keeps nothing
    if (options.find("dgc") != options.npos) options += ", momentum=0";
    const bool exact = options.find("onebit") == options.npos && options.find("powersgd") == options.npos;
    const std::map<Index, Shape> tensors = {{0, {8, 6}}, {48, {2}}};
    for (const DType type : {DType::f32, DType::f64}) {
      INFO(options << " " << name_of(type));
      Vector before(50);
      const auto steps = reduced(options, 1, 8, integers(50, 300), {0, 50}, type, tensors);
      for (int s = 0; s < 8; ++s) {
        const Vector sum = plus(steps[s].sum, steps[s].residual), want = plus(integers(50, 300)(0, s), before);
        CHECK(distance(sum, want) <= (exact ? 0 : type == DType::f64 ? 1e-13 : 1e-5));
        before = steps[s].residual;
      }
    }
  }
}

TEST_CASE("powersgd projects on a few columns, and finds the best ones in time") {
  // A matrix of 12 rows and 9 columns, of which the slice has 11 whole rows and a piece of one; and a bias.
  const std::map<Index, Shape> tensors = {{16, {12, 3, 3}}, {128, {12}}};
  const Slice slice{20, 140};
  const Index first = 25 - 20, rows = 11, columns = 9;  // row 1 begins at 16 + 9
  for (const int ranks : rank_counts({1, 3})) {
    const auto got = reduced("powersgd, rank=2", ranks, 4, waves(slice.size()), slice, DType::f64, tensors);
    Vector waiting(static_cast<std::size_t>(slice.size()));
    for (int s = 0; s < 4; ++s) {
      for (int r = 0; r < ranks; ++r) waiting = plus(waiting, waves(slice.size())(r, s));
      const Vector& sum = got[s].sum;
      CHECK(got[s].agreed);
      for (Index i = 0; i < slice.size(); ++i)
        if (i < first || i >= first + rows * columns) CHECK(sum[i] == Approx(waiting[i]).margin(1e-13));
      // What is left is orthogonal to what was sent, column by column: that is the projection of all that waits.
      for (Index a = 0; a < columns; ++a)
        for (Index b = 0; b < columns; ++b) {
          double dot = 0;
          for (Index i = 0; i < rows; ++i) {
            const Index at = first + i * columns;
            dot += sum[at + a] * (waiting[at + b] - sum[at + b]);
          }
          CHECK(std::abs(dot) < 1e-11);
        }
      for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i] -= sum[i];
    }
  }
  const auto matrix = [](int, int) {  // singular values 4 and 2 sqrt(2), of orthogonal vectors
    Vector m;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) m.push_back(1 + (i % 2 ? -1 : 1) * (j < 2 ? 0.5 : -0.5) * std::sqrt(2.0));
    return m;
  };
  const auto last = [&](const std::string& more) {
    return reduced("powersgd, rank=1, residual=false" + more, 1, 60, matrix, {0, 16}, DType::f64, {{0, {4, 4}}})
        .back()
        .sum;
  };
  CHECK(distance(last(""), Vector(16, 1)) < 1e-9);
  CHECK(distance(last(", warm_start=false"), Vector(16, 1)) > 1e-3);
  const auto nothing = [](int, int) { return Vector(16); };
  CHECK(reduced("powersgd", 1, 2, nothing, {0, 16}, DType::f32, {{0, {4, 4}}})[1].sum == Vector(16));
}

}  // namespace test_codecs

// Back-tests on made-up families, whose parameters are known. The hidden test case [mlperf] reads MLPerf's own table.
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "kernels/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/backtest/backtest_text.h"

namespace test_backtest {

using namespace trireme;
using trireme::test::contains;

namespace {

/// How families are made up: their formula exactly, or with walks beside it.
struct MadeUp {
  int families = 12;
  double walk = 0;          ///< s over log2 n and over log2 samples
  double milliseconds = 1;  ///< what all times are multiplied by
  unsigned seed = 1;
  Latency latency = Latency::ring;
};

/// Families of the model's own formula, with a, k and l drawn from known distributions: a table as text, a row per
/// line.
std::vector<std::string> made_up(const MadeUp& how) {
  std::mt19937 random(how.seed);
  std::normal_distribution<double> normal;
  std::vector<std::string> lines;
  for (int f = 0; f < how.families; ++f) {
    const double c = 0.3 * std::exp(0.5 * normal(random)), a = 15 * std::exp(0.4 * normal(random)),
                 k = 5 * std::exp(0.8 * normal(random)), l = 0.02 * std::exp(0.8 * normal(random));
    const double factor = how.walk * std::exp(0.3 * normal(random));
    double walk = 0, before = 0;
    for (int n = 1, i = 0; n <= 64; n *= i % 2 == 0 ? 4 : 2, ++i) {
      const double samples = std::array{256, 128, 256, 64, 128, 32}[static_cast<std::size_t>((f + i) % 6)];
      walk += factor * (std::sqrt(std::log2(i == 0       ? 1
                                            : i % 2 == 1 ? 4
                                                         : 2)) *
                            normal(random) +
                        (i == 0 ? 0 : std::sqrt(std::abs(std::log2(samples / before))) * normal(random)));
      before = samples;
      const double latency = how.latency == Latency::ring ? l * 2 * (n - 1) : 50 * l * std::log2(n);
      const double ms = how.milliseconds * c * (samples + a + k * 2 * (n - 1) / n + latency) * std::exp(walk);
      lines.push_back(fmt::format("family {},{},{},{},{:.17g},s{}", f, n, 8 * n, samples, ms, f % 3));
    }
  }
  return lines;
}

/// A table as tools/mlperf_logs writes it, of systems whose step times are known.
struct KnownTable {
  std::string text =
      "family,round,submitter,system,nodes,accels,gbs,lbs,runs,step_ms_median,step_ms_min,step_ms_max,meth,dup_of\n";
  std::map<std::pair<std::string, Index>, double> exact;  ///< milliseconds by family and nodes, without the spread
};

/// 12 families of 2 to 5 sizes from 6 submitters: 18 rows of 9 families can be predicted. The times are the model's
/// formula with a ring's latency, and spread by 0.3 % from run to run. A copy, a row without a time and a system of
/// another size than all others have no part in a back-test.
KnownTable known_table() {
  KnownTable table;
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  for (int f = 0; f < 12; ++f) {
    const double c = 0.4 * std::exp(0.5 * normal(random)), a = 12 * std::exp(0.4 * normal(random)),
                 k = 6 * std::exp(0.8 * normal(random)), l = 0.02 * std::exp(0.8 * normal(random));
    const std::string family = fmt::format("9.{}|s{}|B{}-80GB|x8", f % 3, f % 6, f);
    for (int i = 0; i < 2 + f % 4; ++i) {
      const int n = std::array{1, 2, 8, 16, 64}[static_cast<std::size_t>(i)], samples = i < 3 ? 256 >> i : 32;
      const double exact = c * (samples + a + k * 2 * (n - 1) / n + l * 2 * (n - 1));
      const double ms = exact * std::exp(0.003 * normal(random));
      table.exact[{family, n}] = exact;
      table.text += fmt::format("{},9.{},s{},n{},{},{},{},{},5,{:.3f},{:.3f},{:.3f},E,\n", family, f % 3, f % 6, n, n,
                                8 * n, 8 * n * samples, samples, ms, 0.999 * ms, 1.001 * ms);
    }
    if (f == 5) table.text += family + ",9.2,s5,copy,4,32,4096,128,5,1.000,1.000,1.000,E,9.1 s5 n4\n";
    if (f == 6) table.text += family + ",9.0,s0,broken,4,32,4096,128,5,,,,E,\n";
    if (f == 7) table.text += ",9.1,s1,alone,4,32,4096,128,5,9.000,9.000,9.000,X,\n";
  }
  return table;
}

constexpr const char* header = "family,nodes,accels,lbs,step_ms_median,submitter\n";

std::string text_of(const std::vector<std::string>& lines) {
  std::string text = header;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Backtest run(const std::vector<std::string>& lines, LeaveOut leave_out = LeaveOut::family) {
  return backtest(parse_scaling_table(text_of(lines), "made up"), leave_out);
}

void check_same(const Backtest& a, const Backtest& b, double scale = 1) {
  REQUIRE(a.families.size() == b.families.size());
  for (std::size_t f = 0; f < a.families.size(); ++f) {
    const auto same =
        std::ranges::find(b.families, a.families[f].family.name, [](const BacktestFamily& g) { return g.family.name; });
    REQUIRE(same != b.families.end());
    REQUIRE(same->points.size() == a.families[f].points.size());
    for (std::size_t i = 0; i < same->points.size(); ++i) {
      const ScalingPrediction &p = a.families[f].points[i].predicted, &q = same->points[i].predicted;
      CHECK(q.milliseconds == Approx(scale * p.milliseconds).epsilon(1e-6));
      CHECK(q.low == Approx(scale * p.low).epsilon(1e-6));
      CHECK(q.high == Approx(scale * p.high).epsilon(1e-6));
    }
  }
}

}  // namespace

TEST_CASE("families of the formula are predicted within a few per cent, and better than by baselines") {
  for (const Latency latency : {Latency::ring, Latency::tree}) {
    const Backtest test = run(made_up({.latency = latency}));
    CHECK(test.families.size() == 12);
    const ErrorTotals all = test.totals();
    CHECK(all.points == 36);
    CHECK(all.median < 0.03);
    CHECK(all.p90 < 0.12);
    CHECK(all.mean < test.baseline_totals(0).mean);
    CHECK(all.mean < test.baseline_totals(1).mean);
    CHECK(all.median <= all.p90);
    CHECK(all.p90 <= all.largest);
  }
}

TEST_CASE("bands cover as many points as they say where families wander") {
  int inside = 0, points = 0;
  for (const unsigned seed : {1, 2}) {
    const Backtest test = run(made_up({.families = 14, .walk = 0.02, .seed = seed}));
    for (const BacktestFamily& f : test.families)
      for (const BacktestPoint& p : f.points) {
        CHECK(p.predicted.low < p.predicted.milliseconds);
        CHECK(p.predicted.milliseconds < p.predicted.high);
        inside += p.inside();
        ++points;
      }
  }
  const double share = static_cast<double>(inside) / points;
  CHECK(share > 0.70);
  CHECK(share < 0.95);
}

TEST_CASE("a prediction does not see what it predicts, nor the order of rows, nor the unit of time") {
  const MadeUp how = {.families = 6, .walk = 0.01};
  std::vector<std::string> lines = made_up(how);
  const Backtest before = run(lines);
  MadeUp slower = how;
  slower.milliseconds = 1000;
  check_same(before, run(made_up(slower)), 1000);

  ScalingTable table = parse_scaling_table(text_of(lines), "made up");
  for (std::size_t i = 0; i < table.families.size(); ++i) {  // each family's own measurements, wrong by half
    ScalingTable other = table;
    for (std::size_t r = static_cast<std::size_t>(other.families[i].calibration); r < other.families[i].rows.size();
         ++r)
      other.families[i].rows[r].milliseconds *= 1.5;
    const Backtest after = backtest(other);
    for (std::size_t p = 0; p < after.families[i].points.size(); ++p) {
      CHECK(after.families[i].points[p].predicted.milliseconds == before.families[i].points[p].predicted.milliseconds);
      CHECK(after.families[i].points[p].predicted.high == before.families[i].points[p].predicted.high);
    }
    if (i == 1) break;  // each costs a back-test
  }
  std::mt19937 random(3);
  std::ranges::shuffle(lines, random);
  check_same(before, run(lines));
}

TEST_CASE("leaving a submitter out changes what is learnt, and needs families of others") {
  const std::vector<std::string> lines = made_up({.families = 9, .walk = 0.01});
  const Backtest family = run(lines), submitter = run(lines, LeaveOut::submitter);
  CHECK(family.families[0].points[0].predicted.milliseconds != submitter.families[0].points[0].predicted.milliseconds);
  CHECK_ERROR(run(made_up({.families = 3})), data, "simulate --backtest", 2);
  CHECK_ERROR(run(made_up({.families = 4}), LeaveOut::submitter), data, "simulate --backtest", 2);
}

TEST_CASE("what a family counts, which rows calibrate, and what is left out") {
  const ScalingTable table = parse_scaling_table(
      "note,step_ms_median,accels,nodes,lbs,family,dup_of\r\n"
      "\"a \"\"quoted\"\", note\",10,16,1,32,pods,\r\n"
      ",20,64,1,64,pods,\r\n"
      "\"two\nlines\",30,128,2,64,pods,\r\n"
      ",5,8,2,32,nodes,\n,6,4,1,32,nodes,\n,7,4,1,64,nodes,\n,9,32,8,64,nodes,\n"
      "\n,,4,1,32,untimed,\n,5,4,1,32,,\n,5,4,1,32,nodes,1.0-3\n,5,4,1,32,alone,",
      "t.csv");
  REQUIRE(table.families.size() == 2);
  const ScalingFamily &pods = table.families[0], &nodes = table.families[1];
  CHECK(!pods.counts_nodes);
  CHECK(pods.calibration == 2);
  CHECK(pods.rows[2].size == 128);
  CHECK(pods.rows[2].line == 4);
  CHECK(nodes.counts_nodes);
  CHECK(nodes.calibration == 3);
  CHECK(nodes.rows[0].milliseconds == 7);
  CHECK(nodes.rows[1].milliseconds == 6);
  CHECK(nodes.rows[3].size == 8);
  CHECK(table.left_out == 4);
}

TEST_CASE("a damaged table is refused with its file, line and columns") {
  const auto refused = [](const std::string& text, const std::string& why) {
    INFO(text);
    CHECK_ERROR(parse_scaling_table(text, "t.csv"), data, why);
  };
  const std::string two = "f,1,4,64,10,a\nf,2,8,64,11,a\n";
  refused("", "t.csv");
  refused("family,nodes\n", "t.csv:1");
  refused("family,nodes,accels,lbs,step_ms_median,nodes\n", "t.csv:1");
  refused(header + two + "f,3,12\n", "t.csv:4");
  refused(header + two + "f,3,12,64,\"9,a\n", "t.csv:4");
  refused(header + std::string("f,1,4,64,10,a\n"), "t.csv");
  for (const std::string bad : {"0", "-1", "nan", "inf", "1e30", "x", "", "1 ", "0x10", "1.5"})
    refused(header + two + "f," + bad + ",12,64,9,a\n", "t.csv:4: nodes is '" + bad + "', expected a whole number");
  refused(header + two + "f,3,12,none,9,a\n", "t.csv:4");
  refused(header + two + "f,3,12,64,-9,a\n", "step_ms_median");
  CHECK_ERROR(backtest(parse_scaling_table(header + two, "t.csv")), data, "simulate --backtest");
}

TEST_CASE("baselines by hand") {
  // 10 ms + 0.5 ms per sample: a line finds it.
  const ScalingTable table =
      parse_scaling_table(std::string(header) + "f,1,4,100,60,a\nf,2,8,20,20,a\nf,4,16,60,50,a\n", "t.csv");
  const ScalingFamily& f = table.families[0];
  CHECK(predict(f, Baseline::proportional)[0] == Approx(36));
  CHECK(predict(f, Baseline::line)[0] == Approx(40));
  // c0 = 2.94, c1 = 0.5706, k (at n = 2: times 1) = 20 - 2.94 - 11.412 = 5.648; at n = 4 times 1.5.
  CHECK(predict(f, Baseline::ring)[0] == Approx(2.94 + 60 * 0.5706 + 1.5 * 5.648));
  const ErrorTotals t = totals_of({-0.4, 0.1, 0.2, -0.3, 0});
  CHECK(t.median == Approx(0.2));
  CHECK(t.mean == Approx(0.2));
  CHECK(t.p90 == Approx(0.36));
  CHECK(t.largest == Approx(0.4));
}

TEST_CASE("a form's density is that of one point of its distribution where the distribution is narrow") {
  ScalingTable table = parse_scaling_table(std::string(header) + "f,1,4,100,60,a\nf,4,16,50,40,a\n", "t.csv");
  const ScalingForm form = {Latency::ring, 1, 1};
  ScalingPrior prior = start_of(form);
  prior.deviation = {1e-9, 1e-9, 1e-9};
  const double a = std::exp(prior.mean[0]), k = std::exp(prior.mean[1]), l = std::exp(prior.mean[2]);
  const double rest = std::log(40.0 / 60) - std::log((50 + a + 1.5 * k + 6 * l) / (100 + a));
  const double variance = 2 * std::exp(2 * prior.over_size) + std::exp(2 * prior.over_samples) + 2 * 0.003 * 0.003;
  const double cauchy = -std::log(3.14159265358979 * std::sqrt(variance) * (1 + rest * rest / variance));
  CHECK(log_density(table.families[0], form, prior) == Approx(cauchy).epsilon(1e-6));
}

TEST_CASE("a table of known systems, from its file to the printed words") {
  const test::Temporary folder;
  const KnownTable table = known_table();
  test::spill(folder / "table.csv", table.text);
  const Backtest test = backtest(read_scaling_table(folder / "table.csv"));
  INFO(in_words(test));
  CHECK(test.evidence == 12);
  CHECK(test.left_out == 3);
  CHECK(test.families.size() == 9);
  const ErrorTotals all = test.totals();
  CHECK(all.points == 18);
  CHECK(all.median <= 0.02);
  CHECK(all.p90 <= 0.08);
  CHECK(all.mean < test.baseline_totals(0).mean);
  CHECK(all.mean < test.baseline_totals(1).mean);
  CHECK(test.coverage() >= 0.75);
  int covered = 0;
  double most = 0;
  for (const BacktestFamily& f : test.families)
    for (const BacktestPoint& p : f.points) {
      const double exact = table.exact.at({f.family.name, p.row.size});
      CHECK(p.row.milliseconds == Approx(exact).epsilon(0.012));  // four deviations of the spread
      covered += p.predicted.low <= exact && exact <= p.predicted.high;
      most = std::max(most, std::abs(p.predicted.milliseconds / exact - 1));
    }
  CHECK(covered >= 13);  // the bands are to hold 80 %
  CHECK(most < 0.15);
  const auto known =
      std::ranges::find(test.families, "9.1|s1|B7-80GB|x8", [](const BacktestFamily& f) { return f.family.name; });
  REQUIRE(known != test.families.end());
  REQUIRE(known->points.size() == 3);
  CHECK_THAT(in_words(test), contains("of 18 points of 9 families"));
  CHECK_THAT(in_words(test), contains("of 12; 3 rows of the table are not used"));
  CHECK_THAT(markdown(test), contains("| 9.1 s1 B7-80GB x8 | 1, 2 nodes | 8 x 64: "));
  CHECK_THAT(csv(test),
             contains(fmt::format("\"9.1|s1|B7-80GB|x8\",nodes,8,8,64,64,{},", known->points[0].row.milliseconds)));
}

// TRIREME_MLPERF=TABLE.csv build/tests/test_backtest '[mlperf]'. MLPerf's results are not part of this project.
TEST_CASE("MLPerf's public table", "[.][mlperf]") {
  const char* path = std::getenv("TRIREME_MLPERF");
  INFO("TRIREME_MLPERF must name the table that tools/mlperf_logs makes of rounds 0.6 to 4.0");
  REQUIRE(path != nullptr);
  const Backtest test = backtest(read_scaling_table(path));
  const ErrorTotals all = test.totals();
  CHECK(all.points > 0);
  CHECK(!test.families.empty());
  CHECK(all.median <= 0.032);
  CHECK(all.p90 <= 0.157);
  CHECK(test.coverage() >= 0.75);
  CHECK(test.coverage() <= 0.90);
  const auto dell = std::ranges::find(test.families, "2.0|Dell|A100-SXM-40GB|x4",
                                      [](const BacktestFamily& f) { return f.family.name; });
  REQUIRE(dell != test.families.end());
  CHECK(dell->points.size() == 4);
  for (const BacktestPoint& p : dell->points) CHECK(std::abs(p.error()) <= 0.031);
  CHECK_THAT(in_words(test), contains("of 39 points of 22 families"));
  CHECK_THAT(markdown(test), contains("| 2.0 Dell A100-SXM-40GB x4 | 1, 2 nodes | "));
  CHECK_THAT(csv(test), contains("\"2.0|Dell|A100-SXM-40GB|x4\",nodes,32,32,128,128,52.765,"));
}

}  // namespace test_backtest

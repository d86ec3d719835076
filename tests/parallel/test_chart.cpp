// Charts: ticks that fit, numbers that fit, and pictures of all that is given.
#include "parallel/analysis/chart.h"

#include <cmath>
#include <cstdio>
#include <random>

#include "kernels/core/error.h"
#include "tests/support/catch.h"

namespace test_chart {

using namespace trireme;

TEST_CASE("ticks lie within their range, evenly, and are neither few nor many") {
  for (double low : {-3.0, 0.0, 1e-7, 0.3, 17.0, 1e6})
    for (double more : {1e-6, 0.02, 1.0, 7.5, 99.0, 1e9}) {
      const double high = low + more;
      const auto all = ticks(low, high);
      INFO(low << " to " << high);
      CHECK(all.size() >= 4);
      CHECK(all.size() <= 12);
      for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i] >= low - more * 1e-3);
        CHECK(all[i] <= high + more * 1e-3);
        if (i > 1) CHECK(std::abs(all[i] - 2 * all[i - 1] + all[i - 2]) < more * 1e-6);
      }
      if (low <= 0) continue;
      const auto log = ticks(low, high, true);
      CHECK(log.size() >= 2);
      CHECK(log.size() <= 18);
      for (double v : log) CHECK((v >= low * 0.999 - more * 1e-3 && v <= high * 1.001));
    }
  CHECK(ticks(1, 1).empty());
  CHECK(ticks(1, 1000, true) == std::vector<double>{1, 10, 100, 1000});
}

TEST_CASE("numbers are short") {
  for (const auto& [number, text] : std::vector<std::pair<double, std::string>>{{0, "0"},
                                                                                {0.25, "0.25"},
                                                                                {-3, "-3"},
                                                                                {1024, "1024"},
                                                                                {16384, "16.4k"},
                                                                                {2.5e6, "2.5M"},
                                                                                {3e9, "3G"},
                                                                                {-4e12, "-4T"},
                                                                                {1e-7, "1e-07"}})
    CHECK(number_text(number) == text);
}

TEST_CASE("a chart shows every series, and refuses what has no place on its axes") {
  Chart chart{.title = "a < b", .x = "ranks", .y = "speed", .series = {}};
  CHECK(chart_svg(chart).find("a &lt; b") != std::string::npos);
  chart.series = {{"first & last", {{1, 1}, {2, 3}}}, {"flat", {{1, 2}, {2, 2}}, true}, {"one", {{1, 5}}}};
  const std::string svg = chart_svg(chart);
  CHECK(svg.find(">first &amp; last</text>") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    chart.series[0].points[0].second = wrong;
    CHECK_ERROR(chart_svg(chart), usage, "chart", "first & last");
  }
  CHECK(svg_page("t", "<svg/>", "a < b").find("<pre>a &lt; b</pre>") != std::string::npos);
  CHECK(html_text("a\x1b[1m&\n") == "a?[1m&amp;\n");
}

TEST_CASE("marks tell how a number came about, and bands are drawn where they are known") {
  std::mt19937 random(20);
  const auto count = [](const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++n;
    return n;
  };
  for (int i = 0; i < 40; ++i) {
    Chart chart{.title = "t", .x = "ranks", .y = "s", .series = {}};
    std::size_t of_kind[4] = {}, bands = 0;
    for (int s = 0; s < 3; ++s) {
      ChartSeries series{.name = "s", .points = {}};
      const bool band = random() % 2 == 0;
      for (int p = 1; p < 30; ++p) {
        const double y = 1 + random() % 100;
        series.points.emplace_back(p, y);
        if (band) series.band.emplace_back(y / 2, y * 1.5);
        series.evidence.push_back(static_cast<Evidence>(random() % 4));
        ++of_kind[static_cast<std::size_t>(series.evidence.back())];
      }
      bands += band;
      chart.series.push_back(std::move(series));
    }
    const std::string svg = chart_svg(chart);
    for (std::size_t kind = 0; kind < 4; ++kind) {
      CHECK(count(svg, std::string(", ") + evidence_names[kind] + "</title>") == of_kind[kind]);
      CHECK(count(svg, std::string(">") + evidence_names[kind] + "</text>") == 1);
    }
    CHECK(count(svg, "<circle ") == of_kind[0] + 1);          // and the legend's
    CHECK(count(svg, "fill-opacity=\"0.15\"") == 2 * bands);  // and the legend's
    CHECK(svg.find("nan") == svg.npos);
    chart.series[0].evidence.pop_back();
    CHECK_ERROR(chart_svg(chart), usage, 29, 28);
  }
}

TEST_CASE("ticks that lie near each other have as many digits as tell them apart") {
  const std::string svg =
      chart_svg({.title = "rate", .x = "ranks", .y = "1/s", .series = {{"a", {{1, 93.1}, {2, 93.4}}}}});
  for (const char* text : {">93.1<", ">93.15<", ">93.2<", ">93.25<"}) {
    INFO(text);
    CHECK(svg.find(text) != std::string::npos);
    CHECK(svg.find(text) == svg.rfind(text));
  }
}

TEST_CASE("pictures are stacked whole, one below the other") {
  Chart low{.title = "low", .x = "x", .y = "y", .series = {{"s", {{1, 2}, {2, 3}}}}}, tall = low;
  tall.title = "tall";
  for (int i = 0; i < 40; ++i) tall.series.push_back({"a series with a long name", {{1, 1}}});
  const auto size_of = [](const std::string& svg) {
    double width = 0, height = 0;
    CHECK(std::sscanf(svg.c_str() + svg.find("viewBox"), "viewBox=\"0 0 %lf %lf", &width, &height) == 2);
    return std::pair(width, height);
  };
  const std::string all = stacked_svg({chart_svg(low), chart_svg(tall)});
  const auto [width, height] = size_of(all);
  CHECK(width == size_of(chart_svg(tall)).first);
  CHECK(height == size_of(chart_svg(low)).second + size_of(chart_svg(tall)).second);
  CHECK(all.find("<svg y=\"0\" ") < all.find("<svg y=\"440\" "));
  CHECK(all.find(">low</text>") < all.find("<svg y=\"440\" "));
  CHECK(all.find(">tall</text>") > all.find("<svg y=\"440\" "));
  CHECK_THROWS_AS(stacked_svg({"<p>"}), Error);
}

}  // namespace test_chart

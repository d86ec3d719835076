#include "tools/report/run_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/analysis/chart.h"

namespace trireme {
namespace {

std::string stamp_of(const std::vector<RunData>& runs) {
  return std::ranges::any_of(runs, is_synthetic) ? synthetic_stamp : "";
}

double ranks_of(const RunData& run) { return std::atof(told(run.environment, "ranks").c_str()); }

const char* colour_of(const std::string& what) {
  constexpr std::pair<const char*, const char*> colours[] = {{"compute: convolution", "#0072b2"},
                                                             {"compute: linear", "#56b4e9"},
                                                             {"compute: batch norm", "#3a5fcd"},
                                                             {"compute: optimizer", "#7b68c8"},
                                                             {"compute", "#8fb8de"},
                                                             {"messages", "#d55e00"},
                                                             {"waiting for the", "#e69f00"},
                                                             {"waiting for data", "#cc79a7"},
                                                             {"checkpoint", "#009e73"},
                                                             {"host", "#9aa3af"}};
  for (const auto& [begin, colour] : colours)
    if (what.starts_with(begin)) return colour;
  return "#666";
}

}  // namespace

std::string curve_of(const std::vector<RunData>& runs, const Curve& c) {
  Chart chart{.title = c.title, .x = "step", .y = c.y, .series = {}, .log_y = c.log, .watermark = stamp_of(runs)};
  for (const RunData& run : runs)
    for (const auto& [where, key] : c.keys)
      if (const Points* p = find(std::string_view(where) == "test" ? run.test : run.train, key)) {
        Points points = thinned(*p);
        if (c.log) std::erase_if(points, [](const auto& q) { return q.second <= 0; });
        const std::string kind =
            c.keys.size() > 1 ? std::string(where) + (std::string_view(key).ends_with("p95") ? ", 95 %" : "") : "";
        const std::string name = runs.size() > 1 ? run.name + (kind.empty() ? "" : " " + kind)
                                 : kind.empty()  ? run.name
                                                 : kind;
        chart.series.push_back({name, std::move(points), std::string_view(where) == "test" && c.keys.size() > 1});
      }
  return chart.series.empty() ? "" : card(chart_svg(chart));
}

std::string scaling_over_ranks(const std::vector<RunData>& runs) {
  std::map<std::string, std::vector<const RunData*>> groups;  // by model and data
  for (const RunData& run : runs)
    if (ranks_of(run) >= 1 && last_of(run, "images_per_s") > 0)
      groups[told(run.settings, "model") + ", " + data_of(run)].push_back(&run);
  std::string text;
  for (const auto& [name, group] : groups) {
    std::map<double, const RunData*> by_ranks;
    for (const RunData* run : group) by_ranks[ranks_of(*run)] = run;
    if (by_ranks.size() < 2) continue;
    const bool classified = last_of(*group[0], "test_top1") == last_of(*group[0], "test_top1");
    const std::string key = classified ? "test_top1" : "test_loss";
    Chart speed{.title = "Speed over ranks", .x = "ranks", .y = "images/s", .series = {}, .log_x = true, .log_y = true},
        quality{.title = classified ? "Accuracy at these ranks" : "Loss at these ranks",
                .x = "ranks",
                .y = classified ? "test accuracy, %" : "test loss",
                .series = {},
                .log_x = true,
                .from_zero = false};
    speed.watermark = quality.watermark = stamp_of(runs);
    ChartSeries measured{name, {}, false}, ideal{"as the first, times ranks", {}, true}, reached{name, {}, false};
    std::string without;
    const auto& [first, base] = *by_ranks.begin();
    for (const auto& [ranks, run] : by_ranks) {
      if (!std::isfinite(last_of(*run, key))) without += (without.empty() ? "" : ", ") + run->name;
      measured.points.emplace_back(ranks, last_of(*run, "images_per_s"));
      ideal.points.emplace_back(ranks, last_of(*base, "images_per_s") * ranks / first);
      reached.points.emplace_back(ranks, last_of(*run, key));
      measured.evidence.push_back(Evidence::real);
    }
    if (!without.empty()) {
      text +=
          card(fmt::format("<b>Scaling of {} is not shown</b><p class=\"note\">{} on the test set is not known of {}: "
                           "speed is shown only with it, at every number of ranks.</p>",
                           html_text(name), classified ? "accuracy" : "loss", html_text(without)),
               " warn");
      continue;
    }
    speed.series = {measured, ideal};
    quality.series = {reached};
    text += card(chart_svg(speed)) + card(chart_svg(quality));
  }
  return text;
}

std::string time_budgets(const std::vector<RunData>& runs) {
  const double left = 10, wide = 620, tall = 26;
  std::string text;
  for (const RunData& run : runs) {
    if (run.budget.empty()) continue;
    Svg svg(left + wide + 10, 84.0 + 20 * static_cast<double>(run.budget.size()));
    svg.text(left, 22, "Where the time of traced steps went: " + run.name, Svg::heading);
    double x = left, y = 92;
    for (const auto& [what, percent] : run.budget) {
      const double part = std::max(0.0, percent) / 100 * wide;
      const std::string fill = fmt::format("fill=\"{}\"", colour_of(what)),
                        label = fmt::format("{}: {:.1f} %", what, percent);
      svg.rect(x, 40, part, tall, fill + " stroke=\"#fff\"", label);
      svg.rect(left, y - 11, 12, 12, fill);
      svg.text(left + 20, y, label);
      x += part;
      y += 20;
    }
    if (is_synthetic(run)) svg.watermark(synthetic_stamp);
    text += card(svg.finish());
  }
  return text;
}

std::string step_timeline(const RunData& run) {
  if (run.step.empty()) return "";
  constexpr std::pair<const char*, const char*> lanes[] = {
      {"kernels", "#0072b2"}, {"waits for others", "#d55e00"}, {"data", "#cc79a7"}, {"checkpoint", "#009e73"}};
  const double left = 150, wide = 640, tall = 14;
  int ranks = 0;
  double end = 0;
  for (const RunData::Span& s : run.step) {
    ranks = std::max(ranks, s.rank + 1);
    end = std::max(end, s.end);
  }
  const int shown = std::min(ranks, 16);
  Svg svg(left + wide + 20, 60 + shown * (4 * tall + 12) + 30);
  svg.text(10, 22,
           fmt::format("A step of {}{}", run.name,
                       shown < ranks ? fmt::format(", the first {} of {} ranks", shown, ranks) : ""),
           Svg::heading);
  for (int r = 0; r < shown; ++r)
    for (std::size_t lane = 0; lane < std::size(lanes); ++lane) {
      const double y = 40 + r * (4 * tall + 12) + static_cast<double>(lane) * tall;
      svg.text(10, y + 11, lane == 0 ? fmt::format("rank {}, kernels", r) : lanes[lane].first,
               "font-size=\"11\" fill=\"#444\"");
      svg.rect(left, y, wide, tall - 2, "fill=\"#f0f2f5\"");
      for (const RunData::Span& s : run.step)
        if (s.rank == r && s.lane == lanes[lane].first && end > 0)
          svg.rect(left + s.begin / end * wide, y, std::max(0.3, (s.end - s.begin) / end * wide), tall - 2,
                   fmt::format("fill=\"{}\"", lanes[lane].second),
                   fmt::format("{}, {:.3g} ms", s.name, s.end - s.begin));
    }
  const double bottom = 40 + shown * (4 * tall + 12) + 12;
  for (const double t : ticks(0, end)) svg.text(left + t / end * wide, bottom + 8, number_text(t), Svg::middle);
  svg.text(left + wide, bottom + 24, "ms", "text-anchor=\"end\" fill=\"#444\"");
  if (is_synthetic(run)) svg.watermark(synthetic_stamp);
  return card(svg.finish());
}

}  // namespace trireme

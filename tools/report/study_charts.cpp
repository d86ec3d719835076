#include "tools/report/study_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "parallel/analysis/chart.h"
#include "tools/report/page.h"

namespace trireme {
namespace {

constexpr std::size_t most_bands = 6;  // per picture; more bands hide each other, and the table has all intervals

std::string stamp(const StudyData& study) { return study.is_synthetic() ? synthetic_stamp : ""; }

/// The interval for a chart; empty if it is unbounded or of a single run.
std::pair<double, double> drawn(const Median& m) {
  const bool known = std::isfinite(m.interval.low) && std::isfinite(m.interval.high) && m.interval.coverage > 0;
  return known ? std::pair(m.interval.low, m.interval.high) : std::pair(unknown, unknown);
}

void add_point(ChartSeries& s, double x, const Median& m) {
  if (!std::isfinite(m.value)) return;
  s.points.emplace_back(x, m.value);
  s.intervals.push_back(drawn(m));
  s.evidence.push_back(Evidence::real);
}

/// The baseline cell of a family's speed-ups, which is its point at one rank.
const CellData* base_of(const StudyData& study, bool time) {
  const auto at = time ? study.serial_by_time : study.serial_by_speed;
  return at ? &study.cells[*at] : nullptr;
}

int most_ranks(const StudyData& study, bool weak) {
  int most = 1;
  for (const Family& f : study.families)
    if (f.weak == weak)
      for (const std::size_t i : f.cells) most = std::max(most, study.cells[i].cell().ranks);
  return most;
}

double law(double share, double p, bool weak) { return weak ? p - share * (p - 1) : 1 / (share + (1 - share) / p); }

/// Adds the ideal line and up to three limits of families: all, or the one with the least serial share.
void add_limits(Chart& chart, const StudyData& study, bool weak, const std::map<std::string, std::string>& colours) {
  const int most = most_ranks(study, weak);
  ChartSeries ideal{.name = "ideal", .points = {}, .dashed = true, .colour = "#777"};
  for (int i = 0; i <= 40; ++i) ideal.points.emplace_back(std::pow(most, i / 40.0), std::pow(most, i / 40.0));
  chart.series.push_back(ideal);
  std::vector<const Family*> limits;
  for (const Family& f : study.families)
    if (f.weak == weak && std::isfinite(f.serial_share.value) && colours.contains(f.name)) limits.push_back(&f);
  std::ranges::stable_sort(limits, {}, [](const Family* f) { return f->serial_share.value; });
  if (limits.size() > 3) limits.resize(1);
  for (const Family* f : limits) {
    const Median& share = f->serial_share;
    ChartSeries s{.name = fmt::format("{}: {:.0f} % serial", weak ? "Gustafson" : "Amdahl", 100 * share.value),
                  .points = {},
                  .dashed = true,
                  .band = true,
                  .colour = colours.at(f->name)};
    const bool known = std::isfinite(share.interval.low) && std::isfinite(share.interval.high);
    for (int i = 0; i <= 40; ++i) {
      const double p = std::pow(most, i / 40.0);
      s.points.emplace_back(p, law(share.value, p, weak));
      const double a = law(share.interval.low, p, weak), b = law(share.interval.high, p, weak);
      s.intervals.emplace_back(known ? std::min(a, b) : unknown, known ? std::max(a, b) : unknown);
    }
    chart.series.push_back(std::move(s));
  }
}

/// A chart of the cells' value `of` over ranks. Each line starts at the serial run.
Chart over_ranks(const StudyData& study, bool weak, const CellData* base, Median CellData::*of) {
  Chart chart{.title = {}, .x = {}, .y = {}, .series = {}};
  chart.x = weak ? "ranks (weak scaling: batch per rank fixed)" : "ranks (strong scaling: global batch fixed)";
  chart.watermark = stamp(study);
  chart.dodge = true;
  chart.log_x = most_ranks(study, weak) > 16;
  std::set<double> ranks{1};
  for (const Family& f : study.families)
    for (const std::size_t i : f.cells)
      if (f.weak == weak) ranks.insert(study.cells[i].cell().ranks);
  chart.x_ticks.assign(ranks.begin(), ranks.end());
  std::size_t colour = 0;
  for (const Family& f : study.families) {
    if (f.weak != weak) continue;
    ChartSeries s{.name = f.name, .points = {}, .colour = palette(colour++)};
    const bool has_one = study.cells[f.cells.front()].cell().ranks == 1;
    if (base && !has_one && base->withheld.empty()) add_point(s, 1, base->*of);
    const std::size_t serial = s.points.size();
    for (const std::size_t i : f.cells)
      if (study.cells[i].withheld.empty()) add_point(s, study.cells[i].cell().ranks, study.cells[i].*of);
    if (s.points.size() > serial) chart.series.push_back(std::move(s));
  }
  return chart;
}

std::string speedup_picture(const StudyData& study, bool weak, bool time) {
  const CellData* base = base_of(study, time);
  if (!base) return "";
  Chart chart = over_ranks(study, weak, base, time ? &CellData::time_speedup : &CellData::step_speedup);
  if (chart.series.empty()) return "";
  const char* kind = weak ? "Weak scaling" : "Strong scaling";
  chart.title = time ? fmt::format("{}: time to {:g} %", kind, study.result.question.options.target)
                     : fmt::format("{}: whole steps, waiting for data included", kind);
  chart.y = fmt::format("speed-up over the best serial run ({})", name_of(base->cell()));
  std::map<std::string, std::string> colours;
  for (const ChartSeries& s : chart.series) colours[s.name] = s.colour;
  if (!time)
    add_limits(chart, study, weak, colours);
  else
    add_limits(chart, study, weak, {});
  return card(chart_svg(chart));
}

std::string accuracy_over_ranks(const StudyData& study, bool weak) {
  Chart chart = over_ranks(study, weak, base_of(study, false), &CellData::accuracy);
  if (chart.series.empty()) return "";
  if (study.has_target()) {
    const double most = most_ranks(study, weak), target = study.result.question.options.target;
    chart.series.push_back({.name = fmt::format("target, {:g} %", target),
                            .points = {{1, target}, {most, target}},
                            .dashed = true,
                            .colour = "#777"});
  }
  chart.title = "Accuracy at these ranks, after the last epoch";
  chart.y = "held-out accuracy, % (axis not from 0)";
  chart.from_zero = false;
  return card(chart_svg(chart));
}

/// Median over seeds of seconds and accuracy, at each evaluation that all finished runs have.
ChartSeries curve_of(const CellData& c, const std::string& colour) {
  ChartSeries s{.name = c.cell().is_serial() ? c.cell().name
                                             : fmt::format("{}, {} rank{}", name_of(c.cell()), c.cell().ranks,
                                                           c.cell().ranks == 1 ? "" : "s"),
                .points = {},
                .band = true,
                .colour = colour};
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const RunOutcome& run : c.result.runs)
    if (run.status == "finished") least = std::min(least, run.curve.size());
  if (!c.has_finished()) least = 0;
  for (std::size_t e = 0; e < least; ++e) {
    std::vector<double> seconds, accuracy;
    for (const RunOutcome& run : c.result.runs)
      if (run.status == "finished") {
        seconds.push_back(run.curve[e].first);
        accuracy.push_back(run.curve[e].second);
      }
    const Median m = median_with_interval(accuracy);
    s.points.emplace_back(median_of(seconds), m.value);
    s.intervals.push_back(drawn(m));
  }
  return s;
}

}  // namespace

std::string seconds_text(double v) {
  if (std::isnan(v)) return "–";
  if (std::isinf(v)) return "never";
  return v < 120    ? fmt::format("{:.3g} s", v)
         : v < 7200 ? fmt::format("{:.3g} min", v / 60)
                    : fmt::format("{:.3g} h", v / 3600);
}

std::string ranks_text(const StudyData& study, int ranks) {
  const int cores = study.facts ? study.facts->cores : 0;
  return cores > 0 && ranks > cores ? fmt::format("{} on {} cores", ranks, cores) : std::to_string(ranks);
}

std::string time_picture(const StudyData& study) {
  if (!study.has_target()) return "";
  std::vector<const CellData*> rows;
  std::size_t letters = 0;
  double end = 0;
  const auto name = [&](const CellData& c) {
    return c.cell().is_serial() ? c.cell().name
                                : fmt::format("{}, {} rank{}, {}", name_of(c.cell()), c.cell().ranks,
                                              c.cell().ranks == 1 ? "" : "s", c.cell().scaling);
  };
  for (const CellData& c : study.cells) {
    if (c.result.weak != (c.cell().scaling == "weak")) continue;  // the serial run is shown once
    rows.push_back(&c);
    letters = std::max(letters, name(c).size());
    for (const RunOutcome& run : c.result.runs)
      if (std::isfinite(run.to_target) && run.status == "finished") end = std::max(end, run.to_target);
  }
  if (rows.empty()) return "";
  const double left = 20 + 6.6 * static_cast<double>(letters), wide = 560, tall = 26, top = 62;
  const double bottom = top + tall * static_cast<double>(rows.size());
  Svg svg(left + wide + 250, bottom + 50);
  svg.text(10, 24,
           fmt::format("Time to {:g} % held-out accuracy, from the start of the process: each run, median, interval",
                       study.result.question.options.target),
           Svg::heading);
  const auto x = [&](double seconds) { return left + seconds / (end > 0 ? end * 1.04 : 1) * wide; };
  for (const double t : ticks(0, end > 0 ? end * 1.04 : 1)) {
    svg.lines({{x(t), top - 8}, {x(t), bottom}}, "stroke=\"#ddd\"");
    svg.text(x(t), bottom + 18, number_text(t), Svg::middle);
  }
  svg.text(left + wide / 2, bottom + 40, "seconds of wall time", "text-anchor=\"middle\"");
  svg.text(left + wide + 14, top - 14, "reached it", "fill=\"#444\"");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CellData& c = *rows[i];
    const double y = top + tall * (static_cast<double>(i) + 0.5);
    svg.text(left - 10, y + 4, name(c), "text-anchor=\"end\"");
    const double low = c.time.interval.low, high = c.time.interval.high;
    if (std::isfinite(low) && c.result.finished > 1)
      svg.lines({{x(low), y}, {std::isfinite(high) ? x(high) : left + wide, y}},
                fmt::format("stroke=\"#0072b2\" stroke-width=\"5\" stroke-opacity=\"0.3\"{}",
                            std::isfinite(high) ? "" : " stroke-dasharray=\"8 4\""));
    for (const RunOutcome& run : c.result.runs)
      if (std::isfinite(run.to_target) && run.status == "finished")
        svg.circle(x(run.to_target), y, 3, "fill=\"#fff\" stroke=\"#0072b2\"",
                   fmt::format("seed {}: {}", run.seed, seconds_text(run.to_target)));
    if (std::isfinite(c.time.value))
      svg.rect(x(c.time.value) - 2, y - 9, 4, 18, "fill=\"#d55e00\"", "median " + seconds_text(c.time.value));
    const int tried = c.result.finished + c.result.failed;
    svg.text(
        left + wide + 14, y + 4,
        fmt::format("{} of {}{}; median {}", c.result.reached, tried,
                    c.result.failed > 0 ? fmt::format(", {} failed", c.result.failed) : "", seconds_text(c.time.value)),
        c.result.reached < tried ? "fill=\"#a33b00\"" : "fill=\"#444\"");
  }
  svg.watermark(stamp(study));
  return card(svg.finish(), " wide");
}

std::string scaling_pictures(const StudyData& study, bool weak) {
  const std::string time = study.has_target() ? speedup_picture(study, weak, true) : "";
  const std::string step = speedup_picture(study, weak, false);
  const std::string accuracy = accuracy_over_ranks(study, weak);
  return accuracy.empty() ? "" : cards(time + step + accuracy);
}

std::string accuracy_pictures(const StudyData& study) {
  std::string text;
  for (const bool weak : {false, true}) {
    Chart chart{
        .title = weak ? "Held-out accuracy over time, weak scaling" : "Held-out accuracy over time, strong scaling",
        .x = "seconds of wall time since the process began",
        .y = "held-out accuracy, % (axis not from 0)",
        .series = {},
        .from_zero = false,
        .watermark = stamp(study)};
    double begin = never, end = 0;
    bool others = false;
    for (const CellData& c : study.cells) {
      if (c.result.weak != weak) continue;
      ChartSeries s = curve_of(c, palette(chart.series.size()));
      if (s.points.empty()) continue;
      begin = std::min(begin, s.points.front().first);
      end = std::max(end, s.points.back().first);
      others |= !c.cell().is_serial();
      chart.series.push_back(std::move(s));
    }
    if (chart.series.empty() || (!others && weak)) continue;
    if (chart.series.size() > most_bands)
      for (ChartSeries& s : chart.series) {
        s.intervals.clear();
        s.band = false;
      }
    const double target = study.result.question.options.target;
    if (target > 0)
      chart.series.push_back({.name = fmt::format("target, {:g} %", target),
                              .points = {{begin, target}, {end, target}},
                              .dashed = true,
                              .colour = "#777"});
    text += card(chart_svg(chart));
  }
  return text;
}

std::string batch_picture(const StudyData& study) {
  std::map<std::int64_t, std::vector<double>> by_batch;
  for (const CellData& c : study.cells)
    if (std::isfinite(c.epochs.value) && c.result.weak == (c.cell().scaling == "weak"))
      by_batch[c.batch].push_back(c.epochs.value);
  if (by_batch.size() < 2) return "";
  ChartSeries s{.name = "median over cells of their medians", .points = {}};
  for (const auto& [batch, epochs] : by_batch) {
    s.points.emplace_back(batch, median_of(epochs));
    s.intervals.emplace_back(std::ranges::min(epochs), std::ranges::max(epochs));
    s.evidence.push_back(Evidence::real);
  }
  return card(
      chart_svg({.title = fmt::format("Epochs to {:g} % at each batch; bars from the least to the most of cells",
                                      study.result.question.options.target),
                 .x = "global batch, samples",
                 .y = "epochs",
                 .series = {s},
                 .log_x = true,
                 .watermark = stamp(study)}));
}

}  // namespace trireme

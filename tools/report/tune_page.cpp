#include "tools/report/tune_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/core/suggest.h"
#include "parallel/analysis/chart.h"
#include "tools/report/page.h"
#include "tools/study/importance.h"

namespace trireme {
namespace {

constexpr std::size_t most_curves = 12, most_rows = 200;

std::string stamp(const TuneResult& r) { return r.is_synthetic() ? synthetic_stamp : ""; }

const TrialRow& nth(const TuneResult& r, std::size_t i) { return r.trials[static_cast<std::size_t>(r.order[i])]; }

/// Trials with a value, best first.
std::vector<const TrialRow*> scored(const TuneResult& r) {
  std::vector<const TrialRow*> found;
  for (std::size_t i = 0; i < r.order.size(); ++i)
    if (!nth(r, i).scores.empty()) found.push_back(&nth(r, i));
  return found;
}

std::string facts(const TuneResult& r) {
  const TuneOptions& o = r.question.options;
  const TrialRow* best = r.best();
  std::vector<std::pair<std::string, std::string>> all{
      {best ? number(r.value(*best)) : "–", "best " + o.key() + (best ? fmt::format(", trial {}", best->id) : "")},
      {fmt::format("{}", r.trials.size()),
       fmt::format("trials of {}", std::max<std::int64_t>(o.trials, std::ssize(r.trials)))},
      {fmt::format("{}", r.reports.size()), fmt::format("epochs in all; a whole trial has {}", o.epochs)},
      {number(r.totals.device_seconds, " s"), "device-seconds of all processes, failed ones included"},
      {fmt::format("{} / {} / {}", r.totals.started, r.totals.failed, r.totals.interrupted),
       "processes started / failed / interrupted"},
      {o.algorithm, fmt::format("algorithm, seed {}", o.seed)}};
  std::string text;
  for (const auto& [value, name] : all)
    text += fmt::format("<div class=\"fact\"><b>{}</b><span>{}</span></div>\n", html_text(value), html_text(name));
  return fmt::format("<div class=\"facts\">\n{}</div>\n", text);
}

/// From blue (worst) via grey to orange (best).
std::string shade(double share) {
  constexpr std::array<std::array<double, 3>, 3> ends{{{0, 114, 178}, {190, 190, 190}, {213, 94, 0}}};
  const double at = std::clamp(share, 0.0, 1.0) * 2;
  const auto from = std::min<std::size_t>(1, static_cast<std::size_t>(at));
  const auto mixed = [&](std::size_t c) {
    return static_cast<int>(
        std::lround(ends[from][c] + (at - static_cast<double>(from)) * (ends[from + 1][c] - ends[from][c])));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
}

/// A chart with an axis per parameter and one for the objective, and a line per trial, coloured by rank.
std::string parallel_coordinates(const TuneResult& r) {
  const std::vector<const TrialRow*> trials = scored(r);
  const Space& space = r.question.space;
  if (trials.size() < 2) return "";
  double low = r.value(*trials[0]), high = low;
  for (const TrialRow* t : trials) {
    low = std::min(low, r.value(*t));
    high = std::max(high, r.value(*t));
  }
  if (low == high) high = low + 1;
  const double top = 70, bottom = 400, gap = std::max(110.0, 900.0 / static_cast<double>(space.size() + 1));
  const double left = 80, width = left * 2 + gap * static_cast<double>(space.size());
  const auto x_of = [&](std::size_t i) { return left + gap * static_cast<double>(i); };
  const auto y_of = [&](double share) { return bottom - share * (bottom - top); };
  Svg svg(width, bottom + 50);
  svg.text(left - 40, 24, "Trials: their settings and what came of them", Svg::heading);
  for (std::size_t i = trials.size(); i-- > 0;) {  // the best trials are drawn last, on top
    const TrialRow& t = *trials[i];
    const double share = 1 - static_cast<double>(i) / static_cast<double>(trials.size() - 1);
    std::vector<std::pair<double, double>> line;
    for (std::size_t p = 0; p < space.size(); ++p)  // parameters that do not apply are below the axis
      line.emplace_back(x_of(p), std::isnan(t.point[p]) ? bottom + 14 : y_of(space[p].place(t.point[p])));
    line.emplace_back(x_of(space.size()), y_of((r.value(t) - low) / (high - low)));
    svg.lines(line, fmt::format("stroke=\"{}\" stroke-width=\"{}\" stroke-opacity=\"{:.2f}\"", shade(share),
                                i == 0 ? 3 : 1.3, i == 0 ? 1.0 : 0.65));
  }
  for (std::size_t i = 0; i <= space.size(); ++i) {
    const bool last = i == space.size();
    svg.lines({{x_of(i), top}, {x_of(i), bottom}}, "stroke=\"#444\"");
    const std::string name = last ? r.question.options.key() : space[i].name;
    svg.text(x_of(i), top - 26, shortened(name), Svg::middle);
    const bool choice = !last && space[i].kind == Parameter::Kind::choice;
    if (choice && space[i].high <= 12) {
      for (double v = 0; v <= space[i].high; ++v)
        svg.text(x_of(i) + 5, y_of(space[i].place(v)) + 4, shortened(space[i].text(v)), "font-size=\"11\"");
      continue;
    }
    const auto end = [&](double v) { return last ? number_text(v) : choice ? space[i].text(v) : number_text(v); };
    svg.text(x_of(i), top - 8, end(last ? high : space[i].high), Svg::middle);
    svg.text(x_of(i), bottom + 32, end(last ? low : space[i].low), Svg::middle);
  }
  svg.watermark(stamp(r));
  return card(svg.finish() +
                  "<p class=\"note\">Orange: the best, by rank; blue: the worst. Logarithmic ranges have "
                  "logarithmic axes; a setting that does not apply lies below its axis.</p>",
              " wide");
}

std::string curves(const TuneResult& r) {
  Chart chart{.title = "Learning curves of the best trials", .x = "epoch", .y = r.question.options.key(), .series = {}};
  chart.from_zero = false;
  chart.watermark = stamp(r);
  for (const TrialRow* t : scored(r)) {
    if (chart.series.size() == most_curves) break;
    ChartSeries s{.name = fmt::format("trial {}", t->id), .points = {}};
    for (const auto& [epoch, score] : t->scores)
      s.points.emplace_back(static_cast<double>(epoch), r.question.options.sign() * score);
    chart.series.push_back(std::move(s));
  }
  return chart.series.empty() ? "" : card(chart_svg(chart));
}

/// The best value so far over the epochs of all trials together.
std::string cost(const TuneResult& r) {
  ChartSeries s{.name = "best so far", .points = {}};
  double best = TrialState::worst, epochs = 0;
  for (const TrialReport& report : r.reports) {
    best = std::max(best, r.question.options.sign() * report.value);
    s.points.emplace_back(++epochs, r.question.options.sign() * best);
  }
  if (s.points.empty()) return "";
  s.points = thinned(s.points);
  Chart chart{.title = "What the best has cost",
              .x = "epochs of all trials",
              .y = r.question.options.key(),
              .series = {std::move(s)}};
  chart.from_zero = false;
  chart.watermark = stamp(r);
  return card(chart_svg(chart));
}

/// Importance by the values at the epoch that most trials have reached.
std::string importance_of(const TuneResult& r) {
  std::map<std::int64_t, std::size_t> have;
  for (const TrialRow& t : r.trials)
    for (const auto& [epoch, score] : t.scores) ++have[epoch];
  std::int64_t epoch = 0;
  for (const auto& [at, count] : have)
    if (epoch == 0 || count >= have[epoch]) epoch = at;
  std::vector<std::vector<double>> rows;
  std::vector<double> scores;
  for (const TrialRow& t : r.trials)
    if (const auto at = std::ranges::find(t.scores, epoch, &std::pair<std::int64_t, double>::first);
        at != t.scores.end()) {
      rows.push_back(r.question.space.places(t.point));
      scores.push_back(at->second);
    }
  const std::vector<double> shares = importance(rows, scores);
  if (shares.empty()) return "";
  std::vector<std::size_t> order(shares.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return shares[i]; });
  Svg svg(700, 60 + 26 * static_cast<double>(order.size()));
  svg.text(20, 24, "Importance of settings", Svg::heading);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const double y = 44 + 26 * static_cast<double>(k), share = shares[order[k]];
    svg.text(200, y + 14, shortened(r.question.space[order[k]].name), "text-anchor=\"end\"");
    svg.rect(210, y, std::max(1.0, 400 * share), 18, "fill=\"#0072b2\"", fmt::format("{:.1f} %", 100 * share));
    svg.text(218 + 400 * share, y + 14, fmt::format("{:.0f} %", 100 * share), "");
  }
  svg.watermark(stamp(r));
  return card(svg.finish() +
              fmt::format("<p class=\"note\">Share of the variance over the whole space that a setting explains by "
                          "itself, in a random forest fitted to {} trials at epoch {} (functional ANOVA: Hutter, Hoos "
                          "and Leyton-Brown, 2014); the rest is due to several together. A setting that was not "
                          "drawn evenly (tpe, pbt) is judged where it was drawn.</p>",
                          rows.size(), epoch));
}

std::string table(const TuneResult& r) {
  std::vector<std::vector<std::string>> rows{
      {"trial", r.question.options.key(), "epochs", "seconds", "status", "settings"}};
  for (std::size_t i = 0; i < std::min(most_rows, r.order.size()); ++i) {
    const TrialRow& t = nth(r, i);
    std::string status = t.status == TrialStatus::paused ? "not promoted" : to_string(t.status);
    if (!t.why.empty()) status += ": " + t.why;
    rows.push_back({fmt::format("{}{}", t.id, t.parent > 0 ? fmt::format(" (from {})", t.parent) : std::string()),
                    t.scores.empty() ? "–" : number(r.value(t)),
                    fmt::format("{}", t.scores.empty() ? t.from_epoch : t.scores.back().first), number(t.seconds),
                    html_text(status), "<code>" + html_text(r.question.space.text(t.point)) + "</code>"});
  }
  std::string more;
  if (r.order.size() > most_rows) more = fmt::format("<p class=\"note\">and {} more</p>", r.order.size() - most_rows);
  return card(html_table(rows) + more);
}

std::string warnings(const TuneResult& r) {
  std::string text;
  for (const std::string& fault : r.faults) text += html_text("ledger: " + fault) + "\n";
  if (!r.error.empty()) text += html_text(r.error) + "\n";
  return text.empty() ? "" : card(fmt::format("<pre>{}</pre>", text), " warn");
}

}  // namespace

std::string tune_page(const TuneResult& r) {
  const std::string drawn = curves(r) + cost(r) + importance_of(r);
  return html_page(
      "Search of " + told(r.settings, "model"),
      fmt::format(
          "<p class=\"sub\">{}, data {}; ledger {}</p>\n{}{}<h2>Trials</h2>\n{}{}<p class=\"note\">The best value was "
          "chosen by itself: the weights of that trial will do a little worse on data that chose nothing.</p>"
          "<h2>Table</h2>\n{}<h2>The question</h2>\n{}",
          html_text(r.directory), html_text(told(r.settings, "data.name")), html_text(r.ledger_head.substr(0, 12)),
          facts(r), warnings(r), parallel_coordinates(r), cards(drawn), table(r),
          card(fmt::format("<pre>{}</pre>", html_text(to_toml(r.question))))));
}

}  // namespace trireme

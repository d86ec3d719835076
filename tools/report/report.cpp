#include "tools/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "parallel/analysis/chart.h"
#include "tools/training/from_options.h"
#include "tools/training/toml_file.h"
#include "tools/training/trainer_options.h"

namespace trireme {
namespace {

constexpr std::size_t most_points = 400;  // of a line

constexpr const char* style = R"(
:root{color-scheme:light}
body{font:15px/1.5 system-ui,sans-serif;color:#1c2330;background:#f5f6f8;margin:0}
main{max-width:1500px;margin:0 auto;padding:20px}
h1{font-size:22px;margin:4px 0 2px} h2{font-size:17px;margin:30px 0 10px}
.sub{color:#5b6575;margin:0 0 14px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,620px),1fr));gap:14px}
.card{background:#fff;border:1px solid #e0e4ea;border-radius:8px;padding:10px 12px;min-width:0;overflow-x:auto}
.card svg{width:100%;max-width:860px;min-width:540px;height:auto;display:block}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}
.fact{background:#fff;border:1px solid #e0e4ea;border-radius:8px;padding:8px 12px}
.fact b{display:block;font-size:18px;font-weight:600;overflow-wrap:anywhere} .fact span{color:#5b6575;font-size:13px}
table{border-collapse:collapse;font-size:14px;width:100%} th,td{text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid #edf0f4;vertical-align:top}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap} th{color:#5b6575;font-weight:600}
.differs td{background:#fff7e0} code,pre{font:13px ui-monospace,monospace} pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}
.warn{border-left:4px solid #d55e00} details summary{cursor:pointer;color:#5b6575}
)";

/// Of as many points that a line shows, each the mean of its neighbours.
Points thinned(const Points& points) {
  if (points.size() <= most_points) return points;
  Points few;
  for (std::size_t i = 0; i < most_points; ++i) {
    const std::size_t begin = i * points.size() / most_points, end = (i + 1) * points.size() / most_points;
    double x = 0, y = 0;
    for (std::size_t j = begin; j < end; ++j) x += points[j].first, y += points[j].second;
    few.emplace_back(x / static_cast<double>(end - begin), y / static_cast<double>(end - begin));
  }
  return few;
}

const Points* find(const std::map<std::string, Points>& all, const std::string& key) {
  const auto at = all.find(key);
  return at == all.end() || at->second.empty() ? nullptr : &at->second;
}

std::string card(const std::string& inner, const char* more = "") {
  return fmt::format("<div class=\"card{}\">{}</div>\n", more, inner);
}

struct Curve {
  std::string title, y;
  bool log = false;
  std::vector<std::pair<const char*, std::string>> keys;  ///< "train" or "test", and the key there
};

std::string curve(const std::vector<RunData>& runs, const Curve& c) {
  Chart chart{.title = c.title, .x = "step", .y = c.y, .series = {}, .log_y = c.log};
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

double last_of(const RunData& run, const std::string& key) {
  const Points* p = find(run.test, key);
  return p ? p->back().second : NAN;
}
double best_of(const RunData& run, const std::string& key) {
  const Points* p = find(run.test, key);
  if (!p) return NAN;
  return std::ranges::max_element(*p, {}, [](const auto& q) { return q.second; })->second;
}
std::string number(double v, const char* unit = "") {
  if (!std::isfinite(v)) return "–";
  return std::abs(v) < 10000 ? fmt::format("{:.{}g}{}", v, std::abs(v) < 10 ? 3 : 4, unit)
                             : fmt::format("{:.0f}{}", v, unit);
}
std::string told(const std::map<std::string, std::string>& all, const std::string& key) {
  const auto at = all.find(key);
  std::string text = at == all.end() ? "–" : at->second;
  if (text.size() > 1 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

/// What it was trained on: in run directories of before it was noted, the setting.
std::string data_of(const RunData& r) {
  return r.environment.contains("data") ? told(r.environment, "data") : told(r.settings, "data.name");
}
bool is_classified(const RunData& r) { return find(r.test, "test_top1") != nullptr; }

/// What is said of each run at first.
const std::vector<std::pair<const char*, std::function<std::string(const RunData&)>>> facts{
    {"status", [](const RunData& r) { return r.status; }},
    {"model", [](const RunData& r) { return told(r.settings, "model"); }},
    {"data", data_of},
    {"best test accuracy",
     [](const RunData& r) { return is_classified(r) ? number(best_of(r, "test_top1"), " %") : std::string("–"); }},
    {"last test loss", [](const RunData& r) { return number(last_of(r, "test_loss")); }},
    {"steps",
     [](const RunData& r) {
       const Points* p = find(r.test, "test_loss");
       if (!p) p = find(r.train, "loss");
       return p ? fmt::format("{:.0f}", p->back().first) : std::string("–");
     }},
    {"images/s", [](const RunData& r) { return number(last_of(r, "images_per_s")); }},
    {"step, median ms", [](const RunData& r) { return number(last_of(r, "step_ms_p50")); }},
    {"waiting for data", [](const RunData& r) { return number(100 * last_of(r, "wait_share"), " %"); }},
    {"ranks", [](const RunData& r) { return told(r.environment, "ranks"); }},
    {"strategy", [](const RunData& r) { return told(r.environment, "strategy"); }},
    {"memory of rank 0", [](const RunData& r) { return number(last_of(r, "memory_mb"), " MB"); }}};

std::string summary(const std::vector<RunData>& runs) {
  std::string text;
  if (runs.size() == 1) {
    for (const auto& [name, of] : facts)
      text += fmt::format("<div class=\"fact\"><b>{}</b><span>{}</span></div>\n", html_text(of(runs[0])), name);
    return fmt::format("<div class=\"facts\">\n{}</div>\n", text);
  }
  for (const auto& [name, of] : facts) {
    text += fmt::format("<tr><th>{}</th>", name);
    for (const RunData& run : runs) text += fmt::format("<td class=\"n\">{}</td>", html_text(of(run)));
    text += "</tr>\n";
  }
  std::string head = "<tr><th></th>";
  for (const RunData& run : runs) head += fmt::format("<th>{}</th>", html_text(run.name));
  return card(fmt::format("<table>{}</tr>\n{}</table>", head, text));
}

/// Speed over ranks, where runs of one model have several numbers of them.
std::string scaling(const std::vector<RunData>& runs) {
  std::map<std::string, std::map<double, double>> speed;  // by model and data
  for (const RunData& run : runs) {
    const double ranks = std::atof(told(run.environment, "ranks").c_str()), images = last_of(run, "images_per_s");
    if (ranks >= 1 && images > 0) speed[told(run.settings, "model") + ", " + data_of(run)][ranks] = images;
  }
  std::string text;
  for (const auto& [name, points] : speed) {
    if (points.size() < 2) continue;
    const auto [first, base] = *points.begin();
    ChartSeries measured{name, {points.begin(), points.end()}, false}, ideal{"as the first, times ranks", {}, true};
    for (const auto& [ranks, images] : points) ideal.points.emplace_back(ranks, base * ranks / first);
    text += card(chart_svg({.title = "Scaling",
                            .x = "ranks",
                            .y = "images/s",
                            .series = {measured, ideal},
                            .log_x = true,
                            .log_y = true}));
  }
  return text;
}

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

/// Where the time of the traced steps went: a bar per run.
std::string budget(const std::vector<RunData>& runs) {
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
      x += part, y += 20;
    }
    text += card(svg.finish());
  }
  return text;
}

/// One step of the trace: a line per rank and lane.
std::string timeline(const RunData& run) {
  if (run.step.empty()) return "";
  constexpr std::pair<const char*, const char*> lanes[] = {
      {"kernels", "#0072b2"}, {"waits for others", "#d55e00"}, {"data", "#cc79a7"}, {"checkpoint", "#009e73"}};
  const double left = 150, wide = 640, tall = 14;
  int ranks = 0;
  double end = 0;
  for (const RunData::Span& s : run.step) ranks = std::max(ranks, s.rank + 1), end = std::max(end, s.end);
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
  return card(svg.finish());
}

/// What differs from the defaults, or between runs.
std::string settings(const std::vector<RunData>& runs) {
  const std::map<std::string, std::string> usual = read_own_toml(to_toml(TrainerOptions{}));
  std::set<std::string> names;
  for (const RunData& run : runs)
    for (const auto& [name, value] : run.settings)
      if (const auto at = usual.find(name); at == usual.end() || at->second != value) names.insert(name);
  std::string text, head = "<tr><th>setting</th>";
  for (const RunData& run : runs) head += fmt::format("<th>{}</th>", html_text(run.name));
  for (const std::string& name : names) {
    bool differs = false;
    std::string cells;
    for (const RunData& run : runs) {
      differs |= told(run.settings, name) != told(runs[0].settings, name);
      cells += fmt::format("<td><code>{}</code></td>", html_text(told(run.settings, name)));
    }
    text += fmt::format("<tr{}><td><code>{}</code></td>{}</tr>\n", differs ? " class=\"differs\"" : "", html_text(name),
                        cells);
  }
  return card(fmt::format("<table>{}<th>default</th></tr>\n", head).replace(0, 0, "") + [&] {
    std::string rows;
    std::size_t at = 0;
    for (const std::string& name : names) {  // each row with its default
      const std::size_t end = text.find("</tr>", at);
      const auto known = usual.find(name);
      rows += text.substr(at, end - at) +
              fmt::format("<td><code>{}</code></td></tr>", html_text(known == usual.end() ? "" : told(usual, name)));
      at = end + 5;
    }
    return rows + "</table>";
  }());
}

std::string environment(const std::vector<RunData>& runs) {
  std::set<std::string> names;
  for (const RunData& run : runs)
    for (const auto& [name, value] : run.environment) names.insert(name);
  if (names.empty()) return "";
  std::string text = "<table><tr><th></th>";
  for (const RunData& run : runs) text += fmt::format("<th>{}</th>", html_text(run.name));
  text += "</tr>\n";
  for (const std::string& name : names) {
    text += fmt::format("<tr><th>{}</th>", html_text(name));
    for (const RunData& run : runs) text += fmt::format("<td>{}</td>", html_text(told(run.environment, name)));
    text += "</tr>\n";
  }
  return "<h2>Environment</h2>\n" + card(text + "</table>");
}

std::string warnings(const std::vector<RunData>& runs) {
  std::string text;
  for (const RunData& run : runs) {
    if (run.warnings.empty()) continue;
    std::string lines;
    for (const std::string& line : run.warnings) lines += html_text(line) + "\n";
    text += card(fmt::format("<b>{}</b><pre>{}</pre>", html_text(run.name), lines), " warn");
  }
  return text.empty() ? "" : "<h2>What happened</h2>\n" + text;
}

}  // namespace

std::string report_page(const std::vector<RunData>& given) {
  std::vector<RunData> runs = given;
  std::map<std::string, int> same;  // runs of one name get their paths
  for (const RunData& run : runs) ++same[run.name];
  for (RunData& run : runs)
    if (same[run.name] > 1) run.name = run.path;
  std::vector<Curve> curves{{"Loss", "loss", false, {{"train", "loss"}, {"test", "test_loss"}}},
                            {"Test accuracy", "%", false, {{"test", "test_top1"}}},
                            {"Speed", "images/s", false, {{"train", "images_per_s"}}},
                            {"Time of a step", "ms", false, {{"train", "step_ms_p50"}, {"train", "step_ms_p95"}}},
                            {"Learning rate", "learning rate", false, {{"train", "lr"}}},
                            {"Gradient norm", "norm before clipping", true, {{"train", "grad_norm"}}},
                            {"Memory of rank 0", "MB", false, {{"train", "memory_mb"}}},
                            {"Waiting for data", "share of the time", false, {{"train", "wait_share"}}}};
  std::set<std::string> metrics;  // that the program gave the Trainer
  for (const RunData& run : runs)
    for (const auto& [key, points] : run.test)
      if (key.starts_with("test_")) metrics.insert(key);
  for (const char* known : {"test_loss", "test_top1", "test_top5", "test_correct", "test_samples"})
    metrics.erase(known);
  for (const std::string& key : metrics)
    curves.push_back({"Test " + key.substr(std::size("test_") - 1), "", false, {{"test", key}}});
  std::string drawn, times;
  for (const Curve& c : curves) drawn += curve(runs, c);
  times = scaling(runs) + budget(runs);
  for (const RunData& run : runs) times += timeline(run);
  const std::string title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  std::string paths;
  for (const RunData& run : runs) paths += (paths.empty() ? "" : ", ") + run.path;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{0} – "
      "trireme</title>\n<style>{1}</style></head>\n<body><main>\n"
      "<h1>{0}</h1>\n<p class=\"sub\">{2}</p>\n{3}{4}<h2>Curves</h2>\n<div class=\"grid\">\n{5}</div>\n{6}"
      "<h2>Settings that are not the defaults</h2>\n{7}{8}</main></body></html>\n",
      html_text(title), style, html_text(paths), summary(runs), warnings(runs), drawn,
      times.empty() ? "" : "<h2>Time</h2>\n<div class=\"grid\">\n" + times + "</div>\n", settings(runs),
      environment(runs));
}

}  // namespace trireme

#include "tools/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "parallel/analysis/chart.h"
#include "tools/report/run_pictures.h"
#include "tools/training/from_options.h"
#include "tools/training/toml_file.h"
#include "tools/training/trainer_options.h"

namespace trireme {
namespace {

double best_run_of(const RunData& run, const std::string& key) {
  const Points* p = find(run.test, key);
  if (!p) return NAN;
  return std::ranges::max_element(*p, {}, [](const auto& q) { return q.second; })->second;
}
bool is_classified(const RunData& r) { return find(r.test, "test_top1") != nullptr; }

/// Facts at the top of the page.
const std::vector<std::pair<const char*, std::function<std::string(const RunData&)>>> facts{
    {"status", [](const RunData& r) { return r.status; }},
    {"model", [](const RunData& r) { return told(r.settings, "model"); }},
    {"data", data_of},
    {"best test accuracy",
     [](const RunData& r) { return is_classified(r) ? number(best_run_of(r, "test_top1"), " %") : std::string("–"); }},
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

/// A table of settings that differ from the defaults or between runs.
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
  std::map<std::string, int> same;  // runs with equal names are shown with their paths
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
  std::set<std::string> metrics;  // custom metrics of the program
  for (const RunData& run : runs)
    for (const auto& [key, points] : run.test)
      if (key.starts_with("test_")) metrics.insert(key);
  for (const char* known : {"test_loss", "test_top1", "test_top5", "test_correct", "test_samples"})
    metrics.erase(known);
  for (const std::string& key : metrics)
    curves.push_back({"Test " + key.substr(std::size("test_") - 1), "", false, {{"test", key}}});
  std::string drawn, times;
  for (const Curve& c : curves) drawn += curve_of(runs, c);
  times = scaling_over_ranks(runs) + time_budgets(runs);
  for (const RunData& run : runs) times += step_timeline(run);
  const std::string title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  std::string paths;
  for (const RunData& run : runs) paths += (paths.empty() ? "" : ", ") + run.path;
  return html_page(
      title,
      fmt::format("<p class=\"sub\">{}</p>\n{}{}<h2>Curves</h2>\n{}{}<h2>Settings that are not the defaults</h2>\n{}{}",
                  html_text(paths), summary(runs), warnings(runs), cards(drawn),
                  times.empty() ? "" : "<h2>Time</h2>\n" + cards(times), settings(runs), environment(runs)));
}

}  // namespace trireme

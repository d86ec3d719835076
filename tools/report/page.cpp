#include "tools/report/page.h"

#include <fmt/format.h>

#include <cmath>

#include "parallel/analysis/chart.h"

namespace trireme {
namespace {

constexpr std::size_t most_points = 400;  // of one curve

constexpr const char* style = R"(
:root{color-scheme:light}
body{font:15px/1.5 system-ui,sans-serif;color:#1c2330;background:#f5f6f8;margin:0}
main{max-width:1500px;margin:0 auto;padding:20px}
h1{font-size:22px;margin:4px 0 2px} h2{font-size:17px;margin:30px 0 10px}
.sub{color:#5b6575;margin:0 0 14px;overflow-wrap:anywhere}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,620px),1fr));gap:14px}
.card{background:#fff;border:1px solid #e0e4ea;border-radius:8px;padding:10px 12px;min-width:0;overflow-x:auto}
.card+.card,.grid+.card,.card+.grid{margin-top:14px} .grid .card{margin-top:0}
.card svg{width:100%;max-width:860px;min-width:540px;height:auto;display:block} .card.wide svg{max-width:1200px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}
.fact{background:#fff;border:1px solid #e0e4ea;border-radius:8px;padding:8px 12px}
.fact b{display:block;font-size:18px;font-weight:600;overflow-wrap:anywhere} .fact span{color:#5b6575;font-size:13px}
table{border-collapse:collapse;font-size:14px;width:100%} th,td{text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid #edf0f4;vertical-align:top}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap} th{color:#5b6575;font-weight:600}
@media(max-width:900px){table.many{min-width:1050px} .card>.note{max-width:calc(100vw - 70px)}}
.differs td{background:#fff7e0} code,pre{font:13px ui-monospace,monospace} pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}
.warn{border-left:4px solid #d55e00} details summary{cursor:pointer;color:#5b6575}
.note{color:#5b6575;font-size:13px;margin:6px 0} .bad{color:#a33b00} .ok{color:#00694e} .stamp{color:#c00;font-weight:600}
)";

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"/><title>{0} – trireme</title>\n<style>{1}</style></head>\n"
      "<body><main>\n<h1>{0}</h1>\n{2}</main></body></html>\n",
      html_text(title), style, body);
}

std::string card(const std::string& inner, const char* more) {
  return fmt::format("<div class=\"card{}\">{}</div>\n", more, inner);
}
std::string cards(const std::string& several) {
  return several.empty() ? "" : "<div class=\"grid\">\n" + several + "</div>\n";
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string text = rows[0].size() > 6 ? "<table class=\"many\">" : "<table>";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    text += "<tr>";
    for (const std::string& cell : rows[r])
      text += r == 0 ? fmt::format("<th>{}</th>", cell) : fmt::format("<td>{}</td>", cell);
    text += "</tr>\n";
  }
  return text + "</table>";
}

std::string number(double v, const char* unit) {
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
std::string data_of(const RunData& r) {
  return r.environment.contains("data") ? told(r.environment, "data") : told(r.settings, "data.name");
}
bool is_synthetic(const RunData& r) { return told(r.settings, "data.name") == "synthetic"; }

const Points* find(const std::map<std::string, Points>& all, const std::string& key) {
  const auto at = all.find(key);
  return at == all.end() || at->second.empty() ? nullptr : &at->second;
}
double last_of(const RunData& run, const std::string& key) {
  const Points* p = find(run.test, key);
  return p ? p->back().second : NAN;
}

Points thinned(const Points& points) {
  if (points.size() <= most_points) return points;
  Points few;
  for (std::size_t i = 0; i < most_points; ++i) {
    const std::size_t begin = i * points.size() / most_points, end = (i + 1) * points.size() / most_points;
    double x = 0, y = 0;
    for (std::size_t j = begin; j < end; ++j) {
      x += points[j].first;
      y += points[j].second;
    }
    few.emplace_back(x / static_cast<double>(end - begin), y / static_cast<double>(end - begin));
  }
  return few;
}

}  // namespace trireme

#include "parallel/analysis/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr double chart_plot = 640, least_height = 440, chart_top = 48, bottom = 58, letter = 7;  // pixels
constexpr double row = 20;  // height of a legend row
constexpr std::array colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444"};

/// Maps numbers of a logarithmic axis to pixels.
class Scale {
 public:
  void add(const std::string& name, double v) {
    check(std::isfinite(v) && v > 0, "chart", "{}: {} cannot be drawn on a logarithmic axis", name, v);
    low_ = std::min(low_, v);
    high_ = std::max(high_, v);
  }
  void settle(double room) {
    if (low_ > high_) low_ = 1;
    if (!(low_ < high_)) high_ = low_ * 10;
    high_ *= std::pow(high_ / low_, room);
  }
  void place(double from, double to) {
    from_ = from;
    to_ = to;
  }
  double operator()(double v) const { return from_ + std::log(v / low_) / std::log(high_ / low_) * (to_ - from_); }
  std::vector<double> marks() const { return ticks(low_, high_, true); }

 private:
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_, from_ = 0, to_ = 1;
};

/// Draws a series with its band and marks.
void draw_series(Svg& svg, const ChartSeries& s, const std::string& colour, const Scale& x, const Scale& y) {
  std::vector<std::pair<double, double>> points, around;
  for (const auto& [px, py] : s.points) points.emplace_back(x(px), y(py));
  for (std::size_t i = 0; i < s.band.size(); ++i) around.emplace_back(points[i].first, y(s.band[i].first));
  for (std::size_t i = s.band.size(); i-- > 0;) around.emplace_back(points[i].first, y(s.band[i].second));
  if (!around.empty()) svg.area(around, fmt::format("fill=\"{}\" fill-opacity=\"0.15\"", colour));
  svg.lines(points,
            fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, s.dashed ? " stroke-dasharray=\"6 4\"" : ""));
  for (std::size_t i = 0; i < s.evidence.size(); ++i) {
    std::string told =
        fmt::format("{}: {}, {}", s.name, number_text(s.points[i].first), number_text(s.points[i].second));
    if (!s.band.empty()) told += fmt::format(" [{}, {}]", number_text(s.band[i].first), number_text(s.band[i].second));
    told += fmt::format(", {}", evidence_names.at(static_cast<std::size_t>(s.evidence[i])));
    svg.mark(points[i].first, points[i].second, s.evidence[i], colour, told);
  }
}

/// The kinds of evidence in the chart, for the legend.
std::vector<Evidence> shown_evidence(const Chart& chart) {
  std::vector<Evidence> shown;
  for (const ChartSeries& s : chart.series)
    for (const Evidence e : s.evidence)
      if (std::ranges::find(shown, e) == shown.end()) shown.push_back(e);
  std::ranges::sort(shown);
  return shown;
}

}  // namespace

std::string palette(std::size_t i) { return colours[i % colours.size()]; }

Svg::Svg(double w, double h)
    : width_(w),
      height_(h),
      text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
                        "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
                        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                        w, h)) {}
void Svg::add(const char* tag, const std::string& attributes, const std::string& inner) {
  text_ += fmt::format("<{0} {1}>{2}</{0}>\n", tag, attributes, inner);
}
void Svg::text(double x, double y, const std::string& text, const std::string& more) {
  add("text", fmt::format("x=\"{:.2f}\" y=\"{:.1f}\" {}", x, y, more), html_text(text));
}
void Svg::rect(double x, double y, double w, double h, const std::string& more, const std::string& title) {
  add("rect", fmt::format("x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" {}", x, y, w, h, more),
      title.empty() ? "" : fmt::format("<title>{}</title>", html_text(title)));
}
void Svg::circle(double x, double y, double radius, const std::string& more, const std::string& title) {
  add("circle", fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" {}", x, y, radius, more),
      fmt::format("<title>{}</title>", html_text(title)));
}
void Svg::lines(const std::vector<std::pair<double, double>>& points, const std::string& more) {
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format(" {:.2f},{:.1f}", x, y);
  add("polyline", fmt::format("points=\"{}\" fill=\"none\" {}", path, more), "");
}
void Svg::area(const std::vector<std::pair<double, double>>& points, const std::string& more) {
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format(" {:.2f},{:.1f}", x, y);
  add("polygon", fmt::format("points=\"{}\" {}", path, more), "");
}
void Svg::mark(double x, double y, Evidence evidence, const std::string& colour, const std::string& title) {
  constexpr std::array fills = {"", "#ffd27f", "#ffffff", "#ff9b9b"};
  if (evidence == Evidence::real) return circle(x, y, 3.5, fmt::format("fill=\"{}\"", colour), title);
  using Corners = std::vector<std::pair<double, double>>;
  const Corners corners = evidence == Evidence::emulated    ? Corners{{-4, -4}, {4, -4}, {4, 4}, {-4, 4}}
                          : evidence == Evidence::simulated ? Corners{{0, -5}, {5, 4}, {-5, 4}}
                                                            : Corners{{0, -5.5}, {5.5, 0}, {0, 5.5}, {-5.5, 0}};
  std::string path;
  for (const auto& [dx, dy] : corners) path += fmt::format(" {:.2f},{:.2f}", x + dx, y + dy);
  add("polygon",
      fmt::format("points=\"{}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"2\"", path,
                  fills.at(static_cast<std::size_t>(evidence)), colour),
      fmt::format("<title>{}</title>", html_text(title)));
}
std::vector<double> ticks(double low, double high, bool log) {
  std::vector<double> all;
  if (!(high > low)) return all;
  if (log) {
    const bool powers = high / low >= 1e3;
    for (int e = static_cast<int>(std::floor(std::log10(low))); std::pow(10, e) <= high * 1.0001; ++e)
      for (const double digit : {1, 2, 5}) {
        const double v = digit * std::pow(10, e);
        if ((digit == 1 || !powers) && v >= low * 0.9999 && v <= high * 1.0001) all.push_back(v);
      }
    return all.size() < 2 ? ticks(low, high) : all;
  }
  // Too far apart for a double, or too close for ticks between them.
  if (!std::isfinite(high - low) || high - low < 1e-14 * std::max({std::abs(high), std::abs(low), 1e-290}))
    return {low};
  const double rough = (high - low) / 8, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
  const double slack = (high - low) * 1e-4;
  for (auto i = static_cast<long long>(std::ceil((low - slack) / step)); static_cast<double>(i) * step <= high + slack;
       ++i)
    all.push_back(static_cast<double>(i) * step);
  return all;
}

std::string number_text(double v, int digits) {
  const char* unit = "";
  for (const auto& [least, name] : {std::pair(1e12, "T"), {1e9, "G"}, {1e6, "M"}, {1e4, "k"}})
    if (std::abs(v) >= least) {
      v /= least == 1e4 ? 1e3 : least;
      unit = name;
      break;
    }
  return fmt::format("{:.{}g}{}", v, *unit == 0 && std::abs(v) >= 1000 ? std::max(4, digits) : digits, unit);
}

/// Texts of an axis's numbers, with enough digits to distinguish them.
static std::vector<std::string> mark_texts(const std::vector<double>& marks) {
  std::vector<std::string> texts;
  for (int digits = 3; digits < 16; ++digits) {
    texts.clear();
    for (const double v : marks) texts.push_back(number_text(v, digits));
    if (std::ranges::adjacent_find(texts) == texts.end()) break;
  }
  return texts;
}

std::string html_text(const std::string& text) {
  std::string out;
  for (char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t' ? '?' : c;  // not allowed in XML
    }
  return out;
}

std::string chart_svg(const Chart& chart) {
  Scale x, y;
  for (const ChartSeries& s : chart.series) {
    check((s.band.empty() || s.band.size() == s.points.size()) &&
              (s.evidence.empty() || s.evidence.size() == s.points.size()),
          "chart", "{}: {} points, {} intervals, {} kinds of evidence", s.name, s.points.size(), s.band.size(),
          s.evidence.size());
    for (const auto& [px, py] : s.points) {
      x.add(s.name, px);
      y.add(s.name, py);
    }
    for (const auto& [from, to] : s.band) {
      y.add(s.name, from);
      y.add(s.name, to);
    }
  }
  x.settle(0);
  y.settle(0.05);
  const std::vector<Evidence> kinds = shown_evidence(chart);
  std::size_t names = 12;  // letters of the longest evidence
  for (const ChartSeries& s : chart.series) names = std::max(names, s.name.size());
  const std::vector<double> rows_at = y.marks(), columns_at = chart.x_ticks.empty() ? x.marks() : chart.x_ticks;
  const std::vector<std::string> row_texts = mark_texts(rows_at), column_texts = mark_texts(columns_at);
  const auto rows = static_cast<double>(chart.series.size() + (kinds.empty() ? 0 : kinds.size() + 1));
  const double height = std::max(least_height, chart_top + row * (rows + 1));
  const double left = 100, right = left + chart_plot, base = height - bottom;
  const double width = right + 60 + letter * static_cast<double>(names);
  x.place(left, right - 12);
  y.place(base, chart_top);
  Svg svg(width, height);
  svg.text(left, 26, chart.title, Svg::heading);
  for (std::size_t i = 0; i < columns_at.size(); ++i) {
    const double at = x(columns_at[i]);
    svg.lines({{at, chart_top}, {at, base}}, "stroke=\"#ddd\"");
    svg.text(at, base + 18, column_texts[i], Svg::middle);
  }
  for (std::size_t i = 0; i < rows_at.size(); ++i) {
    const double at = y(rows_at[i]);
    svg.lines({{left, at}, {right, at}}, "stroke=\"#ddd\"");
    svg.text(left - 8, at + 4, row_texts[i], "text-anchor=\"end\" fill=\"#444\"");
  }
  svg.lines({{left, chart_top}, {left, base}, {right, base}}, "stroke=\"#444\"");
  svg.text((left + right) / 2, base + 42, chart.x, "text-anchor=\"middle\"");
  svg.text(
      0, 0, chart.y,
      fmt::format("transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\"", (chart_top + base) / 2));
  double at = chart_top + 10 + row * static_cast<double>(chart.series.size());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const char* name = evidence_names.at(static_cast<std::size_t>(kinds[k]));
    svg.mark(right + 25, at + row * static_cast<double>(k + 1), kinds[k], "#444", name);
    svg.text(right + 42, at + row * static_cast<double>(k + 1) + 4, name);
  }
  for (std::size_t i = chart.series.size(); i-- > 0;) {  // the first series is drawn last, on top
    const ChartSeries& s = chart.series[i];
    const std::string colour = s.colour.empty() ? palette(i) : s.colour;
    draw_series(svg, s, colour, x, y);
    at = chart_top + 10 + row * static_cast<double>(i);
    if (!s.band.empty())
      svg.area({{right + 14, at - 6}, {right + 36, at - 6}, {right + 36, at + 6}, {right + 14, at + 6}},
               fmt::format("fill=\"{}\" fill-opacity=\"0.15\"", colour));
    svg.lines({{right + 14, at}, {right + 36, at}},
              fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, s.dashed ? " stroke-dasharray=\"6 4\"" : ""));
    svg.text(right + 42, at + 4, s.name);
  }
  return svg.finish();
}

std::string stacked_svg(const std::vector<std::string>& pictures) {
  double width = 0, height = 0;
  std::string inner;
  for (const std::string& picture : pictures) {
    double w = 0, h = 0;
    const std::size_t size = picture.find("viewBox=\"0 0 ");
    check(picture.starts_with("<svg ") && size != picture.npos &&
              std::sscanf(picture.c_str() + size, "viewBox=\"0 0 %lf %lf", &w, &h) == 2,
          "chart", "only pictures of chart_svg() can be stacked");
    inner += fmt::format("<svg y=\"{:.0f}\" {}", height, picture.substr(5));
    width = std::max(width, w);
    height += h;
  }
  Svg all(width, height);
  std::string text = all.finish();
  return text.insert(text.rfind("</svg>"), inner);
}

std::string svg_page(const std::string& title, const std::string& pictures, const std::string& text) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:16px}} svg{{max-width:100%;height:auto}} rect:hover{{stroke:#000}} "
      "pre{{font-size:13px}}</style></head>\n<body>\n{1}<pre>{2}</pre>\n</body></html>\n",
      html_text(title), pictures, html_text(text));
}

}  // namespace trireme

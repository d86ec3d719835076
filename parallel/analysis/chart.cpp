#include "parallel/analysis/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr double plot = 640, height = 440, top = 48, bottom = 58, letter = 7;  // pixels
constexpr std::size_t most_marks = 24;                                         // of a line; else they hide it
/// Colours that the colour-blind tell apart (Okabe and Ito, 2008).
constexpr std::array colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444"};

/// One direction of a chart, from numbers to pixels.
class Scale {
 public:
  Scale(const Chart& chart, bool vertical) : log_(vertical ? chart.log_y : chart.log_x) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const ChartSeries& s : chart.series)
      for (const auto& [x, y] : s.points) {
        const double v = vertical ? y : x;
        check(std::isfinite(v) && (!log_ || v > 0), "chart", "{}: {} cannot be drawn{}", s.name, v,
              log_ ? " on a logarithmic axis" : "");
        low = std::min(low, v), high = std::max(high, v);
      }
    if (low > high) low = log_ ? 1 : 0, high = 1;
    if (!log_ && vertical) low = std::min(low, 0.0);
    if (low == high) high = log_ ? low * 10 : low + 1;
    if (vertical) high = log_ ? high * std::pow(high / low, 0.05) : high + (high - low) * 0.05;
    low_ = low, high_ = high;
  }
  void place(double from, double to) { from_ = from, to_ = to; }
  double operator()(double v) const {
    const double share = log_ ? std::log(v / low_) / std::log(high_ / low_) : (v - low_) / (high_ - low_);
    return from_ + share * (to_ - from_);
  }
  std::vector<double> marks() const { return ticks(low_, high_, log_); }

 private:
  bool log_;
  double low_, high_, from_ = 0, to_ = 1;
};

}  // namespace

Svg::Svg(double w, double h)
    : text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
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
  // Too far apart for a double, or too near for steps between them.
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

std::string number_text(double v) {
  const char* unit = "";
  for (const auto& [least, name] : {std::pair(1e12, "T"), {1e9, "G"}, {1e6, "M"}, {1e4, "k"}})
    if (std::abs(v) >= least) {
      v /= least == 1e4 ? 1e3 : least, unit = name;
      break;
    }
  return fmt::format("{:.{}g}{}", v, *unit == 0 && std::abs(v) >= 1000 ? 4 : 3, unit);
}

std::string html_text(const std::string& text) {
  std::string out;
  for (char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string chart_svg(const Chart& chart) {
  Scale x(chart, false), y(chart, true);
  std::size_t names = 0, numbers = 0;
  for (const ChartSeries& s : chart.series) names = std::max(names, s.name.size());
  for (const double v : y.marks()) numbers = std::max(numbers, number_text(v).size());
  const double left = 44 + letter * static_cast<double>(numbers);
  const double right = left + plot, base = height - bottom;
  const double width = right + 60 + letter * static_cast<double>(std::max<std::size_t>(names, 10));
  x.place(left, right - 12), y.place(base, top);
  Svg svg(width, height);
  svg.text(left, 26, chart.title, Svg::heading);
  for (const double v : x.marks()) {
    svg.lines({{x(v), top}, {x(v), base}}, "stroke=\"#ddd\"");
    svg.text(x(v), base + 18, number_text(v), Svg::middle);
  }
  for (const double v : y.marks()) {
    svg.lines({{left, y(v)}, {right, y(v)}}, "stroke=\"#ddd\"");
    svg.text(left - 8, y(v) + 4, number_text(v), "text-anchor=\"end\" fill=\"#444\"");
  }
  svg.lines({{left, top}, {left, base}, {right, base}}, "stroke=\"#444\"");
  svg.text((left + right) / 2, base + 42, chart.x, "text-anchor=\"middle\"");
  svg.text(0, 0, chart.y,
           fmt::format("transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\"", (top + base) / 2));
  for (std::size_t i = chart.series.size(); i-- > 0;) {  // the first is drawn over the others
    const ChartSeries& s = chart.series[i];
    const char* colour = colours[i % colours.size()];
    const std::string stroke =
        fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, s.dashed ? " stroke-dasharray=\"6 4\"" : "");
    std::vector<std::pair<double, double>> points;
    for (const auto& [px, py] : s.points) points.emplace_back(x(px), y(py));
    svg.lines(points, stroke);
    for (const auto& [px, py] : s.points)
      if (!s.dashed && s.points.size() <= most_marks)
        svg.circle(x(px), y(py), 3.5, fmt::format("fill=\"{}\"", colour),
                   fmt::format("{}: {}, {}", s.name, number_text(px), number_text(py)));
    const double at = top + 10 + 20 * static_cast<double>(i);
    svg.lines({{right + 14, at}, {right + 36, at}}, stroke);
    svg.text(right + 42, at + 4, s.name);
  }
  return svg.finish();
}

std::string svg_page(const std::string& title, const std::string& pictures, const std::string& text) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:16px}} svg{{max-width:100%;height:auto}} rect:hover{{stroke:#000}} "
      "pre{{font-size:13px}}</style></head>\n<body>\n{1}<pre>{2}</pre>\n</body></html>\n",
      html_text(title), pictures, html_text(text));
}

}  // namespace trireme

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

std::string line(const ChartSeries& s, const Scale& x, const Scale& y, const char* colour) {
  std::string path, marks;
  for (const auto& [px, py] : s.points) {
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x(px), y(py));
    if (!s.dashed && s.points.size() <= most_marks)
      marks +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{}: {}, {}</title></circle>\n",
                      x(px), y(py), colour, svg_escaped(s.name), number_text(px), number_text(py));
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", path, colour,
                     s.dashed ? " stroke-dasharray=\"6 4\"" : "") +
         marks;
}

}  // namespace

std::string svg_escaped(const std::string& text) {
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

std::string svg_head(double w, double h) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      w, h);
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

std::string chart_svg(const Chart& chart) {
  Scale x(chart, false), y(chart, true);
  std::size_t names = 0, numbers = 0;
  for (const ChartSeries& s : chart.series) names = std::max(names, s.name.size());
  for (const double v : y.marks()) numbers = std::max(numbers, number_text(v).size());
  const double left = 44 + letter * static_cast<double>(numbers);
  const double right = left + plot, base = height - bottom;
  const double width = right + 60 + letter * static_cast<double>(std::max<std::size_t>(names, 10));
  x.place(left, right - 12), y.place(base, top);
  std::string text = svg_head(width, height) +
                     fmt::format("<text x=\"{:.0f}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>\n", left,
                                 svg_escaped(chart.title));
  for (const double v : x.marks())
    text += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#ddd\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\" fill=\"#444\">{4}</text>\n",
        x(v), top, base, base + 18, number_text(v));
  for (const double v : y.marks())
    text += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\" fill=\"#444\">{5}</text>\n",
        left, y(v), right, left - 8, y(v) + 4, number_text(v));
  text += fmt::format(
      "<polyline points=\"{0:.1f},{1} {0:.1f},{2} {3:.1f},{2}\" fill=\"none\" stroke=\"#444\"/>\n"
      "<text x=\"{4:.1f}\" y=\"{5}\" text-anchor=\"middle\">{6}</text>\n"
      "<text transform=\"translate(18 {7:.1f}) rotate(-90)\" text-anchor=\"middle\">{8}</text>\n",
      left, top, base, right, (left + right) / 2, base + 42, svg_escaped(chart.x), (top + base) / 2,
      svg_escaped(chart.y));
  for (std::size_t i = chart.series.size(); i-- > 0;) {  // the first is drawn over the others
    const ChartSeries& s = chart.series[i];
    const char* colour = colours[i % colours.size()];
    const double at = top + 10 + 20 * static_cast<double>(i);
    text += line(s, x, y, colour);
    text += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"{3}\" stroke-width=\"2\"{4}/>"
        "<text x=\"{5:.1f}\" y=\"{6:.1f}\">{7}</text>\n",
        right + 14, at, right + 36, colour, s.dashed ? " stroke-dasharray=\"6 4\"" : "", right + 42, at + 4,
        svg_escaped(s.name));
  }
  return text + "</svg>\n";
}

std::string svg_page(const std::string& title, const std::string& pictures, const std::string& text) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:16px}} svg{{max-width:100%;height:auto}} rect:hover{{stroke:#000}} "
      "pre{{font-size:13px}}</style></head>\n<body>\n{1}<pre>{2}</pre>\n</body></html>\n",
      svg_escaped(title), pictures, svg_escaped(text));
}

}  // namespace trireme

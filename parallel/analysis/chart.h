// Charts as SVG: lines of several series over linear or logarithmic axes, self-contained; and what they share with
// other pictures (draw.h).
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct ChartSeries {
  std::string name;                               ///< in the legend
  std::vector<std::pair<double, double>> points;  ///< (x, y), in order of x
  bool dashed = false;                            ///< without marks: for what is only compared with
};

struct Chart {
  std::string title, x, y;  ///< y: what the numbers are, unit included; x: alike
  std::vector<ChartSeries> series;
  bool log_x = false, log_y = false;  ///< then all numbers along it must be above 0
};

/// A picture, 440 pixels high and as wide as the legend asks; hovering over a mark shows its numbers. Throws Error for
/// numbers that are not finite, or not above 0 on a logarithmic axis.
std::string chart_svg(const Chart&);
/// For HTML and SVG: what they take for marks is written otherwise.
std::string html_text(const std::string& text);
/// A page with pictures and, below them, text as it is. No scripts, nothing loaded.
std::string svg_page(const std::string& title, const std::string& pictures, const std::string& text);

/// A picture in the making. Positions in pixels from the upper left corner; `more`: further attributes of an element.
class Svg {
 public:
  static constexpr const char *heading = "font-size=\"15\" font-weight=\"bold\"",
                              *middle = "text-anchor=\"middle\" fill=\"#444\"";
  /// On white.
  Svg(double width, double height);
  void text(double x, double y, const std::string& text, const std::string& more = "");
  /// title: shown where the mouse stands on it.
  void rect(double x, double y, double width, double height, const std::string& more, const std::string& title = "");
  void circle(double x, double y, double radius, const std::string& more, const std::string& title);
  /// Lines from point to point.
  void lines(const std::vector<std::pair<double, double>>& points, const std::string& more);
  std::string finish() { return text_ + "</svg>\n"; }

 private:
  void add(const char* tag, const std::string& attributes, const std::string& inner);
  std::string text_;
};
/// Positions for ticks, about eight of them in [low, high]: at 1, 2 or 5 times powers of ten, in equal steps or, on a
/// logarithmic axis, all of those, or the powers alone where these are enough.
std::vector<double> ticks(double low, double high, bool log = false);
/// "0", "0.25", "16.4k", "2.5M": up to three digits.
std::string number_text(double);

}  // namespace trireme

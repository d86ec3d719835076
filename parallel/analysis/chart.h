// Charts as self-contained SVG: lines of several series on logarithmic axes, with bands, and marks by evidence. Also
// the helpers that draw.h shares. The pages of `trireme report` draw their charts by a script of their own
// (tools/report/page.html).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// How a number was obtained; the shape and filling of its mark show it. real: measured on ranks with separate devices.
/// emulated: measured on ranks that sleep instead of computing or sending. simulated: computed from measured parts.
/// extrapolated: computed beyond the measurements.
enum class Evidence : std::uint8_t { real, emulated, simulated, extrapolated };
inline constexpr std::array evidence_names = {"real", "emulated", "simulated", "extrapolated"};  ///< by Evidence

struct ChartSeries {
  std::string name;                                  ///< for the legend
  std::vector<std::pair<double, double>> points;     ///< (x, y), ascending by x
  bool dashed = false;                               ///< for reference lines
  std::vector<std::pair<double, double>> band = {};  ///< lowest and highest y of each point; empty: none
  std::vector<Evidence> evidence = {};  ///< of each point, explained in the legend; empty: a line without marks
  std::string colour = {};              ///< a CSS colour; "": the palette's, by the index of the series
};

/// Both axes are logarithmic, so all numbers must be above 0.
struct Chart {
  std::string title, x, y;  ///< axis labels with units
  std::vector<ChartSeries> series;
  std::vector<double> x_ticks = {};  ///< empty: chosen automatically
};

/// Colours that are distinguishable with colour blindness (Okabe and Ito, 2008), then others; repeats after the last.
std::string palette(std::size_t);

/// A picture of 440 pixels height, or more for a long legend. Hovering over a mark shows its numbers. Throws Error for
/// numbers that are not finite or not above 0. Throws Error if band or evidence have another number of elements than
/// points.
std::string chart_svg(const Chart&);
/// Stacks several pictures of chart_svg() vertically.
std::string stacked_svg(const std::vector<std::string>& pictures);
/// Escapes text for HTML and SVG.
std::string html_text(const std::string& text);
/// A page with pictures and preformatted text below them, without scripts and external resources.
std::string svg_page(const std::string& title, const std::string& pictures, const std::string& text);

/// Builds a picture. Positions are pixels from the upper left corner. `more`: further attributes of an element.
class Svg {
 public:
  static constexpr const char *heading = "font-size=\"15\" font-weight=\"bold\"",
                              *middle = "text-anchor=\"middle\" fill=\"#444\"";
  /// An empty white picture.
  Svg(double width, double height);
  void text(double x, double y, const std::string& text, const std::string& more = "");
  /// title: shown when the pointer is over the rectangle.
  void rect(double x, double y, double width, double height, const std::string& more, const std::string& title = "");
  void circle(double x, double y, double radius, const std::string& more, const std::string& title);
  /// A polyline.
  void lines(const std::vector<std::pair<double, double>>& points, const std::string& more);
  /// A filled polygon.
  void area(const std::vector<std::pair<double, double>>& points, const std::string& more);
  /// A mark: circle, square, triangle or diamond by evidence; filled with the colour only for real numbers.
  void mark(double x, double y, Evidence, const std::string& colour, const std::string& title);
  std::string finish() { return text_ + "</svg>\n"; }

 private:
  double width_, height_;
  void add(const char* tag, const std::string& attributes, const std::string& inner);
  std::string text_;
};
/// Positions for about eight ticks in [low, high], at 1, 2 or 5 times powers of ten: in equal steps, or on a
/// logarithmic axis all of these, or only powers of ten if they are enough.
std::vector<double> ticks(double low, double high, bool log = false);
/// "0", "0.25", "16.4k", "2.5M": up to `digits` digits.
std::string number_text(double, int digits = 3);

}  // namespace trireme

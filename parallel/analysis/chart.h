// Charts as SVG: lines of several series over linear or logarithmic axes, with error bars, bands and marks that tell
// how a number came about, self-contained; and what they share with other pictures (draw.h).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// How a number came about, which the shape and the filling of its mark tell: measured on ranks with devices of their
/// own; measured on ranks whose compute or links are slept; computed from measured parts; computed beyond what was
/// measured.
enum class Evidence : std::uint8_t { real, emulated, simulated, extrapolated };
inline constexpr std::array evidence_names = {"real", "emulated", "simulated", "extrapolated"};  ///< by Evidence

struct ChartSeries {
  std::string name;                               ///< in the legend
  std::vector<std::pair<double, double>> points;  ///< (x, y), in order of x
  bool dashed = false;                            ///< without marks: for what is only compared with
  /// Of each point, lowest and highest y: an error bar, or with `band` the area between them. Empty: none are drawn; of
  /// a point whose numbers are NaN none is.
  std::vector<std::pair<double, double>> intervals = {};
  bool band = false;
  std::vector<Evidence> evidence = {};  ///< of each point; the legend explains them. Empty: circles, nothing is said
  std::string colour = {};              ///< of CSS; "": the palette's, by the place among the series
};

struct Chart {
  std::string title, x, y;  ///< y: what the numbers are, unit included; x: alike
  std::vector<ChartSeries> series;
  bool log_x = false, log_y = false;  ///< then all numbers along it must be above 0
  bool from_zero = true;              ///< whether a linear y axis has 0 on it
  std::vector<double> x_ticks = {};   ///< empty: as the numbers ask for
  bool dodge = false;          ///< series some pixels beside each other, so that their error bars can be told apart
  std::string watermark = {};  ///< across the picture: what nobody may miss ("SYNTHETIC DATA")
};

/// Colours that the colour-blind tell apart (Okabe and Ito, 2008), then others; they begin again after the last.
std::string palette(std::size_t);

/// A picture, 440 pixels high, or as high as the legend asks, and as wide; hovering over a mark shows its numbers.
/// Throws Error for numbers that are not finite, or not above 0 on a logarithmic axis, and for intervals or evidence of
/// another number of points.
std::string chart_svg(const Chart&);
/// Several pictures (chart_svg) as one, below each other.
std::string stacked_svg(const std::vector<std::string>& pictures);
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
  /// The area within lines from point to point and back to the first.
  void area(const std::vector<std::pair<double, double>>& points, const std::string& more);
  /// A number's mark: circle, square, triangle or diamond by its evidence, filled with the colour only where it is
  /// real.
  void mark(double x, double y, Evidence, const std::string& colour, const std::string& title);
  /// Large, translucent, slanted over the picture; nothing where the text is empty.
  void watermark(const std::string& text);
  std::string finish() { return text_ + "</svg>\n"; }

 private:
  double width_, height_;
  void add(const char* tag, const std::string& attributes, const std::string& inner);
  std::string text_;
};
/// Positions for ticks, about eight of them in [low, high]: at 1, 2 or 5 times powers of ten, in equal steps or, on a
/// logarithmic axis, all of those, or the powers alone where these are enough.
std::vector<double> ticks(double low, double high, bool log = false);
/// "0", "0.25", "16.4k", "2.5M": up to three digits.
std::string number_text(double, int digits = 3);

}  // namespace trireme

#include <fmt/format.h>

#include "parallel/analysis/chart.h"
#include "parallel/analysis/draw.h"

namespace trireme {
namespace {

constexpr double left = 130, plot = 1050, top = 64, tall = 26, low = 12, gap = 8;  // pixels

struct Paint {
  const char *fill, *text;
};
/// Colours that the colour-blind tell apart (Okabe and Ito, 2008).
Paint paint(ActionKind v) {
  if (v == ActionKind::forward) return {"#0072b2", "#fff"};
  if (v == ActionKind::backward) return {"#d55e00", "#fff"};
  if (v == ActionKind::backward_input) return {"#e69f00", "#000"};
  if (v == ActionKind::backward_weight) return {"#009e73", "#fff"};
  if (v == ActionKind::loss) return {"#cc79a7", "#000"};
  if (v == ActionKind::update) return {"#444444", "#fff"};
  if (v == ActionKind::send || v == ActionKind::recv || v == ActionKind::push) return {"#999999", "#000"};
  return {"#56b4e9", "#000"};
}

std::string strategy_name(const Plan& plan) {
  return plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | "));
}

class Picture {
 public:
  Picture(const Plan& plan, const Timeline& timeline)
      : plan_(plan), timeline_(timeline), bars_(bars(plan, timeline)), scale_(plot / std::max(timeline.end(), 1e-12)) {
    std::vector<bool> talks(timeline.programs.size());
    for (const Bar& b : bars_)
      if (b.stream != Stream::compute) talks[static_cast<std::size_t>(b.rank)] = true;
    for (bool comm : talks) {
      rows_.push_back(bottom_);
      bottom_ += tall + (comm ? low : 0) + gap;
    }
  }

  std::string draw() {
    const double width = left + plot + 30, height = bottom_ + 44;
    std::string text = svg_head(width, height);
    text += fmt::format(
        "<text x=\"10\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n<text x=\"10\" y=\"44\">{}</text>\n",
        svg_escaped(strategy_name(plan_)), svg_escaped(headline(plan_, timeline_)));
    text += legend() + tick_lines();
    for (std::size_t r = 0; r < rows_.size(); ++r)
      text += fmt::format(
          "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n"
          "<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#f0f0f0\"/>\n",
          left - 8, rows_[r] + tall * 0.68, svg_escaped(row_name(plan_, timeline_, static_cast<int>(r))), left,
          rows_[r], plot, tall);
    for (const Bar& b : bars_) text += bar(b);
    return text + "</svg>\n";
  }

 private:
  double x(double seconds) const { return left + seconds * scale_; }

  std::string bar(const Bar& b) const {
    const bool compute = b.stream == Stream::compute;
    const double y = rows_[static_cast<std::size_t>(b.rank)] + (compute ? 0 : tall), h = compute ? tall : low;
    const Paint p = paint(b.kind);
    std::string text;
    for (const Span& s : b.spans) {
      const Action& a = action_of(plan_, timeline_, s);
      const std::string part = a.part >= 0 ? " ('" + plan_.parts[static_cast<std::size_t>(a.part)].name + "')" : "";
      text += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"{}>"
          "<title>{}: {}{}, {} to {}</title></rect>\n",
          x(s.begin), y, std::max(0.3, (s.end - s.begin) * scale_), h, p.fill, compute ? "" : " fill-opacity=\"0.8\"",
          svg_escaped(row_name(plan_, timeline_, s.rank)), svg_escaped(to_string(a)), svg_escaped(part),
          time_text(s.begin), time_text(s.end));
    }
    const double width = (b.end - b.begin) * scale_;
    const std::string label = b.label();
    if (width > 3)
      text += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"none\" stroke=\"#fff\" "
          "stroke-width=\"0.7\" pointer-events=\"none\"/>\n",
          x(b.begin), y, width, h);
    if (compute && width > 8 * static_cast<double>(label.size()) + 2)
      text += fmt::format(
          "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\" pointer-events=\"none\">{}</text>\n",
          x((b.begin + b.end) / 2), y + tall * 0.68, p.text, label);
    return text;
  }

  std::string legend() const {
    const auto kinds = kinds_of(bars_);
    double at = left + plot;
    std::string text;
    for (auto v = kinds.rbegin(); v != kinds.rend(); ++v) {
      const std::string name = to_string(*v);
      at -= 7.0 * static_cast<double>(name.size()) + 24;
      text += fmt::format(
          "<rect x=\"{:.0f}\" y=\"13\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"23\">{}</text>\n",
          at, paint(*v).fill, at + 16, name);
    }
    return text;
  }

  std::string tick_lines() const {
    std::string text;
    for (const double at : ticks(0, timeline_.end()))
      text += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1:.0f}\" x2=\"{0:.2f}\" y2=\"{2:.0f}\" stroke=\"#bbb\"/>"
          "<text x=\"{0:.2f}\" y=\"{3:.0f}\" text-anchor=\"middle\" fill=\"#444\">{4}</text>\n",
          x(at), top - 4, bottom_, bottom_ + 18, at == 0 ? "0" : time_text(at));
    return text;
  }

  const Plan& plan_;
  const Timeline& timeline_;
  std::vector<Bar> bars_;
  double scale_;  // pixels per second
  std::vector<double> rows_;
  double bottom_ = top;
};

}  // namespace

std::string timeline_svg(const Plan& plan, const Timeline& timeline) { return Picture(plan, timeline).draw(); }

std::string timeline_html(const Plan& plan, const Timeline& timeline, const std::string& text) {
  return svg_page(strategy_name(plan) + (timeline.measured ? ", measured" : ", predicted"),
                  timeline_svg(plan, timeline), text);
}

}  // namespace trireme

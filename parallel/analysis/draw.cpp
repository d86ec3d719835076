#include "parallel/analysis/draw.h"
#include "parallel/async/channel_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <ranges>
#include <set>

#include "framework/io/json.h"
#include "parallel/analysis/chart.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/action_row.h"

namespace trireme {
namespace {

const Action& action_of(const Plan& plan, const Timeline& t, const Span& s) {
  return plan.programs.at(t.programs.at(s.rank)).actions.at(s.action);
}

/// Sends of a server are drawn as communication, although they run within its phases.
Stream stream_of(const Action& a) { return is_channel(a) ? Stream::comm : a.stream; }

/// Several actions that are drawn as one.
struct Bar {
  const Action& action;     // the first
  double begin, end;        // seconds
  std::vector<Span> spans;  // in order

  /// "F0", "B12", "U"; "B0'" is of the previous step. Built-in kinds up to recv have a label per micro-batch,
  /// but messages to channels do not.
  std::string label() const {
    const MicroBatch& m = action.microbatch;
    if (ActionKind::recv < action.kind || is_channel(action)) return {action.kind->letter};
    return action.kind->letter + std::to_string(m.index) + std::string(m.steps_ago, '\'');
  }
};
/// The actions of a rank on one stream.
struct Row {
  int rank;
  Stream stream;
  std::vector<Bar> bars;  // by time
};

/// For each rank a row of computation, then one of communication if there is any.
std::vector<Row> rows_of(const Plan& plan, const Timeline& timeline) {
  std::vector<Row> rows;
  for (int r = 0; r < std::ssize(timeline.programs); ++r)
    for (const Stream stream : {Stream::compute, Stream::comm}) rows.push_back({r, stream, {}});
  auto spans = timeline.spans;
  std::ranges::stable_sort(spans, {}, &Span::begin);
  for (const Span& s : spans) {
    const Action& a = action_of(plan, timeline, s);
    if (s.end <= s.begin || (a.kind == ActionKind::recv && !sums_messages(a))) continue;
    auto& bars = rows[2 * s.rank + (stream_of(a) == Stream::comm)].bars;
    const Action* last = bars.empty() ? nullptr : &action_of(plan, timeline, bars.back().spans.back());
    if (last && last->kind == a.kind && last->microbatch == a.microbatch && a.part >= 0 &&
        std::abs(a.part - last->part) == 1) {
      bars.back().end = std::max(bars.back().end, s.end);
      bars.back().spans.push_back(s);
    } else {
      bars.push_back({a, s.begin, s.end, {s}});
    }
  }
  std::erase_if(rows, [](const Row& row) { return row.stream == Stream::comm && row.bars.empty(); });
  return rows;
}

/// Kinds of actions in order, for the legend.
std::set<ActionKind> kinds_of(const std::vector<Row>& rows) {
  std::set<ActionKind> kinds;
  for (const Row& row : rows)
    for (const Bar& b : row.bars) kinds.insert(b.action.kind);
  return kinds;
}

/// The program's name, with the rank if several ranks run the program.
std::string name_of(const Plan& plan, const Timeline& timeline, int rank) {
  const int program = timeline.programs.at(rank);
  const std::string& name = plan.programs.at(program).name;
  return std::ranges::count(timeline.programs, program) > 1 ? fmt::format("rank {} {}", rank, name) : name;
}

/// "predicted: 12.3 ms, idle 21.9 % of busy time".
std::string headline(const Plan& plan, const Timeline& timeline) {
  double busy = 0;
  for (const Span& s : timeline.spans)
    if (stream_of(action_of(plan, timeline, s)) == Stream::compute) busy += s.end - s.begin;
  const double idle = timeline.end() * static_cast<double>(timeline.programs.size()) - busy;
  return fmt::format("{}: {}, idle {:.1f} % of busy time", timeline.measured ? "measured" : "predicted",
                     time_text(timeline.end()), busy > 0 ? 100 * idle / busy : 0.0);
}

/// The characters of a row: a bar is its label and dashes, idle time is dots.
std::string row_text(const Row& row, double seconds, int width) {
  std::string text(width, '.');
  // The first column whose centre is not before the time.
  const auto column = [&](double at) { return static_cast<int>(std::ceil(at / seconds * width - 0.5)); };
  int begin = 0;
  for (const Bar& bar : row.bars) {
    begin = std::max(begin, column(bar.begin));
    const std::size_t size = std::max(0, column(bar.end) - begin);
    const std::string label = bar.label().substr(0, bar.label().size() <= size ? std::string::npos : 1);
    text.replace(begin, size, (label + std::string(size, '-')).substr(0, size));
    begin += static_cast<int>(size);
  }
  return text;
}

struct Paint {
  const char *fill, *text;
};
/// Colours that are distinguishable with colour blindness (Okabe and Ito, 2008).
Paint paint(ActionKind v) {
  if (v == ActionKind::forward) return {"#0072b2", "#fff"};
  if (v == ActionKind::backward) return {"#d55e00", "#fff"};
  if (v == ActionKind::backward_input) return {"#e69f00", "#000"};
  if (v == ActionKind::backward_weight) return {"#009e73", "#fff"};
  if (v == ActionKind::loss) return {"#cc79a7", "#000"};
  if (v == ActionKind::update) return {"#444444", "#fff"};
  if (v == ActionKind::send || v == ActionKind::recv) return {"#999999", "#000"};
  return {"#56b4e9", "#000"};
}

std::string strategy_name(const Plan& plan) {
  return plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | "));
}

constexpr double left = 130, plot = 1050, top = 64, tall = 26, low = 12, gap = 8;  // pixels

/// Draws a frame around the bar, and its label, if there is room.
void frame(Svg& svg, const Bar& b, double y, double scale, bool compute) {
  const double width = (b.end - b.begin) * scale;
  if (width > 3)
    svg.rect(left + b.begin * scale, y, width, compute ? tall : low,
             "fill=\"none\" stroke=\"#fff\" stroke-width=\"0.7\" pointer-events=\"none\"");
  if (compute && width > 8 * static_cast<double>(b.label().size()) + 2)
    svg.text(left + (b.begin + b.end) / 2 * scale, y + tall * 0.68, b.label(),
             fmt::format("fill=\"{}\" text-anchor=\"middle\" pointer-events=\"none\"", paint(b.action.kind).text));
}

}  // namespace

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

std::string gantt(const Plan& plan, const Timeline& timeline, int width) {
  const auto rows = rows_of(plan, timeline);
  std::size_t names = 0;
  for (const Row& row : rows) names = std::max(names, name_of(plan, timeline, row.rank).size());
  const int columns = std::max(20, width - static_cast<int>(names) - 9);
  std::string text = headline(plan, timeline) + "\n", legend;
  for (const Row& row : rows)
    text += fmt::format("{:<{}} {:<7} {}\n", row.stream == Stream::compute ? name_of(plan, timeline, row.rank) : "",
                        names, to_string(row.stream), row_text(row, timeline.end(), columns));
  for (ActionKind v : kinds_of(rows))
    legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", v->letter, to_string(v));
  return text + legend + "; the number is the micro-batch, a dot is idle time\n";
}

std::string trace_json(const Plan& plan, const Timeline& timeline) {
  Json events = Json::array();
  for (int r = 0; r < std::ssize(timeline.programs); ++r) {
    events.push_back(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", r}, {"args", {{"name", name_of(plan, timeline, r)}}}});
    for (Stream s : {Stream::compute, Stream::comm})
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", r},
                        {"tid", static_cast<int>(s)},
                        {"args", {{"name", to_string(s)}}}});
  }
  for (const Span& s : timeline.spans) {
    const Action& a = action_of(plan, timeline, s);
    Json args = {{"action", s.action}, {"micro", a.microbatch.index}};
    if (a.part >= 0) args["part"] = plan.parts.at(a.part).name;
    events.push_back({{"ph", "X"},
                      {"name", to_string(a)},
                      {"cat", to_string(a.kind)},
                      {"pid", s.rank},
                      {"tid", static_cast<int>(stream_of(a))},
                      {"ts", s.begin * 1e6},
                      {"dur", (s.end - s.begin) * 1e6},
                      {"args", std::move(args)}});
  }
  const Json page = {{"traceEvents", std::move(events)},
                     {"displayTimeUnit", "ms"},
                     {"otherData", {{"times", timeline.measured ? "measured" : "predicted"}}}};
  return json_text(page, NotUtf8::replaced, -1, /*ascii=*/true);
}

std::string timeline_svg(const Plan& plan, const Timeline& timeline) {
  const auto rows = rows_of(plan, timeline);
  double bottom = top;
  for (const Row& row : rows) bottom += row.stream == Stream::compute ? tall + gap : low;
  Svg svg(left + plot + 30, bottom + 44);
  svg.text(10, 22, strategy_name(plan), Svg::heading);
  svg.text(10, 44, headline(plan, timeline));
  const auto kinds = kinds_of(rows);
  double at = left + plot;
  for (ActionKind v : kinds | std::views::reverse) {
    at -= 7.0 * static_cast<double>(to_string(v).size()) + 24;
    svg.rect(at, 13, 12, 12, fmt::format("fill=\"{}\"", paint(v).fill));
    svg.text(at + 16, 23, to_string(v));
  }
  const double scale = plot / std::max(timeline.end(), 1e-12);  // pixels per second
  for (const double t : ticks(0, timeline.end())) {
    const double x = left + t * scale;
    svg.lines({{x, top - 4}, {x, bottom}}, "stroke=\"#bbb\"");
    svg.text(x, bottom + 18, t == 0 ? "0" : time_text(t), Svg::middle);
  }
  double y = top - gap;
  for (const Row& row : rows) {
    const bool compute = row.stream == Stream::compute;
    const std::string name = name_of(plan, timeline, row.rank);
    if (compute) {
      y += gap;
      svg.text(left - 8, y + tall * 0.68, name, "text-anchor=\"end\"");
      svg.rect(left, y, plot, tall, "fill=\"#f0f0f0\"");
    }
    for (const Bar& b : row.bars) {
      for (const Span& s : b.spans) {
        const Action& a = action_of(plan, timeline, s);
        const std::string part = a.part >= 0 ? fmt::format(" ('{}')", plan.parts[a.part].name) : "";
        svg.rect(left + s.begin * scale, y, std::max(0.3, (s.end - s.begin) * scale), compute ? tall : low,
                 fmt::format("fill=\"{}\"{}", paint(b.action.kind).fill, compute ? "" : " fill-opacity=\"0.8\""),
                 fmt::format("{}: {}{}, {} to {}", name, to_string(a), part, time_text(s.begin), time_text(s.end)));
      }
      frame(svg, b, y, scale, compute);
    }
    y += compute ? tall : low;
  }
  return svg.finish();
}

std::string timeline_html(const Plan& plan, const Timeline& timeline, const std::string& text) {
  return svg_page(strategy_name(plan) + (timeline.measured ? ", measured" : ", predicted"),
                  timeline_svg(plan, timeline), text);
}

}  // namespace trireme

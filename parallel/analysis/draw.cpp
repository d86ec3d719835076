#include "parallel/analysis/draw.h"

#include <fmt/format.h>

#include <set>

#include "framework/io/json.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/action_row.h"

namespace trireme {

const Action& action_of(const Plan& plan, const Timeline& t, const Span& s) {
  return plan.programs.at(static_cast<std::size_t>(t.programs.at(static_cast<std::size_t>(s.rank))))
      .actions.at(static_cast<std::size_t>(s.action));
}

namespace {

/// What a server sends is in the midst of its phases.
Stream row_of(const Action& a) { return is_channel(a) ? Stream::comm : a.stream; }

/// Kinds of which there is one per micro-batch, as far as the library's go.
bool per_micro(ActionKind v) { return !(ActionKind::recv < v); }

bool joins(const Bar& bar, const Action& last, const Action& a) {
  return bar.kind == a.kind && bar.microbatch == a.microbatch && a.part >= 0 && std::abs(a.part - last.part) == 1;
}

/// Characters of one row; a bar is its label and dashes, idle time is dots.
std::string row_text(const std::vector<const Bar*>& row, double seconds, int width) {
  std::vector<const Bar*> cells(static_cast<std::size_t>(width));
  std::size_t next = 0;
  for (int c = 0; c < width; ++c) {
    const double middle = (c + 0.5) / width * seconds;
    while (next < row.size() && row[next]->end <= middle) ++next;
    if (next < row.size() && row[next]->begin <= middle) cells[static_cast<std::size_t>(c)] = row[next];
  }
  std::string text;
  for (std::size_t c = 0; c < cells.size();) {
    std::size_t end = c + 1;
    while (end < cells.size() && cells[end] == cells[c]) ++end;
    std::string piece(end - c, cells[c] ? '-' : '.');
    if (cells[c]) {
      const std::string label = cells[c]->label();
      piece.replace(0, label.size() <= piece.size() ? label.size() : 1,
                    label.size() <= piece.size() ? label : label.substr(0, 1));
    }
    text += piece;
    c = end;
  }
  return text;
}

}  // namespace

std::string Bar::label() const { return kind->letter + (per_micro(kind) ? std::to_string(microbatch) : ""); }

std::vector<Bar> bars(const Plan& plan, const Timeline& timeline) {
  std::vector<Span> spans;
  for (const Span& s : timeline.spans)
    if (const ActionKind kind = action_of(plan, timeline, s).kind;
        s.end > s.begin && kind != ActionKind::recv && kind != ActionKind::pull)
      spans.push_back(s);
  std::stable_sort(spans.begin(), spans.end(), [&](const Span& a, const Span& b) {
    return std::tuple(a.rank, row_of(action_of(plan, timeline, a)), a.begin) <
           std::tuple(b.rank, row_of(action_of(plan, timeline, b)), b.begin);
  });
  std::vector<Bar> result;
  for (const Span& s : spans) {
    const Action& a = action_of(plan, timeline, s);
    Bar* last = result.empty() ? nullptr : &result.back();
    if (last && last->rank == s.rank && last->stream == row_of(a) &&
        joins(*last, action_of(plan, timeline, last->spans.back()), a)) {
      last->end = std::max(last->end, s.end);
      last->spans.push_back(s);
    } else {
      result.push_back({s.rank, row_of(a), a.kind, a.microbatch, s.begin, s.end, {s}});
    }
  }
  return result;
}

std::vector<ActionKind> kinds_of(const std::vector<Bar>& bars) {
  std::set<ActionKind> kinds;
  for (const Bar& b : bars) kinds.insert(b.kind);
  return {kinds.begin(), kinds.end()};
}

std::string row_name(const Plan& plan, const Timeline& timeline, int rank) {
  const int program = timeline.programs.at(static_cast<std::size_t>(rank));
  const auto sharers = std::count(timeline.programs.begin(), timeline.programs.end(), program);
  const std::string& name = plan.programs.at(static_cast<std::size_t>(program)).name;
  return sharers > 1 ? fmt::format("rank {} {}", rank, name) : name;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

std::string headline(const Plan& plan, const Timeline& timeline) {
  double busy = 0;
  for (const Span& s : timeline.spans)
    if (row_of(action_of(plan, timeline, s)) == Stream::compute) busy += s.end - s.begin;
  const double idle = timeline.end() * static_cast<double>(timeline.programs.size()) - busy;
  return fmt::format("{}: {}, idle {:.1f} % of busy time", timeline.measured ? "measured" : "predicted",
                     time_text(timeline.end()), busy > 0 ? 100 * idle / busy : 0.0);
}

std::string gantt(const Plan& plan, const Timeline& timeline, int width) {
  const auto all = bars(plan, timeline);
  std::size_t names = 0;
  for (int r = 0; r < static_cast<int>(timeline.programs.size()); ++r)
    names = std::max(names, row_name(plan, timeline, r).size());
  const int columns = std::max(20, width - static_cast<int>(names) - 9);
  std::string text = headline(plan, timeline) + "\n";
  for (int r = 0; r < static_cast<int>(timeline.programs.size()); ++r)
    for (Stream stream : {Stream::compute, Stream::comm}) {
      std::vector<const Bar*> row;
      for (const Bar& b : all)
        if (b.rank == r && (b.stream == Stream::compute) == (stream == Stream::compute)) row.push_back(&b);
      if (row.empty() && stream == Stream::comm) continue;
      text += fmt::format("{:<{}} {:<7} {}\n", stream == Stream::compute ? row_name(plan, timeline, r) : "", names,
                          stream == Stream::compute ? "compute" : "comm", row_text(row, timeline.end(), columns));
    }
  std::string legend;
  for (ActionKind v : kinds_of(all))
    legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", v->letter, to_string(v));
  return text + legend + "; the number is the micro-batch, a dot is idle time\n";
}

std::string trace_json(const Plan& plan, const Timeline& timeline) {
  Json events = Json::array();
  for (int r = 0; r < static_cast<int>(timeline.programs.size()); ++r) {
    events.push_back(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", r}, {"args", {{"name", row_name(plan, timeline, r)}}}});
    for (Stream s : {Stream::compute, Stream::comm})
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", r},
                        {"tid", static_cast<int>(s)},
                        {"args", {{"name", to_string(s)}}}});
  }
  for (const Span& s : timeline.spans) {
    const Action& a = action_of(plan, timeline, s);
    Json args = {{"action", s.action}, {"micro", a.microbatch}};
    if (a.part >= 0) args["part"] = plan.parts.at(static_cast<std::size_t>(a.part)).name;
    events.push_back({{"ph", "X"},
                      {"name", to_string(a)},
                      {"cat", to_string(a.kind)},
                      {"pid", s.rank},
                      {"tid", static_cast<int>(row_of(a))},
                      {"ts", s.begin * 1e6},
                      {"dur", (s.end - s.begin) * 1e6},
                      {"args", std::move(args)}});
  }
  const Json page = {{"traceEvents", std::move(events)},
                     {"displayTimeUnit", "ms"},
                     {"otherData", {{"times", timeline.measured ? "measured" : "predicted"}}}};
  return json_text(page, NotUtf8::replaced, -1, /*ascii=*/true);
}

}  // namespace trireme

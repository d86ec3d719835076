// Drawings of a Timeline: characters for a terminal, a trace for Chrome or Perfetto, a picture, a page. Each says
// whether its times are predicted or measured.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/timeline.h"

namespace trireme {

/// Neighbouring actions of one rank and stream that a drawing shows as one: same kind and micro-batch, parts side by
/// side.
struct Bar {
  int rank;
  Stream stream;
  ActionKind kind;
  int microbatch;
  double begin, end;          ///< seconds
  std::vector<Span> spans;    ///< in order
  std::string label() const;  ///< "F0", "B12", "U"
};
/// In order of rank, then time. Spans without duration, recv and pull (the time of waiting is no work) are left out.
std::vector<Bar> bars(const Plan&, const Timeline&);
/// The kinds of actions among the bars, each once, in order: for legends.
std::vector<ActionKind> kinds_of(const std::vector<Bar>&);
const Action& action_of(const Plan&, const Timeline&, const Span&);
/// Of a rank's row: its program's name; with the rank where ranks share programs.
std::string row_name(const Plan&, const Timeline&, int rank);
/// "12.3 ms", in the unit that fits.
std::string time_text(double seconds);
/// "predicted: 12.3 ms, idle 21.9 % of busy time".
std::string headline(const Plan&, const Timeline&);

/// One row of `width` characters per rank (a second one where it communicates), then what the letters mean.
std::string gantt(const Plan&, const Timeline&, int width = 120);
/// For chrome://tracing or ui.perfetto.dev: one process per rank, one thread per stream.
std::string trace_json(const Plan&, const Timeline&);
/// Self-contained; hovering over an action names it.
std::string timeline_svg(const Plan&, const Timeline&);
/// A page with the picture and, below it, text as it is (tables). No scripts, nothing loaded.
std::string timeline_html(const Plan&, const Timeline&, const std::string& text = "");

}  // namespace trireme

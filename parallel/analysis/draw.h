// Drawings of a Timeline: text for a terminal, a trace for Chrome or Perfetto, an SVG picture, an HTML page. Each
// states whether its times are predicted or measured. Consecutive actions of a rank and stream with equal kind and
// micro-batch and adjacent parts are drawn as one. Actions without duration and receives (waiting is no work) appear
// only in the trace.
#pragma once
#include <string>

#include "parallel/runtime/timeline.h"

namespace trireme {

/// "12.3 ms", in a suitable unit.
std::string time_text(double seconds);

/// One row of `width` characters per rank (a second one for its communication), then a legend.
std::string gantt(const Plan&, const Timeline&, int width = 120);
/// A trace for chrome://tracing or ui.perfetto.dev: one process per rank, one thread per stream.
std::string trace_json(const Plan&, const Timeline&);
/// A self-contained picture. Hovering over an action shows its name.
std::string timeline_svg(const Plan&, const Timeline&);
/// A page with the picture and preformatted text (tables) below it, without scripts and external resources.
std::string timeline_html(const Plan&, const Timeline&, const std::string& text = "");

}  // namespace trireme

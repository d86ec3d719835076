// Drawings of a Timeline: characters for a terminal, a trace for Chrome or Perfetto, a picture, a page. Each says
// whether its times are predicted or measured. Neighbouring actions of one rank and stream with the same kind and
// micro-batch, whose parts lie side by side, are shown as one. Actions without duration and receives (the time of
// waiting is no work) are left out, but for the trace.
#pragma once
#include <string>

#include "parallel/runtime/timeline.h"

namespace trireme {

/// "12.3 ms", in the unit that fits.
std::string time_text(double seconds);

/// One row of `width` characters per rank (a second one where it communicates), then what the letters mean.
std::string gantt(const Plan&, const Timeline&, int width = 120);
/// For chrome://tracing or ui.perfetto.dev: one process per rank, one thread per stream.
std::string trace_json(const Plan&, const Timeline&);
/// Self-contained; hovering over an action names it.
std::string timeline_svg(const Plan&, const Timeline&);
/// A page with the picture and, below it, text as it is (tables). No scripts, nothing loaded.
std::string timeline_html(const Plan&, const Timeline&, const std::string& text = "");

}  // namespace trireme

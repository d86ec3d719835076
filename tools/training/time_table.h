// TimeTable: where the time of some steps went, of all ranks, closing to the whole.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/rank_grid.h"

namespace trireme {

/// What one rank did, in nanoseconds of rank 0's clock.
struct RankTrace {
  std::string host;
  std::vector<FlightRecorder::Event> events;
  std::vector<std::pair<double, double>> memory = {};       ///< resident megabytes, at these nanoseconds
  std::vector<std::pair<double, double>> checkpoints = {};  ///< written behind training: begin and end
};

/// The kind of work of a kernel, by its contract's name: "conv_backward_weight" is "convolution".
std::string kernel_kind(std::string_view op);

/// A share of the steps' time, over ranks.
struct TimeShare {
  std::string what;                      ///< "compute: convolution", "messages: data", "waiting for data", ...
  double mean = 0, least = 0, most = 0;  ///< milliseconds a step
  double percent = 0;                    ///< of the mean step
};
/// Disjoint shares, which sum up to the steps: kernels by kind; waits for messages, by mesh axis, without the part in
/// which another rank of the line had not come yet ("waiting for the slowest rank", by axis: what a rank waited longer
/// than the one of its line that waited least, in the same wait); data; checkpoints; and the rest, the host's own work
/// between kernels. Largest first, the host last.
std::vector<TimeShare> time_shares(const std::vector<RankTrace>&, const std::vector<Axis>& mesh);
std::string time_table(const std::vector<TimeShare>&, int steps);

/// The events as a trace in Chrome's JSON format, for ui.perfetto.dev: a process per rank, with lanes for steps,
/// actions, kernels, waits, data and checkpoints; messages as flows, collectives as asynchronous events; memory as a
/// counter.
std::string trace_text(const std::vector<RankTrace>&, const std::vector<Axis>& mesh);

}  // namespace trireme

// TimeTable: the time of some steps of all ranks by category; the categories add up to the total.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/rank_grid.h"

namespace trireme {

/// The events of one rank, in nanoseconds of rank 0's clock.
struct RankTrace {
  std::string host;
  std::vector<FlightRecorder::Event> events;
  std::vector<std::pair<double, double>> memory = {};       ///< resident megabytes, at these nanoseconds
  std::vector<std::pair<double, double>> checkpoints = {};  ///< checkpoints written in the background: begin and end
};

/// The kind of work of a kernel, by its contract's name: "conv_backward_weight" is "convolution".
std::string kernel_kind(std::string_view op);

/// A share of the steps' time, over ranks.
struct TimeShare {
  std::string what;                      ///< "compute: convolution", "messages: data", "waiting for data", ...
  double mean = 0, least = 0, most = 0;  ///< milliseconds a step
  double percent = 0;                    ///< of the mean step
};
/// Disjoint shares that add up to the steps: kernels by kind; messages by mesh axis; "waiting for the slowest rank" by
/// axis; data; checkpoints; and the rest, the host's work between kernels. The wait for the slowest rank is a rank's
/// wait minus the shortest one of the ranks on its line, in the same call. Largest first, the host last.
std::vector<TimeShare> time_shares(const std::vector<RankTrace>&, const std::vector<Axis>& mesh);
std::string time_table(const std::vector<TimeShare>&, int steps);

/// The events as a trace in Chrome's JSON format, for ui.perfetto.dev: a process per rank, with lanes for steps,
/// actions, kernels, waits, data and checkpoints; messages as flows, collectives as asynchronous events; memory as a
/// counter.
std::string trace_text(const std::vector<RankTrace>&, const std::vector<Axis>& mesh);

}  // namespace trireme

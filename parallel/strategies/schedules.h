// Schedules of a pipeline: what each role computes, in which order. Messages, updates and the rest are added by
// pipeline() (strategies/pipeline.cpp), alike for all.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A micro-batch through one of the role's chunks: forward; or backward, whole or in its halves.
struct Cell {
  ActionKind kind;
  int chunk = 0, microbatch = 0;
  bool operator==(const Cell&) const = default;
};
struct PipelineShape {
  int roles = 1, microbatches = 1;
  int chunks = 1;  ///< per role; chunk c of role r is stage c * roles + r
};

struct PipelineSchedule {
  std::string name;  ///< "gpipe", "1f1b", "interleaved", "zb-h1"
  std::vector<Cell> (*cells)(const PipelineShape&, int role);
  int (*in_flight)(const PipelineShape&, int role);  ///< micro-batches (of one chunk) alive at once, at most
  bool interleaves = false;                          ///< serves several chunks per role
};
/// GPipe (arXiv 1811.06965), 1F1B (PipeDream, arXiv 1806.03377), interleaved 1F1B (arXiv 2104.04473) and ZB-H1 (zero
/// bubble, arXiv 2401.10241). A new schedule adds its row there.
const std::vector<PipelineSchedule>& schedules();
/// Throws Error with the list, and a suggestion, for another name; and when it does not serve the shape.
const PipelineSchedule& find_schedule(const std::string& name, const PipelineShape&);
/// Throws Error when the schedule does not serve the shape.
void check_shape(const PipelineSchedule&, const PipelineShape&);

}  // namespace trireme

// Schedules of a pipeline: what each program computes, in which order. Messages, updates and the rest are added by
// pipeline() (strategies/pipeline.cpp), alike for all.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A micro-batch through one of the program's chunks: forward; or backward, whole or in its halves. Or the update,
/// which else stands behind all of them.
struct Cell {
  ActionKind kind;                               ///< forward, backward, backward_input, backward_weight or update
  int chunk = 0;                                 ///< in [0, PipelineShape::chunks)
  MicroBatch microbatch = {};                    ///< of this step or an earlier one
  int version = 0;                               ///< Action::version
  bool operator==(const Cell&) const = default;  ///< member by member
};
/// The numbers that a schedule depends on.
struct PipelineShape {
  int programs = 1,      ///< ranks of the pipeline's axis, at least 1
      microbatches = 1;  ///< per step, at least 1
  int chunks = 1;        ///< per program; chunk c of program r is stage c * programs + r
};

/// One schedule: an order of cells for each program.
struct PipelineSchedule {
  std::string name;  ///< "gpipe", "1f1b", "interleaved", "zb-h1"
  /// The cells of a program, in the order in which it runs them.
  std::vector<Cell> (*cells)(const PipelineShape&, int program);
  int (*in_flight)(const PipelineShape&, int program);  ///< micro-batches (of one chunk) alive at once, at most
  bool interleaves = false;  ///< chunks is at least 2 and microbatches a multiple of programs; false: chunks is 1
  /// Updates that the weights of a gradient miss, at most: micro-batches outlive the steps that they came in with.
  /// Null: none, each step ends with its update.
  int (*delay)(const PipelineShape&) = nullptr;
  bool one_by_one = false;  ///< microbatches is 1: every micro-batch is a step. false: with a delay, at least programs
};
/// GPipe (arXiv 1811.06965), 1F1B (PipeDream, arXiv 1806.03377), interleaved 1F1B (arXiv 2104.04473) and ZB-H1 (zero
/// bubble, arXiv 2401.10241). A new one adds its row in schedules.cpp.
const std::vector<PipelineSchedule>& schedules();
/// Those with a delay: pipedream, with an update per micro-batch and a version of the weights for each in flight
/// (PipeDream: Harlap et al., arXiv 1806.03377; Narayanan et al., SOSP 2019), and 2bw, with two versions
/// (PipeDream-2BW: arXiv 2006.09503).
const std::vector<PipelineSchedule>& asynchronous_schedules();
/// Of both tables. Throws Error with the list, and a suggestion, for another name.
const PipelineSchedule& find_schedule(const std::string& name);
/// Throws Error when the schedule does not serve the shape.
void check_shape(const PipelineSchedule&, const PipelineShape&);

}  // namespace trireme
